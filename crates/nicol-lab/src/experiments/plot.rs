//! An outcome as an SVG plot: a thin layer over `plotters`, so that it can be replaced.

mod bars;
mod numbers;

use anyhow::{Context, Result, anyhow};
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde_json::Value;

use super::table::{Outcome, shown};
use bars::{Group, draw_bars};
use numbers::{binary_tick, log_ticks, tick, value};

/// The plot of an experiment.
#[derive(Clone, Copy, Debug)]
pub enum Chart {
    /// A line for each combination of the series columns, through its rows in their order.
    Lines {
        /// The column along the horizontal axis.
        x: &'static str,
        /// The column along the vertical axis.
        y: &'static str,
        /// The columns whose values name a line.
        series: &'static [&'static str],
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
        /// A column whose values are written in the bars, if each group is one.
        inside: Option<&'static str>,
    },
}

/// The axis of lines that is logarithmic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The one across: sizes that double.
    LogX,
    /// The one upwards: latencies far apart.
    LogY,
    Linear,
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
/// Grey of what stands beside the data.
const BESIDE: RGBColor = RGBColor(90, 90, 90);

/// The quantity and the unit of each column, in words. A column that is not here has its own name.
const WORDS: &[(&str, &str)] = &[
    ("a3_share", "share of chunks that the host replicates"),
    ("abort_fraction", "share of attempts that abort"),
    ("account", "whose time"),
    ("alternative", "alternative"),
    ("application", "application"),
    ("bandwidth_gbps", "bandwidth (Gbps)"),
    ("batch", "requests of a doorbell"),
    ("benchmark", "workload"),
    ("bytes", "size of an operation (bytes)"),
    ("cached_share", "share of values that the SoC keeps"),
    ("chunk_kib", "chunk (KiB)"),
    ("clients", "clients"),
    ("communication_us", "communication of a write (microseconds)"),
    ("computation_us", "microseconds of computation"),
    ("content", "content"),
    ("detection_accuracy", "detection accuracy"),
    ("engine", "engine"),
    ("entries", "entries of vFIFO and dFIFO"),
    ("event", "what is lost"),
    ("first_commit_ms", "first commit on a lost shard after (milliseconds)"),
    ("first_read", "slots of the first read"),
    ("homes_per_hint", "homes that share a hint"),
    ("kind", "transactions"),
    ("latency_mean_us", "mean latency (microseconds)"),
    ("latency_p50_us", "median latency (microseconds)"),
    ("latency_us", "round-trip latency (microseconds)"),
    ("log", "contents of LOG"),
    ("machines", "machines that ask"),
    ("memory", "memory"),
    ("model", "persistency model"),
    ("mops", "throughput (million operations per second)"),
    ("network", "network between client and server"),
    ("nodes", "nodes"),
    ("normalized_threads", "threads, those of the NIC as host threads"),
    ("objects_read", "objects read per lookup"),
    ("of_unbatched", "throughput, of that without batching"),
    ("operation", "operation"),
    ("parameter", "its parameter"),
    ("part", "part"),
    ("path", "path"),
    ("peak_throughput_per_s", "peak throughput (transactions per second)"),
    ("piece_kib", "piece (KiB)"),
    ("profile", "hardware"),
    ("range_bytes", "range of addresses (bytes)"),
    ("recovery", "recovery"),
    ("roundtrips", "round trips"),
    ("scheduler", "scheduler"),
    ("setting", "setting"),
    ("structure", "structure"),
    ("system", "system"),
    ("throughput_mops", "throughput (million requests per second)"),
    ("throughput_per_node_per_s", "throughput (transactions per second and server)"),
    ("throughput_per_s", "throughput (operations per second)"),
    ("time_ms", "time (milliseconds)"),
    ("us", "time (microseconds)"),
    ("value", "its value"),
    ("variant", "mechanisms"),
    ("workload", "workload"),
    ("write_fraction", "percent of writes"),
    ("write_latency_us", "mean latency of a write (microseconds)"),
    ("zipf", "Zipf parameter"),
];

