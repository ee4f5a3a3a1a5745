//! What commands draw at random: from a seed that travels with the command, so that each run of a
//! transaction draws the same.

use nicol_core::rng::{Purpose, Stream};

use crate::transactions::plan::Arg;
use crate::transactions::work::{Stop, Work};

use super::number::{NOT_AN_INTEGER, parse_i64};

/// The stream of the seed that `with_seed` added to a command.
pub fn stream(seed: &Arg<'_>) -> Result<Stream, Stop> {
    let seed = seed.bytes.try_into().map_err(|_| Stop::Malformed)?;
    Ok(Stream::new(u64::from_le_bytes(seed), Purpose::Workload, 0))
}

/// `count` of the places below `len`, each at most once, in random order.
pub fn distinct(random: &mut Stream, len: usize, count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    let count = count.min(len);
    for at in 0..count {
        let other = at + random.below((len - at) as u64) as usize;
        places.swap(at, other);
    }
    places.truncate(count);
    places
}

/// Bytes that an answer counts for each element drawn, at least.
const ELEMENT_BYTES: usize = 8;

/// Reads how many elements are to be drawn. One that can be `doubled` is counted with its value or
/// score.
pub fn count(text: &[u8], doubled: bool) -> Result<i64, Stop> {
    const RANGE: &[u8] =
        b"ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    let count = parse_i64(text).ok_or(NOT_AN_INTEGER)?;
    match count {
        i64::MIN => Err(Stop::Error(RANGE)),
        _ if doubled && count.unsigned_abs() > i64::MAX as u64 / 2 => {
            Err(Stop::Error(b"ERR value is out of range"))
        }
        count => Ok(count),
    }
}

/// The places below `len` that a count asks for: a negative one takes places again and again.
/// Errors: an answer that is too large for a transaction.
pub fn places(
    random: &mut Stream,
    len: usize,
    count: i64,
    work: &Work<'_>,
) -> Result<Vec<usize>, Stop> {
    let wanted = usize::try_from(count.unsigned_abs()).map_err(|_| Stop::Overflow)?;
    if len == 0 || wanted == 0 {
        return Ok(Vec::new());
    }
    if count > 0 {
        return Ok(distinct(random, len, wanted));
    }
    work.spend(wanted.checked_mul(ELEMENT_BYTES).ok_or(Stop::Overflow)?)?;
    Ok((0..wanted).map(|_| random.below(len as u64) as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinct_and_every_one_is_drawn() {
        let (mut random, mut seen) = (Stream::new(3, Purpose::Test, 0), [0; 7]);
        for _ in 0..1_000 {
            let mut places = distinct(&mut random, 7, 3);
            places.iter().for_each(|place| seen[*place] += 1);
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), 3);
        }
        assert!(seen.iter().all(|count| (330..530).contains(count)), "{seen:?}");
        assert_eq!(distinct(&mut random, 2, 9).len(), 2);
    }
}
