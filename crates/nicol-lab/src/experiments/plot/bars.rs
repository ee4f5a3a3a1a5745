//! Bars in groups, and the names of the groups.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{
    Area, BESIDE, ChartOf, FONT, LABELS, Labels, ROOM, Series, colour, drawing, frame, lines_of,
    top, value,
};
use crate::experiments::Outcome;

/// Space above bars, where the legend stands.
const ROOM_LEGEND: f64 = 0.3;

/// The values of the category's columns, which name a group of bars.
pub(super) type Group = Vec<String>;

/// Pixels that a letter takes in the width, and that a line takes in the height.
const LETTER: f64 = 6.6;
const LINE: i32 = 15;
/// Pixels between the axes, about.
const WIDTH: f64 = 750.0;

pub(super) fn draw_bars(
    root: &Area<'_>,
    outcome: &Outcome,
    bars: &[Series],
    (groups, written): (&[Group], &[String]),
    names: (&str, &str),
) -> Result<()> {
    let along = |&(group, height): &(f64, f64)| ((group + 0.5) / groups.len() as f64, height);
    let places = bars.iter().flat_map(|bar| bar.points.iter().map(along));
    let legend = (bars.len() > 1).then(|| freer_corner(places));
    let room = if legend.is_some() { ROOM_LEGEND } else { ROOM };
    let y_top = top(bars.iter().flat_map(|bar| bar.points.iter().map(|point| point.1)), room);
    let x_range = -0.5..groups.len() as f64 - 0.5;
    let width = 0.8 / bars.len().max(1) as f64;
    let pixels = WIDTH / groups.len().max(1) as f64;
    let names_below = names_of(groups, pixels);
    let last_line = names_below.iter().map(|name| name.line).max().unwrap_or_default();
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
            // A value wider than its bar would cover its neighbour's: the table has it.
            let fits = |height: f64| value(height).len() as f64 * LETTER < 1.25 * width * pixels;
            let values = bar.points.iter().filter(|point| fits(point.1)).map(|&(group, height)| {
                let middle = group + left + width * 0.46;
                let style = (FONT, 12).into_font().color(&BESIDE);
                let style = style.pos(Pos::new(HPos::Center, VPos::Bottom));
                EmptyElement::at((middle, height)) + Text::new(value(height), (0, -3), style)
            });
            chart.draw_series(values).map_err(drawing)?;
            let letters = (width * pixels / LETTER) as usize;
            for (&(group, height), text) in bar.points.iter().zip(written) {
                let style = (FONT, 12).into_font().color(&WHITE);
                let style = style.pos(Pos::new(HPos::Center, VPos::Top));
                for (line, text) in lines_of(text, letters).into_iter().enumerate() {
                    let text = Text::new(text, (0, 6 + 14 * line as i32), style.clone());
                    let at = EmptyElement::at((group + left + width * 0.46, height));
                    chart.draw_series([at + text]).map_err(drawing)?;
                }
            }
        }
        name_groups(root, chart, &names_below, groups.len())
    };
    let below = LABELS + LINE as u32 * last_line.saturating_sub(1) as u32;
    let no_labels: Labels<'_> = (groups.len() + 1, &|_| String::new(), below);
    frame(root, outcome, (x_range, 0.0..y_top), names, no_labels, legend, draw)
}

/// A line of text below the axis: a name for a range of groups.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    text: String,
    line: usize,
    first: usize,
    groups: usize,
}

/// The names of groups: the last part below each, in lines that fit or else in two rows by turns,
/// and each part before it once below all that have it in common.
fn names_of(groups: &[Group], pixels: f64) -> Vec<Name> {
    let letters = pixels / LETTER;
    let last = |group: &Group| match group.last().map(String::as_str) {
        Some("") => vec!["none".to_owned()],
        Some(last) => {
            let lines = lines_of(last.replace('+', " +").trim(), letters as usize);
            lines.into_iter().map(|line| line.replace(" +", "+")).collect()
        }
        None => Vec::new(),
    };
    let lines: Vec<Vec<String>> = groups.iter().map(last).collect();
    let most = lines.iter().map(Vec::len).max().unwrap_or_default();
    let is_wide = |line: &String| line.len() as f64 > letters;
    let rows = if lines.iter().flatten().any(is_wide) { 2 } else { 1 };
    let mut names = Vec::new();
    for (first, lines) in lines.into_iter().enumerate() {
        let above = first % rows * most;
        let name = |(line, text)| Name { text, line: above + line, first, groups: 1 };
        names.extend(lines.into_iter().enumerate().map(name));
    }
    let parts = groups.first().map_or(0, Vec::len);
    for (row, part) in (0..parts.saturating_sub(1)).rev().enumerate() {
        let mut first = 0;
        for same in groups.chunk_by(|one, other| one[..=part] == other[..=part]) {
            let (text, line) = (same[0][part].clone(), rows * most + row);
            names.push(Name { text, line, first, groups: same.len() });
            first += same.len();
        }
    }
    names
}