fn words(column: &'static str) -> &'static str {
    WORDS.iter().find(|(name, _)| *name == column).map_or(column, |(_, words)| *words)
}

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
                let mut lines = gather(outcome, series, |row| {
                    Ok((optional(outcome, row, x)?, optional(outcome, row, y)?))
                })?;
                lines.iter_mut().for_each(|line| line.points.retain(|point| has(scale, *point)));
                draw_lines(&root, outcome, &lines, (words(x), words(y)), scale)?;
            }
            Chart::Bars { category, series, y, inside } => {
                let mut groups: Vec<Group> = Vec::new();
                let mut bars = gather(outcome, series, |row| {
                    let height = optional(outcome, row, y)?;
                    // A group without a bar has no place.
                    if height.is_nan() {
                        return Ok((f64::NAN, height));
                    }
                    let name = |column: &&str| named(outcome, row, &[column]);
                    let name = category.iter().map(name).collect::<Result<Group>>()?;
                    let known = groups.iter().position(|known| *known == name);
                    let group = known.unwrap_or_else(|| {
                        groups.push(name);
                        groups.len() - 1
                    });
                    Ok((group as f64, height))
                })?;
                bars.iter_mut().for_each(|bar| bar.points.retain(|point| !point.1.is_nan()));
                let written = inside.map(|column| written(outcome, column)).transpose()?;
                let across: Vec<_> = category.iter().map(|&column| words(column)).collect();
                let names = (&*across.join(" and "), words(y));
                draw_bars(&root, outcome, &bars, (&groups, &written.unwrap_or_default()), names)?;
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
    let columns = outcome.experiment().every_column();
    let at = columns.iter().position(|name| *name == column);
    at.and_then(|at| row.get(at)).with_context(|| format!("no column is called {column}"))
}

fn number(outcome: &Outcome, row: &[Value], column: &str) -> Result<f64> {
    cell(outcome, row, column)?.as_f64().with_context(|| format!("{column} holds no number"))
}

/// Whether a plot has a place for a point: for numbers only, and on a logarithmic axis for those
/// above zero.
fn has(scale: Scale, (x, y): (f64, f64)) -> bool {
    match scale {
        _ if x.is_nan() || y.is_nan() => false,
        Scale::LogX => x > 0.0,
        Scale::LogY => y > 0.0,
        Scale::Linear => true,
    }
}

/// The number of a bar or of a point; not a number where the row has none, which is neither.
fn optional(outcome: &Outcome, row: &[Value], column: &str) -> Result<f64> {
    if cell(outcome, row, column)?.is_null() { Ok(f64::NAN) } else { number(outcome, row, column) }
}

/// Every row's number in `column`, and what it is, for its bar.
fn written(outcome: &Outcome, column: &'static str) -> Result<Vec<String>> {
    let text = |row: &Vec<Value>| {
        Ok(format!("{} {}", value(number(outcome, row, column)?), words(column)))
    };
    outcome.rows().iter().map(text).collect()
}

/// The name of a row: its values of `columns`.
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

/// The upper end of an axis: the largest value and some space above it.
fn top(values: impl Iterator<Item = f64>, room: f64) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most > 0.0 { most * (1.0 + room) } else { 1.0 }
}

/// Space beyond the points of lines, and above bars.
const ROOM: f64 = 0.08;

/// The run behind a plot that is seen without its table.
pub(super) fn provenance(outcome: &Outcome) -> String {
    let profile = outcome.profile().map_or("no timing model".to_owned(), |profile| {
        format!("simulated on {}", profile.replace(',', " and "))
    });
    let failed = if outcome.violations().is_empty() { "" } else { "; A CHECK FAILED" };
    let id = outcome.experiment().id;
    format!("{id}, {} form, {profile}, seed {}{failed}", outcome.form().name(), outcome.seed())
}

/// Characters of provenance that fit into the width of a plot.
const LINE_MAX: usize = 110;

