//! Charts as SVG text: lines over named places, points in a plane, and a map of shaded cells.
//!
//! Every chart is a picture with a title and a description in words; the same figures follow it
//! as a table. Colours come from classes (`s0` to `s6`), so that a dark page can change them, and
//! every series has its own mark and dash as well.

use crate::cmd::reproduce::view::figure;
use core::fmt::Write;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 58.0;

/// One line of a chart.
pub(super) struct Series {
    /// Its name.
    pub(super) name: String,
    /// Colour, mark and dash: 0 to 6.
    pub(super) style: usize,
    /// Figure and deviation for each place.
    pub(super) points: Vec<Option<(f64, Option<f64>)>>,
    /// Whether neighbours are joined.
    pub(super) joined: bool,
}

/// A chart over named places.
pub(super) struct Chart {
    /// Names it among the charts of the page.
    pub(super) id: String,
    /// One line.
    pub(super) title: String,
    /// What the vertical axis says.
    pub(super) unit: String,
    /// The places.
    pub(super) places: Vec<String>,
    /// The lines.
    pub(super) series: Vec<Series>,
    /// Logarithmic vertical axis.
    pub(super) log: bool,
}

/// Text that is safe inside elements and attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A vertical or horizontal scale.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        if log {
            return Self {
                low: 10f64.powf(least.max(1e-6).log10().floor()),
                high: 10f64.powf(most.max(1e-5).log10().ceil()),
                log,
            };
        }
        let room = if least < 0.0 || least > 0.5 * most {
            (most - least).max(most.abs() * 0.02) * 0.1
        } else {
            0.0
        };
        let low = if least >= 0.0 && room == 0.0 {
            0.0
        } else {
            least - room
        };
        Self {
            low,
            high: most + (most - low).max(1e-9) * 0.06,
            log,
        }
    }

    /// From 0 to 1.
    fn part(&self, value: f64) -> f64 {
        if self.log {
            (value.max(self.low) / self.low).log10() / (self.high / self.low).log10().max(1e-9)
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (low, high) = (
                self.low.log10().round() as i32,
                self.high.log10().round() as i32,
            );
            return (low..=high).map(|power| 10f64.powi(power)).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.low / step).ceil();
        (0..12)
            .map(|index| (first + f64::from(index)) * step)
            .take_while(|tick| *tick <= self.high)
            .collect()
    }
}

fn y_of(scale: &Scale, value: f64) -> f64 {
    HEIGHT - BOTTOM - scale.part(value) * (HEIGHT - TOP - BOTTOM)
}

fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1e6 {
        format!("{}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{}k", value / 1e3)
    } else if size >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// A mark of one of seven shapes.
fn mark(style: usize, x: f64, y: f64) -> String {
    let r = 4.5;
    let path = match style % 7 {
        0 => return format!("<circle class='m s0' cx='{x:.1}' cy='{y:.1}' r='{r}'/>"),
        1 => format!("M{:.1} {:.1}h9v9h-9z", x - r, y - r),
        2 => format!("M{x:.1} {:.1}l6 6-6 6-6-6z", y - 6.0),
        3 => format!("M{x:.1} {:.1}l6 10h-12z", y - 6.0),
        4 => format!("M{x:.1} {:.1}l6-10h-12z", y + 6.0),
        5 => format!("M{:.1} {:.1}l9 9m0-9l-9 9", x - r, y - r),
        _ => format!("M{:.1} {y:.1}h10m-5-5v10", x - 5.0),
    };
    format!("<path class='m s{}' d='{path}'/>", style % 7)
}

fn open(id: &str, title: &str, description: &str) -> String {
    format!(
        "<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-labelledby='{id}-t {id}-d'>\
         <title id='{id}-t'>{}</title><desc id='{id}-d'>{}</desc>",
        escape(title),
        escape(description)
    )
}

