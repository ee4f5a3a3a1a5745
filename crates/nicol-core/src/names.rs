//! What a misspelt name was probably meant to be.

/// Differences that a name may have and still be a slip, per so many characters.
const SLIP_EVERY: usize = 3;

/// A question to put behind a `name` that is none of the `known` ones: " (did you mean 'x'?)", or
/// nothing if no known name is like it. Slow: for error messages.
pub fn did_you_mean<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    nearest(name, known).map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"))
}

/// The known name with the fewest differences to `name`, if these are few. A part of a known name
/// that fits only one of them stands for it.
fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let known: Vec<_> = known.into_iter().collect();
    let most = (name.chars().count() / SLIP_EVERY).max(1);
    let near = known.iter().map(|near| (differences(name, near), *near)).min();
    if let Some((found, near)) = near
        && found <= most
        && !name.is_empty()
    {
        return Some(near);
    }
    let mut holding = known.iter().filter(|near| name.len() > 2 && near.contains(name));
    match (holding.next(), holding.next()) {
        (Some(near), None) => Some(near),
        _ => None,
    }
}

/// Characters to add, take away, replace, or swap with the next one, that make `one` of `other`:
/// the distance of optimal string alignment.
fn differences(one: &str, other: &str) -> usize {
    let one: Vec<_> = one.chars().collect();
    let other: Vec<_> = other.chars().collect();
    let width = other.len() + 1;
    let mut table = vec![0; (one.len() + 1) * width];
    for row in 0..=one.len() {
        for column in 0..width {
            let at = |row: usize, column: usize| table[row * width + column];
            let least = match (row, column) {
                (0, taken) | (taken, 0) => taken,
                _ => {
                    let same = one[row - 1] == other[column - 1];
                    let replaced = at(row - 1, column - 1) + usize::from(!same);
                    let changed = at(row - 1, column).min(at(row, column - 1)) + 1;
                    let swapped = row > 1
                        && column > 1
                        && one[row - 1] == other[column - 2]
                        && one[row - 2] == other[column - 1];
                    let least = replaced.min(changed);
                    if swapped { least.min(at(row - 2, column - 2) + 1) } else { least }
                }
            };
            table[row * width + column] = least;
        }
    }
    table[table.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("xenci", "xenic", 1),
            ("über", "uber", 1),
        ];
        for (one, other, expected) in cases {
            assert_eq!(differences(one, other), expected, "{one} {other}");
            assert_eq!(differences(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn slips_and_parts_are_asked_about_and_nothing_else() {
        let known = ["xenic", "farm", "drtm-r", "drtm-r-original", "aggregation"];
        let near = |name| nearest(name, known);
        assert_eq!(near("xenik"), Some("xenic"));
        assert_eq!(near("fram"), Some("farm"));
        assert_eq!(near("agregation"), Some("aggregation"));
        assert_eq!(near("original"), Some("drtm-r-original"));
        assert_eq!(near("drt"), None, "of two that fit, neither is meant more");
        assert_eq!(near("redis"), None);
        assert_eq!(near(""), None);
        assert_eq!(did_you_mean("xeinc", known), " (did you mean 'xenic'?)");
        assert_eq!(did_you_mean("redis", known), "");
    }
}