/// `text` in lines of at most so many characters, if its words are no longer.
fn lines_of(text: &str, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.len() + 1 + word.len() <= most => {
                line.push_str(if line.is_empty() { "" } else { " " });
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Labels of the horizontal axis: how many at most, the text of one, and the pixels of the labels
/// and of the axis' name.
type Labels<'l> = (usize, &'l dyn Fn(&f64) -> String, u32);
/// Pixels of one line of labels, and of the axis' name.
const LABELS: u32 = 48;

/// The axes and captions around what `draw` draws, and a legend if there is something to tell
/// apart.
fn frame<'a, X, Y>(
    root: &Area<'a>,
    outcome: &Outcome,
    (x_range, y_range): (X, Y),
    (x_name, y_name): (&str, &str),
    x_labels: Labels<'_>,
    legend: Option<SeriesLabelPosition>,
    draw: impl FnOnce(&mut ChartOf<'_, 'a, X::CoordDescType, Y::CoordDescType>) -> Result<()>,
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let titled = root.margin(10, 0, 0, 0).titled(outcome.experiment().title, (FONT, 18));
    let root = lines_of(&provenance(outcome), LINE_MAX)
        .iter()
        .fold(titled, |root, line| root?.titled(line, (FONT, 13).into_font().color(&BESIDE)));
    let root = root.map_err(drawing)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(14)
        .x_label_area_size(x_labels.2)
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
    // Of no points at all, some axis below the top of 1.
    let least = |values: &mut dyn Iterator<Item = f64>| {
        let least = values.fold(f64::MAX, f64::min).max(1e-9);
        if least < f64::MAX { least } else { 0.5 }
    };
    let x_top = top(points().map(|point| point.0), ROOM);
    let y_top = top(points().map(|point| point.1), ROOM);
    let in_bytes = names.0.ends_with("(bytes)");
    let x_labels: Labels<'_> =
        (10, &|value| if in_bytes { binary_tick(*value) } else { tick(*value) }, LABELS);
    // Where a point is along an axis, as a fraction of its length.
    let along = |value: f64, top: f64| value / top;
    let along_log = |value: f64, low: f64, top: f64| (value / low).ln() / (top / low).ln();
    let ways = (names, x_labels);
    match scale {
        Scale::Linear => {
            let place = |(x, y): (f64, f64)| (along(x, x_top), along(y, y_top));
            lines_in(root, outcome, lines, (0.0..x_top, 0.0..y_top), ways, &place)
        }
        Scale::LogX => {
            let low = least(&mut points().map(|point| point.0)) / 1.1;
            let ranges = ((low..x_top).log_scale().base(2.0), 0.0..y_top);
            let place = |(x, y): (f64, f64)| (along_log(x, low, x_top), along(y, y_top));
            lines_in(root, outcome, lines, ranges, ways, &place)
        }
        Scale::LogY => {
            let low = least(&mut points().map(|point| point.1)) / 1.5;
            let upwards = (low..y_top).log_scale().with_key_points(log_ticks(low, y_top));
            let ranges = (0.0..x_top, upwards);
            let place = |(x, y): (f64, f64)| (along(x, x_top), along_log(y, low, y_top));
            lines_in(root, outcome, lines, ranges, ways, &place)
        }
    }
}

/// Draws lines on axes of these ranges, with the legend where `place` puts fewest of their points.
fn lines_in<X, Y>(
    root: &Area<'_>,
    outcome: &Outcome,
    lines: &[Series],
    ranges: (X, Y),
    (names, x_labels): ((&str, &str), Labels<'_>),
    place: &dyn Fn((f64, f64)) -> (f64, f64),
) -> Result<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let legend = Some(free_corner(lines, place));
    let draw = |chart: &mut ChartOf<'_, '_, _, _>| series_of_lines(chart, lines);
    frame(root, outcome, ranges, names, x_labels, legend, draw)
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
            .legend(move |place| Polygon::new(key(place, at), colour(at).filled()));
        let fill = colour(at).filled();
        let mark = || Polygon::new(mark(at).to_vec(), fill);
        let marks = line.points.iter().map(|&point| EmptyElement::at(point) + mark());
        chart.draw_series(marks).map_err(drawing)?;
    }
    Ok(())
}