fn axis(svg: &mut String, scale: &Scale, unit: &str) {
    for tick in scale.ticks() {
        let y = y_of(scale, tick);
        let _ = write!(
            svg,
            "<path class='grid' d='M{LEFT} {y:.1}H{}'/><text class='tick' x='{}' y='{:.1}' \
             text-anchor='end'>{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class='tick' transform='translate(14 {}) rotate(-90)' text-anchor='middle'>{}</text>",
        (HEIGHT - BOTTOM + TOP) / 2.0,
        escape(unit)
    );
}

impl Chart {
    /// Whether there is anything to draw.
    pub(super) fn is_empty(&self) -> bool {
        self.series
            .iter()
            .all(|line| line.points.iter().all(Option::is_none))
    }

    /// The figures in words.
    fn description(&self) -> String {
        let mut words = format!("{}. ", self.unit);
        for line in &self.series {
            let _ = write!(words, "{}: ", line.name);
            let each = self.places.iter().zip(&line.points);
            let each = each.filter_map(|(place, point)| {
                let (value, _) = (*point)?;
                Some(format!("{place} {}", figure(value)))
            });
            let _ = write!(words, "{}. ", each.collect::<Vec<_>>().join(", "));
        }
        words
    }

    /// The picture.
    pub(super) fn svg(&self) -> String {
        let points = self
            .series
            .iter()
            .flat_map(|line| line.points.iter().flatten());
        let ends = points.flat_map(|(value, sd)| {
            let sd = sd.unwrap_or(0.0);
            [value + sd, if self.log { *value } else { value - sd }]
        });
        let scale = Scale::over(ends, self.log);
        let mut svg = open(&self.id, &self.title, &self.description());
        axis(&mut svg, &scale, &self.unit);
        let step = (WIDTH - LEFT - RIGHT) / self.places.len().max(1) as f64;
        let x_of = |place: usize, line: usize| {
            let shift = line as f64 - (self.series.len() as f64 - 1.0) / 2.0;
            LEFT + step * (place as f64 + 0.5) + shift * (step / 12.0).min(7.0)
        };
        for (place, name) in self.places.iter().enumerate() {
            let x = LEFT + step * (place as f64 + 0.5);
            let y = HEIGHT - BOTTOM + 16.0;
            let _ = write!(
                svg,
                "<text class='tick' transform='translate({x:.1} {y}) rotate({})' \
                 text-anchor='{}'>{}</text>",
                if self.places.len() > 6 { -28 } else { 0 },
                if self.places.len() > 6 {
                    "end"
                } else {
                    "middle"
                },
                escape(name)
            );
        }
        for (index, line) in self.series.iter().enumerate() {
            draw_line(&mut svg, &scale, line, |place| x_of(place, index));
        }
        svg.push_str("</svg>");
        svg
    }

    /// The legend, as a list.
    pub(super) fn legend(&self) -> String {
        let mut list = String::from("<ul class='legend'>");
        for line in &self.series {
            let _ = write!(
                list,
                "<li><svg viewBox='0 0 28 14' aria-hidden='true'><path class='l s{0}' d='M2 7H26'/>{1}\
                 </svg>{2}</li>",
                line.style % 7,
                mark(line.style, 14.0, 7.0),
                escape(&line.name)
            );
        }
        list + "</ul>"
    }

    /// The figures as a table.
    pub(super) fn table(&self) -> String {
        let mut table = format!(
            "<div class='wide' role='region' tabindex='0' aria-label='{0}'><table><caption>{0}, {1}\
             </caption><tr><th></th>",
            escape(&self.title),
            escape(&self.unit)
        );
        for line in &self.series {
            let _ = write!(table, "<th scope='col'>{}</th>", escape(&line.name));
        }
        table.push_str("</tr>");
        for (place, name) in self.places.iter().enumerate() {
            let _ = write!(table, "<tr><th scope='row'>{}</th>", escape(name));
            for line in &self.series {
                let cell = match line.points[place] {
                    None => "–".into(),
                    Some((value, None)) => figure(value),
                    Some((value, Some(sd))) => format!("{} ± {}", figure(value), figure(sd)),
                };
                let _ = write!(table, "<td>{cell}</td>");
            }
            table.push_str("</tr>");
        }
        table + "</table></div>"
    }
}

fn draw_line(svg: &mut String, scale: &Scale, line: &Series, x_of: impl Fn(usize) -> f64) {
    let style = line.style % 7;
    let mut path = String::new();
    for (place, point) in line.points.iter().enumerate() {
        let Some((value, sd)) = point else { continue };
        let (x, y) = (x_of(place), y_of(scale, *value));
        if let Some(sd) = sd.filter(|sd| *sd > 0.0) {
            let _ = write!(
                svg,
                "<path class='bar s{style}' d='M{x:.1} {:.1}V{:.1}'/>",
                y_of(scale, value - sd),
                y_of(scale, value + sd)
            );
        }
        let _ = write!(
            path,
            "{}{x:.1} {y:.1}",
            if path.is_empty() { 'M' } else { 'L' }
        );
        svg.push_str(&mark(style, x, y));
    }
    if line.joined {
        let _ = write!(svg, "<path class='l s{style}' d='{path}'/>");
    }
}

/// A point in the plane of [`plane`].
pub(super) struct Spot {
    /// Its name.
    pub(super) name: String,
    /// To the right.
    pub(super) x: f64,
    /// Up.
    pub(super) y: f64,
    /// Colour and mark.
    pub(super) style: usize,
}

/// Points in a plane, each with its number beside it; [`numbered`] says which is which.
pub(super) fn plane(id: &str, title: &str, units: [&str; 2], spots: &[Spot]) -> String {
    let across = Scale::over(spots.iter().map(|spot| spot.x), false);
    let up = Scale::over(spots.iter().map(|spot| spot.y), false);
    let words: Vec<String> = spots
        .iter()
        .map(|s| {
            format!(
                "{}: {} {}, {} {}",
                s.name,
                figure(s.x),
                units[0],
                figure(s.y),
                units[1]
            )
        })
        .collect();
    let mut svg = open(id, title, &words.join("; "));
    axis(&mut svg, &up, units[1]);
    let width = WIDTH - LEFT - RIGHT - 90.0;
    for tick in across.ticks() {
        let x = LEFT + across.part(tick) * width;
        let _ = write!(
            svg,
            "<text class='tick' x='{x:.1}' y='{}' text-anchor='middle'>{}</text>",
            HEIGHT - BOTTOM + 18.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class='tick' x='{}' y='{}' text-anchor='middle'>{}</text>",
        LEFT + width / 2.0,
        HEIGHT - 14.0,
        escape(units[0])
    );
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for (index, spot) in spots.iter().enumerate() {
        let (x, y) = (LEFT + across.part(spot.x) * width, y_of(&up, spot.y));
        // Numbers that would lie on each other move right.
        let mut label = x + 8.0;
        while taken
            .iter()
            .any(|(a, b)| (a - label).abs() < 15.0 && (b - y).abs() < 11.0)
        {
            label += 15.0;
        }
        taken.push((label, y));
        svg.push_str(&mark(spot.style, x, y));
        if label > x + 9.0 {
            let _ = write!(
                svg,
                "<path class='grid' d='M{x:.1} {y:.1}H{:.1}'/>",
                label - 1.0
            );
        }
        let _ = write!(
            svg,
            "<text class='name' x='{label:.1}' y='{:.1}'>{}</text>",
            y + 4.0,
            index + 1
        );
    }
    svg + "</svg>"
}

/// The points of [`plane`] as a numbered list with their figures.
pub(super) fn numbered(units: [&str; 2], spots: &[Spot]) -> String {
    let items = spots.iter().map(|spot| {
        format!(
            "<li>{}: {} {}, {} {}</li>",
            escape(&spot.name),
            figure(spot.y),
            units[1],
            figure(spot.x),
            units[0]
        )
    });
    format!("<ol>{}</ol>", items.collect::<String>())
}

/// Shaded cells: rows by columns, darker is more; every cell says its figure.
pub(super) fn map(
    id: &str,
    title: &str,
    rows: &[String],
    columns: &[String],
    values: &[Vec<Option<f64>>],
) -> String {
    let all = || values.iter().flatten().flatten().copied();
    let (least, most) = (
        all().fold(f64::INFINITY, f64::min),
        all().fold(1.0, f64::max),
    );
    let words: Vec<String> = rows
        .iter()
        .zip(values)
        .map(|(row, line)| {
            let cells = columns.iter().zip(line);
            let cells = cells.filter_map(|(column, value)| Some((column, (*value)?)));
            let cells = cells.map(|(column, value)| format!("{column} {}", figure(value)));
            format!("{row}: {}", cells.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let mut svg = open(id, title, &words.join("; "));
    let (width, height) = (
        (WIDTH - LEFT - RIGHT) / columns.len().max(1) as f64,
        (HEIGHT - TOP - BOTTOM) / rows.len().max(1) as f64,
    );
    for (row, (name, line)) in rows.iter().zip(values).enumerate() {
        let y = TOP + height * row as f64;
        let _ = write!(
            svg,
            "<text class='tick' x='{}' y='{:.1}' text-anchor='end'>{}</text>",
            LEFT - 6.0,
            y + height / 2.0 + 4.0,
            escape(name)
        );
        for (column, value) in line.iter().enumerate() {
            let Some(value) = value else { continue };
            let x = LEFT + width * column as f64;
            let part =
                (value.max(1.0) / least.max(1.0)).ln() / (most / least.max(1.0)).ln().max(1e-9);
            let _ = write!(
                svg,
                "<rect class='cell' x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}' \
                 fill-opacity='{:.2}'/><text class='in' x='{:.1}' y='{:.1}' text-anchor='middle'>{value:.0}\
                 </text>",
                0.08 + 0.72 * part,
                x + width / 2.0,
                y + height / 2.0 + 4.0
            );
        }
    }
    for (column, name) in columns.iter().enumerate() {
        let _ = write!(
            svg,
            "<text class='tick' x='{:.1}' y='{}' text-anchor='middle'>{}</text>",
            LEFT + width * (column as f64 + 0.5),
            HEIGHT - BOTTOM + 18.0,
            escape(name)
        );
    }
    svg + "</svg>"
}