/// Writes the names of groups below the axis.
fn name_groups<X, Y>(
    root: &Area<'_>,
    chart: &ChartOf<'_, '_, X, Y>,
    names: &[Name],
    groups: usize,
) -> Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let (left, upper) = chart.plotting_area().get_base_pixel();
    let (columns, rows) = chart.plotting_area().dim_in_pixel();
    let below = upper + rows as i32 + 6;
    let style = (FONT, 13).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    for Name { text, line, first, groups: of } in names {
        let middle = (*first as f64 + *of as f64 / 2.0) / groups as f64;
        let across = left + (middle * f64::from(columns)).round() as i32;
        let at = (across, below + LINE * *line as i32);
        root.draw(&Text::new(text.clone(), at, style.clone())).map_err(drawing)?;
    }
    Ok(())
}

/// The upper corner below which bars are lower. Each bar is its place along the axis, as a
/// fraction, and its height.
fn freer_corner(bars: impl Iterator<Item = (f64, f64)>) -> SeriesLabelPosition {
    /// A legend's part of the width.
    const PART: f64 = 0.22;
    let (mut left, mut right) = (0.0_f64, 0.0_f64);
    for (at, height) in bars {
        match at {
            at if at < PART => left = left.max(height),
            at if at > 1.0 - PART => right = right.max(height),
            _ => {}
        }
    }
    if left < right { SeriesLabelPosition::UpperLeft } else { SeriesLabelPosition::UpperRight }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(groups: &[&[&str]], pixels: f64) -> Vec<(String, usize, usize)> {
        let owned = |group: &&[&str]| group.iter().map(|part| (*part).to_owned()).collect();
        let groups: Vec<Group> = groups.iter().map(owned).collect();
        let names = names_of(&groups, pixels).into_iter();
        names.map(|name| (name.text, name.line, name.groups)).collect()
    }

    #[test]
    fn what_groups_have_in_common_is_written_once() {
        let groups: &[&[&str]] =
            &[&["robinhood", "8", "1"], &["robinhood", "16", "1"], &["chained", "4", ""]];
        let name = |text: &str, line, groups| (text.to_owned(), line, groups);
        let wanted = [
            name("1", 0, 1),
            name("1", 0, 1),
            name("none", 0, 1),
            name("8", 1, 1),
            name("16", 1, 1),
            name("4", 1, 1),
            name("robinhood", 2, 2),
            name("chained", 2, 1),
        ];
        assert_eq!(shown(groups, 60.0), wanted);
    }

    #[test]
    fn names_that_are_wider_than_their_group_take_two_rows() {
        let rows = |pixels| -> Vec<usize> {
            let names = shown(&[&["write"], &["acknowledge"], &["publish"]], pixels);
            names.into_iter().map(|(_, line, _)| line).collect()
        };
        assert_eq!(rows(80.0), [0, 0, 0]);
        assert_eq!(rows(50.0), [0, 1, 0]);
        let sums = shown(&[&["a4+a5"], &["combined+broadcast"]], 70.0);
        let sums: Vec<_> = sums.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!(sums, ["a4+a5", "combined", "+broadcast"]);
    }

    #[test]
    fn a_legend_stands_above_the_lower_bars() {
        let legend = |bars: &[(f64, f64)]| format!("{:?}", freer_corner(bars.iter().copied()));
        assert_eq!(legend(&[(0.1, 2.0), (0.5, 9.0), (0.9, 7.0)]), "UpperLeft");
        assert_eq!(legend(&[(0.1, 7.0), (0.9, 7.0)]), "UpperRight");
    }
}
