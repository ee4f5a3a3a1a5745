//! A plan's recommended mix as a picture: the card's parts, and how full each is.

use std::fmt::Write as _;

use super::report::rate;
use super::{Plan, Resource};

/// A box of the picture: a name, where it is, and the resources that are in it.
struct Part(&'static str, u32, u32, &'static [Resource]);
/// A link of the picture: from one place to another, and its two directions.
struct Link(&'static str, [(u32, u32); 2], [Resource; 2]);

const WIDTH: u32 = 170;
/// Of a box with few resources; each line of one with more takes `LINE`.
const HEIGHT: u32 = 104;
const LINE: u32 = 15;

const PARTS: [Part; 5] = [
    Part("other machines", 20, 150, &[]),
    Part("NIC cores", 290, 150, &[Resource::Units, Resource::UnitsForHost, Resource::UnitsForSoc]),
    Part("switch", 560, 150, &[]),
    Part(
        "host",
        830,
        30,
        &[Resource::HostCores, Resource::HostMessages, Resource::HostReads, Resource::HostWrites],
    ),
    Part(
        "SoC",
        830,
        270,
        &[
            Resource::SocCores,
            Resource::SocReads,
            Resource::SocWrites,
            Resource::SocBanks,
            Resource::SocRequesters,
            Resource::DmaBoth,
            Resource::DmaToSoc,
            Resource::DmaToHost,
        ],
    ),
];

const LINKS: [Link; 4] = [
    Link("network", [(190, 202), (290, 202)], [Resource::LinkIn, Resource::LinkOut]),
    Link("PCIe1", [(460, 202), (560, 202)], [Resource::Pcie1FromNic, Resource::Pcie1ToNic]),
    Link("PCIe0", [(730, 182), (830, 100)], [Resource::Pcie0ToHost, Resource::Pcie0ToNic]),
    Link("internal", [(730, 222), (830, 310)], [Resource::SocMemory, Resource::DmaRequests]),
];

/// The recommended mix of `plan` as an SVG document.
pub fn picture(plan: &Plan) -> String {
    let mix = plan.recommended();
    let share = |resource: Resource| {
        mix.taken.iter().find(|(one, _)| *one == resource).map_or(0.0, |(_, share)| *share)
    };
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1020 440\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"1020\" height=\"440\" fill=\"white\"/>\n",
    );
    let title = format!("{}: {} M requests a second", plan.description.name, short(mix.total()));
    text(&mut svg, 20, 24, &title, 16);
    for Link(name, [from, to], [there, back]) in &LINKS {
        let most = share(*there).max(share(*back));
        let _ = writeln!(
            svg,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"{:.1}\"/>",
            from.0,
            from.1,
            to.0,
            to.1,
            colour(most),
            2.0 + 10.0 * most
        );
        let (x, y) = ((from.0 + to.0) / 2 - 44, (from.1 + to.1) / 2 - 14);
        text(
            &mut svg,
            x,
            y,
            &format!("{name} {:.0} | {:.0} %", share(*there) * 1e2, share(*back) * 1e2),
            12,
        );
    }
    for Part(name, x, y, resources) in &PARTS {
        let most = resources.iter().map(|one| share(*one)).fold(0.0, f64::max);
        let shown: Vec<_> = resources.iter().filter(|one| share(**one) > 0.0).collect();
        let height = HEIGHT.max(34 + LINE * shown.len() as u32);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"white\" \
             stroke=\"{}\" stroke-width=\"{:.1}\"/>",
            colour(most),
            1.5 + 4.0 * most
        );
        text(&mut svg, x + 10, y + 20, name, 14);
        for (line, resource) in shown.into_iter().enumerate() {
            let label = format!("{} {:.0} %", resource.name(), share(*resource) * 1e2);
            text(&mut svg, x + 10, y + 38 + LINE * line as u32, &label, 11);
        }
    }
    let mut y = 400;
    let parts = plan.candidates.iter().zip(&mix.mops).filter(|(_, mops)| **mops > 0.0);
    let parts: Vec<String> =
        parts.map(|(one, mops)| format!("{} {} M/s", one.name, short(*mops))).collect();
    text(&mut svg, 20, y, &parts.join("   "), 13);
    y += 20;
    let binds = mix.taken.first().map_or("", |(one, _)| one.name());
    text(&mut svg, 20, y, &format!("binds: {binds}"), 13);
    svg.push_str("</svg>\n");
    svg
}

/// A rate with one decimal, where that tells it.
fn short(mops: f64) -> String {
    if mops < 1.0 { rate(mops) } else { format!("{mops:.1}") }
}

fn text(svg: &mut String, x: u32, y: u32, text: &str, size: u32) {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\">{escaped}</text>");
}

/// From grey to red, by how full something is.
fn colour(share: f64) -> &'static str {
    match share {
        share if share >= 0.95 => "#d55e00",
        share if share >= 0.6 => "#e69f00",
        share if share > 0.0 => "#0072b2",
        _ => "#999999",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_is_in_one_place_of_the_picture() {
        let parts = PARTS.iter().flat_map(|Part(_, _, _, resources)| resources.iter());
        let links = LINKS.iter().flat_map(|Link(_, _, resources)| resources.iter());
        let mut drawn: Vec<Resource> = parts.chain(links).copied().collect();
        drawn.sort();
        assert_eq!(drawn, Resource::ALL);
    }
}
