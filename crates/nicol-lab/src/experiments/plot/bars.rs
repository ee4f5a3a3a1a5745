//! Bars in groups, and the names of the groups.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{
    Area, BESIDE, ChartOf, FONT, Labels, ROOM, Series, colour, drawing, frame, lines_of, top, value,
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
    let legend = (bars.len() > 1).then_some(SeriesLabelPosition::UpperRight);
    let room = if legend.is_some() { ROOM_LEGEND } else { ROOM };
    let y_top = top(bars.iter().flat_map(|bar| bar.points.iter().map(|point| point.1)), room);
    let x_range = -0.5..groups.len() as f64 - 0.5;
    let width = 0.8 / bars.len().max(1) as f64;
    let pixels = WIDTH / groups.len().max(1) as f64;
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
        name_groups(root, chart, groups, pixels)
    };
    let no_labels: Labels<'_> = (groups.len() + 1, &|_| String::new());
    frame(root, outcome, (x_range, 0.0..y_top), names, no_labels, legend, draw)
}

/// Writes the names of groups below the axis: the last part below each, in lines that fit, and what
/// several have in common once, below all of them.
fn name_groups<X, Y>(
    root: &Area<'_>,
    chart: &ChartOf<'_, '_, X, Y>,
    groups: &[Group],
    pixels: f64,
) -> Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let (left, upper) = chart.plotting_area().get_base_pixel();
    let (columns, rows) = chart.plotting_area().dim_in_pixel();
    let across = |group: f64| {
        left + ((group + 0.5) / groups.len() as f64 * f64::from(columns)).round() as i32
    };
    let below = upper + rows as i32 + 6;
    let style = (FONT, 13).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    let write = |text: &str, group: f64, line: i32| {
        let at = (across(group), below + LINE * line);
        root.draw(&Text::new(text.to_owned(), at, style.clone())).map_err(drawing)
    };
    let mut lowest = 0;
    for (at, group) in groups.iter().enumerate() {
        let Some(last) = group.last() else { continue };
        let breakable = last.replace('+', " +");
        let lines = lines_of(breakable.trim(), (pixels / LETTER) as usize);
        for (line, text) in lines.iter().enumerate() {
            write(text, at as f64, line as i32)?;
        }
        lowest = lowest.max(lines.len() as i32);
    }
    let outer = |group: &Group| group[..group.len().saturating_sub(1)].join(" ");
    let mut first = 0;
    for same in groups.chunk_by(|one, other| outer(one) == outer(other)) {
        let middle = first as f64 + (same.len() - 1) as f64 / 2.0;
        write(&outer(&same[0]), middle, lowest)?;
        first += same.len();
    }
    Ok(())
}
