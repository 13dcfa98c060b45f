// Draws every chart of the page: a specification lies beside the place it is drawn in. A place without width
// (a hidden frame) has no room to draw in until it is shown.
for (const source of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(source.dataset.chart);
  const given = JSON.parse(source.textContent);
  const spec = source.dataset.language === "vega" ? given : vegaLite.compile(given).spec;
  const draw = () =>
    new vega.View(vega.parse(spec), { renderer: "svg", container: place, hover: false })
      .runAsync()
      .then(() => place.classList.add("drawn"));
  if (place.clientWidth > 0) draw();
  else
    new ResizeObserver((_, observer) => {
      if (place.clientWidth === 0) return;
      observer.disconnect();
      draw();
    }).observe(place);
}
