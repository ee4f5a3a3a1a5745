//! Patterns as Redis writes them.

/// Whether `text` matches `pattern`: `*` stands for anything, `?` for one byte, `[a-c]` for one of
/// these, `[^a-c]` for one of the others, and a backslash takes the next byte as it is.
///
/// Cost: proportional to the product of the lengths, since only the last star is ever tried again.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut rest, mut at, mut star) = (pattern, 0, None);
    loop {
        if let Some((b'*', behind)) = rest.split_first() {
            star = Some((behind, at));
            rest = behind;
            continue;
        }
        let Some(&byte) = text.get(at) else { return rest.is_empty() };
        if let Some(behind) = one(rest, byte) {
            (rest, at) = (behind, at + 1);
            continue;
        }
        let Some((behind, from)) = star else { return false };
        star = Some((behind, from + 1));
        (rest, at) = (behind, from + 1);
    }
}

/// What of `pattern`, which begins with no star, stands behind that which takes `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => {
            let (taken, rest) = set(rest, byte);
            taken.then_some(rest)
        }
        [b'\\', wanted, rest @ ..] | [wanted, rest @ ..] => (*wanted == byte).then_some(rest),
        [] => None,
    }
}

/// Whether the set behind a bracket takes `byte`, and what stands behind the set. One that is not
/// closed ends with the pattern.
fn set(mut rest: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = rest.first() == Some(&b'^');
    rest = if negated { &rest[1..] } else { rest };
    let mut taken = false;
    loop {
        let (from, to);
        (from, to, rest) = match *rest {
            [] => return (taken != negated, rest),
            [b']', ref behind @ ..] => return (taken != negated, behind),
            [b'\\', one, ref behind @ ..] => (one, one, behind),
            [from, b'-', to, ref behind @ ..] => (from.min(to), from.max(to), behind),
            [one, ref behind @ ..] => (one, one, behind),
        };
        taken |= (from..=to).contains(&byte);
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        let yes = [
            ("*", ""),
            ("*", "save"),
            ("save", "save"),
            ("s?ve", "save"),
            ("*m*y", "maxmemory"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("a\\*c", "a*c"),
            ("[\\]]", "]"),
            ("[abc", "b"),
            ("\\", "\\"),
            ("**a*", "ba"),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let no = [
            ("", "save"),
            ("sav", "save"),
            ("save?", "save"),
            ("*x", "save"),
            ("h[^e]llo", "hello"),
            ("h[ae]llo", "hillo"),
            ("a\\*c", "abc"),
            ("[]", "a"),
            ("?", ""),
        ];
        for (pattern, text) in no {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        let stars = "*a".repeat(200);
        assert!(!matches(stars.as_bytes(), &[b'a'; 150]), "in polynomial time");
    }
}
