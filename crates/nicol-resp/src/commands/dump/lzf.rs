//! LZF, by which Redis shortens strings: runs of literals, and references to what came before.

/// Takes `bytes` apart into `len` bytes. `None`: they are not in the format, or are not as many.
pub fn expand(bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    let (mut rest, mut out) = (bytes, Vec::with_capacity(len.min(bytes.len() * 64)));
    while let [control, behind @ ..] = rest {
        rest = behind;
        let (high, low) = (usize::from(control >> 5), usize::from(control & 31));
        if high == 0 {
            let (literals, behind) = rest.split_at_checked(low + 1)?;
            out.extend_from_slice(literals);
            rest = behind;
        } else {
            let mut count = high + 2;
            if high == 7 {
                let (more, behind) = rest.split_first()?;
                (count, rest) = (count + usize::from(*more), behind);
            }
            let (distance, behind) = rest.split_first()?;
            rest = behind;
            let from = out.len().checked_sub((low << 8 | usize::from(*distance)) + 1)?;
            // It may reach into what it writes itself.
            (from..from + count).for_each(|at| out.push(out[at]));
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_may_overlap_what_they_write() {
        // Two literals, then nine bytes from two back.
        let bytes = [1, b'a', b'b', 7 << 5, 0, 1];
        assert_eq!(expand(&bytes, 11), Some(b"abababababa".to_vec()));
        assert_eq!(expand(&bytes, 10), None);
        assert_eq!(expand(&bytes, 12), None);
        assert_eq!(expand(&[1 << 5, 0], 3), None, "nothing came before");
        for cut in 1..bytes.len() {
            assert_eq!(expand(&bytes[..cut], 11), None);
        }
    }
}
