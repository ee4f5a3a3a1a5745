//! What component checks notice: each number of a profile is moved by 30 %, and some line fails;
//! each line fails by some move. What no line notices is listed in `profiles/unheld.txt`.
//!
//! Of the profiles whose checks take milliseconds. Those of the others take up to seconds, a
//! hundred times over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nicol_sim::checks::{self, CheckLine};
use nicol_sim::profile::{Measured, Stated};
use nicol_sim::{Profile, ProfileError};

/// Profiles whose checks take milliseconds.
const QUICK: [&str; 8] = [
    "bluefield1",
    "bluefield1-25g",
    "connectx5-25g",
    "connectx5-40g",
    "innova2",
    "minos-b-cluster",
    "minos-snic",
    "stingray",
];

const UNHELD: &str = include_str!("../../../../profiles/unheld.txt");

/// Lines that no move of one number makes fail, and why.
const WHOLE: [(&str, &str); 5] = [
    ("C3.01", "a time of many parts, of which none is a third of it"),
    ("C3.02", "the same of an RPC, and that a READ is faster, which it is by more than that"),
    ("C3.07", "the network's latency is the check's own"),
    ("C3.09", "a limit of the code, and no number of a profile"),
    ("C3.10", "a limit of the code, and no number of a profile"),
];

/// Thousandths of a value that it becomes.
const MOVES: [u64; 2] = [700, 1_300];

/// The value moved, as a profile has it; none of what is no number, or nothing. A count moves by
/// one at least.
fn moved(stated: &Stated, permille: u64) -> Option<String> {
    let part = |value: u64| value * permille / 1_000;
    Some(match stated.value {
        Measured::Flag(_) => return None,
        Measured::Count(count) if part(count) == count => (count + 1).to_string(),
        Measured::Count(count) => part(count).to_string(),
        Measured::Time(time) => format!("{}ps", part(time.0)),
        Measured::Size(size) => format!("{}B", part(size.0)),
        Measured::Rate(rate) => {
            let bits = part(rate.0);
            format!("{}.{:09}Gbps", bits / 1_000_000_000, bits % 1_000_000_000)
        }
    })
    .filter(|_| !matches!(stated.value, Measured::Time(picos) if picos.0 == 0))
}

/// A line: its id, and what it measures.
type Line<'l> = (&'l str, &'l str);

/// Whether each line holds by itself.
fn held(lines: &[CheckLine]) -> BTreeMap<Line<'_>, bool> {
    lines.iter().map(|line| ((&*line.line, &*line.what), line.is_close())).collect()
}

/// What a profile's checks notice.
struct Noticed {
    /// Numbers that may be moved either way without any line failing.
    unheld: BTreeSet<String>,
    /// Lines that hold, and that no move makes fail.
    never: BTreeSet<String>,
}

/// The lines that hold in `before` and not with `key` of profile `name` as `written`; all of them
/// if the checks do not run at all. `None` if the profile is refused, since the value is bound to
/// others.
fn missed<'l>(
    name: &str,
    (key, written): (&str, &str),
    before: &BTreeMap<Line<'l>, bool>,
) -> Option<BTreeSet<Line<'l>>> {
    let changed = match Profile::load(&format!("{name}:{key}={written}")) {
        Ok(changed) => changed,
        Err(ProfileError::Invalid { .. }) => return None,
        Err(error) => panic!("{name}: {key}={written}: {error}"),
    };
    let lines = checks::run(&Arc::new(changed)).unwrap_or_default();
    let after = held(&lines);
    let held = before.iter().filter(|(_, is_close)| **is_close).map(|(line, _)| *line);
    Some(held.filter(|line| after.get(line) != Some(&true)).collect())
}

/// Moves each number down, and up where nothing has failed; up as well where lines are left that
/// have not failed.
fn notice(name: &str) -> Noticed {
    let profile = Profile::load(name).unwrap();
    let lines = checks::run(&Arc::new(profile.clone())).unwrap();
    let before = held(&lines);
    let mut never: BTreeSet<_> =
        before.iter().filter(|(_, is_close)| **is_close).map(|(line, _)| *line).collect();
    let mut unheld = BTreeSet::new();
    let mut later = Vec::new();
    for stated in profile.stated() {
        let [down, up] = MOVES.map(|permille| moved(stated, permille));
        let by = |to: &Option<String>| missed(name, (&stated.key, to.as_deref()?), &before);
        match (by(&down), up) {
            (Some(missed), up) if !missed.is_empty() => {
                never.retain(|line| !missed.contains(line));
                later.extend(up.map(|up| (&stated.key, up)));
            }
            (down, up) => {
                let up = by(&up);
                let may_move = down.is_some() || up.is_some();
                let missed = up.unwrap_or_default();
                if may_move && missed.is_empty() {
                    unheld.insert(stated.key.clone());
                }
                never.retain(|line| !missed.contains(line));
            }
        }
    }
    for (key, written) in later {
        if never.is_empty() {
            break;
        }
        let missed = missed(name, (key, &written), &before).unwrap_or_default();
        never.retain(|line| !missed.contains(line));
    }
    let never = never.into_iter().map(|(line, what)| format!("{line} {what}")).collect();
    Noticed { unheld, never }
}

/// The numbers that no line of a profile holds, as they are listed.
fn listed() -> BTreeMap<&'static str, BTreeSet<String>> {
    let lines = UNHELD.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let of = |line: &'static str| {
        let (name, keys) = line.split_once(": ").expect("a profile, and keys");
        (name, keys.split(' ').map(str::to_owned).collect())
    };
    lines.map(of).collect()
}

#[test]
fn each_number_moved_makes_a_line_fail_or_is_listed() {
    let (mut wrong, listed) = (Vec::new(), listed());
    for name in QUICK {
        let Noticed { unheld, mut never } = notice(name);
        never.retain(|line| !WHOLE.iter().any(|(id, _)| line.starts_with(id)));
        if !never.is_empty() {
            wrong.push(format!("{name}: lines that no move makes fail: {never:#?}"));
        }
        if listed.get(name) != Some(&unheld) {
            let keys = unheld.into_iter().collect::<Vec<_>>().join(" ");
            wrong.push(format!("profiles/unheld.txt should have\n{name}: {keys}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
