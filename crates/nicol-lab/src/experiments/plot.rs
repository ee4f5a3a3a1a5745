//! An outcome as an SVG plot: a thin layer over `plotters`, so that it can be replaced.

use anyhow::{Context, Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde_json::Value;

use super::table::{Outcome, shown};

/// How an experiment is drawn.
#[derive(Clone, Copy, Debug)]
pub enum Chart {
    /// A line for each combination of the series columns, through its rows in their order.
    Lines {
        /// The column across.
        x: &'static str,
        /// The column upwards.
        y: &'static str,
        /// The columns whose values name a line.
        series: &'static [&'static str],
        /// Which axis is logarithmic.
        scale: Scale,
    },
    /// A group of bars for each category, a bar in it for each combination of the series columns.
    Bars {
        /// The columns whose values name a group.
        category: &'static [&'static str],
        /// The columns whose values name a bar; none if each group is one bar.
        series: &'static [&'static str],
        /// The column of the bars' height.
        y: &'static str,
    },
}

/// Which axis of lines is logarithmic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The one across: sizes that double.
    LogX,
    /// The one upwards: latencies far apart.
    LogY,
}

const SIZE: (u32, u32) = (860, 520);
/// Colours that colour-blind people can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(140, 140, 140),
];
const FONT: &str = "sans-serif";

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

/// Rows under one name, as points in their order.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws `outcome` as its experiment says. The same outcome gives the same bytes.
///
/// # Errors
/// If the chart names a column that is not there or holds no numbers.
pub fn svg(outcome: &Outcome) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(drawing)?;
        match outcome.experiment().chart {
            Chart::Lines { x, y, series, scale } => {
                let lines = gather(outcome, series, |row| {
                    Ok((number(outcome, row, x)?, number(outcome, row, y)?))
                })?;
                draw_lines(&root, outcome, &lines, (x, y), scale)?;
            }
            Chart::Bars { category, series, y } => {
                let mut groups = Vec::new();
                let bars = gather(outcome, series, |row| {
                    let name = named(outcome, row, category)?.replace(", ", " ");
                    let known = groups.iter().position(|known| *known == name);
                    let group = known.unwrap_or_else(|| {
                        groups.push(name);
                        groups.len() - 1
                    });
                    Ok((group as f64, number(outcome, row, y)?))
                })?;
                draw_bars(&root, outcome, &bars, &groups, (&category.join(", "), y))?;
            }
        }
        root.present().map_err(drawing)?;
    }
    Ok(text)
}

fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

fn cell<'o>(outcome: &Outcome, row: &'o [Value], column: &str) -> Result<&'o Value> {
    let columns = outcome.experiment().columns;
    let at = columns.iter().position(|name| *name == column);
    at.and_then(|at| row.get(at)).with_context(|| format!("no column is called {column}"))
}

fn number(outcome: &Outcome, row: &[Value], column: &str) -> Result<f64> {
    cell(outcome, row, column)?.as_f64().with_context(|| format!("{column} holds no number"))
}

/// What a row is called by its values of `columns`.
fn named(outcome: &Outcome, row: &[Value], columns: &[&str]) -> Result<String> {
    let name = |column: &&str| {
        Ok(match cell(outcome, row, column)? {
            Value::Bool(yes) => format!("{}{column}", if *yes { "" } else { "not " }),
            Value::String(word) if matches!(word.as_str(), "on" | "off") => {
                format!("{column} {word}")
            }
            value => shown(value),
        })
    };
    Ok(columns.iter().map(name).collect::<Result<Vec<_>>>()?.join(", "))
}

/// The rows by the values of `series`, in the order of first appearance.
fn gather(
    outcome: &Outcome,
    series: &[&str],
    mut point: impl FnMut(&[Value]) -> Result<(f64, f64)>,
) -> Result<Vec<Series>> {
    let mut gathered: Vec<Series> = Vec::new();
    for row in outcome.rows() {
        let (name, point) = (named(outcome, row, series)?, point(row)?);
        match gathered.iter_mut().find(|known| known.name == name) {
            Some(known) => known.points.push(point),
            None => gathered.push(Series { name, points: vec![point] }),
        }
    }
    Ok(gathered)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// The upper end of an axis: the largest value and some room above it.
fn top(values: impl Iterator<Item = f64>, room: f64) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most > 0.0 { most * (1.0 + room) } else { 1.0 }
}

