// Draws every chart of the page: a specification lies beside the place it is drawn in.
for (const source of document.querySelectorAll("script[data-chart]")) {
  const place = document.getElementById(source.dataset.chart);
  const given = JSON.parse(source.textContent);
  const spec = source.dataset.language === "vega" ? given : vegaLite.compile(given).spec;
  new vega.View(vega.parse(spec), { renderer: "svg", container: place, hover: false })
    .runAsync()
    .then(() => place.classList.add("drawn"));
}