/// The corners of a line's mark, clockwise, in pixels from its middle: a shape of its own to each,
/// since colours are not all that tells lines apart, and one may cover another.
fn mark(line: usize) -> &'static [(i32, i32)] {
    const SQUARE: &[(i32, i32)] = &[(-4, -4), (4, -4), (4, 4), (-4, 4)];
    const TRIANGLE: &[(i32, i32)] = &[(0, -6), (6, 4), (-6, 4)];
    const DIAMOND: &[(i32, i32)] = &[(0, -6), (6, 0), (0, 6), (-6, 0)];
    const WEDGE: &[(i32, i32)] = &[(0, 6), (-6, -4), (6, -4)];
    const BAR: &[(i32, i32)] = &[(-2, -7), (2, -7), (2, 7), (-2, 7)];
    const HOURGLASS: &[(i32, i32)] = &[(-5, -6), (5, -6), (1, 0), (5, 6), (-5, 6), (-1, 0)];
    const SHAPES: [&[(i32, i32)]; 6] = [SQUARE, TRIANGLE, DIAMOND, WEDGE, BAR, HOURGLASS];
    SHAPES[line % SHAPES.len()]
}

/// A line with its mark, as the legend shows it: one outline around both.
fn key((x, y): (i32, i32), line: usize) -> Vec<(i32, i32)> {
    const MIDDLE: i32 = 9;
    let mark = mark(line);
    let around = mark.iter().chain(mark.first()).map(|corner| (MIDDLE + corner.0, corner.1));
    let mut corners = vec![(0, -1), (MIDDLE, -1)];
    corners.extend(around);
    corners.extend([(MIDDLE, -1), (2 * MIDDLE, -1), (2 * MIDDLE, 1), (0, 1)]);
    corners.into_iter().map(|corner| (x + corner.0, y + corner.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_provenance_takes_several_lines() {
        assert_eq!(lines_of("ab cd efg", 5), ["ab cd", "efg"]);
        assert_eq!(lines_of("ab cd efg", 9), ["ab cd efg"]);
        assert_eq!(lines_of("a longer", 4), ["a", "longer"]);
    }

    #[test]
    fn every_axis_of_every_experiment_is_named_in_words() {
        for experiment in crate::figures::all() {
            let columns = match experiment.chart {
                Chart::Lines { x, y, .. } => vec![x, y],
                Chart::Bars { category, y, inside, .. } => {
                    let inside = inside.as_slice();
                    [category, &[y], inside].concat()
                }
            };
            for column in columns {
                assert!(experiment.columns.contains(&column), "{}: {column}", experiment.id);
                assert!(WORDS.iter().any(|(name, _)| *name == column), "{column} has no words");
            }
        }
    }

    /// The quick form of a figure with its first latency, which is drawn on a logarithmic axis.
    fn with_latency(latency: &str) -> String {
        const GOLDEN: &str = include_str!("../../golden/commit/xenic-fig8d.json");
        let mut file: Value = serde_json::from_str(GOLDEN).unwrap();
        file["rows"][0]["latency_p50_us"] = serde_json::from_str(latency).unwrap();
        svg(&Outcome::parse(&file.to_string(), crate::figures::find).unwrap()).unwrap()
    }

    #[test]
    fn what_has_no_place_on_an_axis_leaves_the_other_points() {
        let all = with_latency("7.479");
        for none in ["null", "0.0", "-1.0"] {
            let without = with_latency(none);
            // As high as the least of the others: a zero would stretch the axis over decades.
            let marks = |text: &str| text.matches("<polygon").count();
            assert_eq!(marks(&without), marks(&all) - 1, "{none}");
            assert!(without.contains("\n10\n") && !without.contains("\n0.001\n"), "{without}");
        }
    }

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