/// Room beyond the points of lines, and above bars, where the legend stands.
const ROOM: f64 = 0.08;
const ROOM_LEGEND: f64 = 0.3;

/// A number with as many decimals as it needs, thousands as k and M.
fn tick(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", (value * 1_000.0).round() / 1_000.0)
}

/// The axes and captions around what `draw` draws, and a legend if there is something to tell
/// apart.
fn frame<'a, X, Y>(
    root: &Area<'a>,
    outcome: &Outcome,
    (x_range, y_range): (X, Y),
    (x_name, y_name): (&str, &str),
    x_labels: (usize, &dyn Fn(&f64) -> String),
    legend: Option<SeriesLabelPosition>,
    draw: impl FnOnce(&mut ChartOf<'_, 'a, X::CoordDescType, Y::CoordDescType>) -> Result<()>,
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let mut chart = ChartBuilder::on(root)
        .caption(outcome.experiment().title, (FONT, 18))
        .margin(14)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(x_range, y_range)
        .map_err(drawing)?;
    chart
        .configure_mesh()
        .x_desc(x_name)
        .y_desc(y_name)
        .axis_desc_style((FONT, 15))
        .label_style((FONT, 13))
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(x_labels.0)
        .x_label_formatter(x_labels.1)
        .y_label_formatter(&|value| tick(*value))
        .draw()
        .map_err(drawing)?;
    draw(&mut chart)?;
    let Some(position) = legend else { return Ok(()) };
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, 13))
        .draw()
        .map_err(drawing)
}

type ChartOf<'c, 'a, X, Y> = ChartContext<'c, SVGBackend<'a>, Cartesian2d<X, Y>>;

fn draw_lines(
    root: &Area<'_>,
    outcome: &Outcome,
    lines: &[Series],
    names: (&str, &str),
    scale: Scale,
) -> Result<()> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min).max(1e-9);
    let x_top = top(points().map(|point| point.0), ROOM);
    let y_top = top(points().map(|point| point.1), ROOM);
    let x_labels: (usize, &dyn Fn(&f64) -> String) = (10, &|value| tick(*value));
    match scale {
        Scale::LogX => {
            let low = least(&mut points().map(|point| point.0)) / 1.1;
            let ranges = ((low..x_top).log_scale().base(2.0), 0.0..y_top);
            let place = |(x, y): (f64, f64)| ((x / low).ln() / (x_top / low).ln(), y / y_top);
            let legend = Some(free_corner(lines, &place));
            let draw = |chart: &mut ChartOf<'_, '_, _, _>| series_of_lines(chart, lines);
            frame(root, outcome, ranges, names, x_labels, legend, draw)
        }
        Scale::LogY => {
            let low = least(&mut points().map(|point| point.1)) / 1.5;
            let ranges = (0.0..x_top, (low..y_top).log_scale().base(2.0));
            let place = |(x, y): (f64, f64)| (x / x_top, (y / low).ln() / (y_top / low).ln());
            let legend = Some(free_corner(lines, &place));
            let draw = |chart: &mut ChartOf<'_, '_, _, _>| series_of_lines(chart, lines);
            frame(root, outcome, ranges, names, x_labels, legend, draw)
        }
    }
}

/// The corner where a legend covers least of the lines. `place` says where a point is, as fractions
/// of the width and of the height.
fn free_corner(lines: &[Series], place: &dyn Fn((f64, f64)) -> (f64, f64)) -> SeriesLabelPosition {
    const WIDTH: f64 = 0.22;
    const STEPS: u32 = 32;
    let height = 0.06 + 0.045 * lines.len() as f64;
    let mut seen: Vec<(f64, f64)> = Vec::new();
    for line in lines {
        let places: Vec<_> = line.points.iter().map(|&point| place(point)).collect();
        seen.extend(places.last());
        for ends in places.windows(2) {
            let along = |step: u32| f64::from(step) / f64::from(STEPS);
            let between = |from: f64, to: f64, step| from + (to - from) * along(step);
            seen.extend((0..STEPS).map(|step| {
                let (from, to) = (ends[0], ends[1]);
                (between(from.0, to.0, step), between(from.1, to.1, step))
            }));
        }
    }
    let covered = |right: bool, upper: bool| {
        let across = |x: f64| if right { x > 1.0 - WIDTH } else { x < WIDTH };
        let upwards = |y: f64| if upper { y > 1.0 - height } else { y < height };
        seen.iter().filter(|(x, y)| across(*x) && upwards(*y)).count()
    };
    let corners = [
        (covered(true, true), SeriesLabelPosition::UpperRight),
        (covered(false, true), SeriesLabelPosition::UpperLeft),
        (covered(true, false), SeriesLabelPosition::LowerRight),
        (covered(false, false), SeriesLabelPosition::LowerLeft),
    ];
    let freest = corners.into_iter().min_by_key(|(covered, _)| *covered);
    freest.map_or(SeriesLabelPosition::UpperRight, |(_, corner)| corner)
}

fn series_of_lines<X, Y>(chart: &mut ChartOf<'_, '_, X, Y>, lines: &[Series]) -> Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for (at, line) in lines.iter().enumerate() {
        let stroke = colour(at).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), stroke))
            .map_err(drawing)?
            .label(line.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], stroke));
        let dots = line.points.iter().map(|&point| Circle::new(point, 3, colour(at).filled()));
        chart.draw_series(dots).map_err(drawing)?;
    }
    Ok(())
}

fn draw_bars(
    root: &Area<'_>,
    outcome: &Outcome,
    bars: &[Series],
    groups: &[String],
    names: (&str, &str),
) -> Result<()> {
    let legend = (bars.len() > 1).then_some(SeriesLabelPosition::UpperRight);
    let room = if legend.is_some() { ROOM_LEGEND } else { ROOM };
    let y_top = top(bars.iter().flat_map(|bar| bar.points.iter().map(|point| point.1)), room);
    let x_range = -0.5..groups.len() as f64 - 0.5;
    let format = |value: &f64| {
        let group = value.round();
        let exact = (value - group).abs() < 1e-6 && group >= 0.0;
        groups.get(group as usize).filter(|_| exact).cloned().unwrap_or_default()
    };
    let width = 0.8 / bars.len().max(1) as f64;
    let draw = |chart: &mut ChartOf<'_, '_, _, _>| {
        for (at, bar) in bars.iter().enumerate() {
            let fill = colour(at).filled();
            let left = -0.4 + width * at as f64;
            let boxes = bar.points.iter().map(|&(group, height)| {
                let from = group + left;
                Rectangle::new([(from, 0.0), (from + width * 0.92, height)], fill)
            });
            let drawn = chart.draw_series(boxes).map_err(drawing)?;
            drawn
                .label(bar.name.as_str())
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], fill));
        }
        Ok(())
    };
    let x_labels: (usize, &dyn Fn(&f64) -> String) = (groups.len() + 1, &format);
    frame(root, outcome, (x_range, 0.0..y_top), names, x_labels, legend, draw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_stands_where_no_line_is() {
        let legend = |points: &[(f64, f64)]| {
            let lines = [Series { name: "line".into(), points: points.to_vec() }];
            format!("{:?}", free_corner(&lines, &|place| place))
        };
        assert_eq!(legend(&[(0.0, 0.0), (0.5, 0.5)]), "UpperRight");
        assert_eq!(legend(&[(0.0, 0.0), (1.0, 1.0)]), "UpperLeft");
        assert_eq!(legend(&[(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]), "LowerRight");
        assert_eq!(legend(&[(1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]), "LowerLeft");
    }
}
