//! The members of a sorted set with their scores, as they stand in a value.
//!
//! A value is packed: each member and then the 8 bytes of its score, in the order of the set.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::commands::packed;
use crate::transactions::work::Stop;

/// A member behind its score.
pub type Member<'a> = (f64, &'a [u8]);

/// Members that are looked up in one command before an index of all is made.
const INDEXED: usize = 8;

/// The order of a sorted set.
pub fn order(one: &Member<'_>, other: &Member<'_>) -> Ordering {
    one.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal).then(one.1.cmp(other.1))
}

/// The members of `value`, in order; none if it is empty.
pub fn parse(value: &[u8]) -> Result<Vec<Member<'_>>, Stop> {
    let elements = packed::elements(value)?;
    let (rows, rest) = elements.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Stop::Malformed);
    }
    let mut members = Vec::with_capacity(rows.len());
    for [member, score] in rows {
        let score = (*score).try_into().map_err(|_| Stop::Malformed)?;
        members.push((f64::from_le_bytes(score), *member));
    }
    Ok(members)
}

/// The value of these members, which are in order; empty if there are none.
pub fn pack(members: &[Member<'_>]) -> Vec<u8> {
    // No zero is kept as a negative one: it would be printed so.
    let scores: Vec<_> = members.iter().map(|(score, _)| (score + 0.0).to_le_bytes()).collect();
    let rows = members.iter().zip(&scores).map(|((_, member), score)| [*member, &score[..]]);
    let rows: Vec<_> = rows.collect();
    packed::pack(rows.as_flattened())
}

/// Members whose scores change.
#[derive(Debug)]
pub struct Scored<'a> {
    /// A score of none: it was removed.
    members: Vec<(Option<f64>, &'a [u8])>,
    /// Where each member stands, if many are looked up.
    index: Option<BTreeMap<&'a [u8], usize>>,
}

impl<'a> Scored<'a> {
    /// These members, of which so many will be looked up.
    pub fn new(members: Vec<Member<'a>>, lookups: usize) -> Self {
        let place = |(place, (_, member)): (usize, &Member<'a>)| (*member, place);
        let index = (lookups >= INDEXED).then(|| members.iter().enumerate().map(place).collect());
        let members = members.into_iter().map(|(score, member)| (Some(score), member)).collect();
        Self { members, index }
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => self.members.iter().position(|(_, member)| *member == name),
        }
    }

    /// The score of a member.
    pub fn score(&self, name: &[u8]) -> Option<f64> {
        self.members[self.place(name)?].0
    }

    /// Adds a member, or gives it another score.
    pub fn set(&mut self, name: &'a [u8], score: f64) {
        match self.place(name) {
            Some(place) => self.members[place].0 = Some(score),
            None => {
                if let Some(index) = &mut self.index {
                    index.insert(name, self.members.len());
                }
                self.members.push((Some(score), name));
            }
        }
    }

    /// Removes a member; whether there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let place = self.place(name);
        place.is_some_and(|place| self.members[place].0.take().is_some())
    }

    /// The members in order.
    pub fn finish(self) -> Vec<Member<'a>> {
        let present = |(score, member): (Option<f64>, &'a [u8])| Some((score?, member));
        let mut members: Vec<_> = self.members.into_iter().filter_map(present).collect();
        members.sort_by(order);
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_kept_in_order_with_and_without_an_index() {
        let start = [(1.0, &b"b"[..]), (2.0, b"a"), (2.0, b"c")];
        assert_eq!(parse(&pack(&start)), Ok(start.to_vec()));
        for lookups in [0, INDEXED] {
            let mut set = Scored::new(start.to_vec(), lookups);
            set.set(b"b", 3.0);
            set.set(b"d", f64::NEG_INFINITY);
            assert!(set.remove(b"a") && !set.remove(b"a") && set.score(b"a").is_none());
            set.set(b"a", -0.0);
            let end = set.finish();
            let names: Vec<_> = end.iter().map(|(_, member)| *member).collect();
            assert_eq!(names, [b"d", b"a", b"c", b"b"]);
        }
        assert_eq!(parse(&packed::pack(&[&b"a"[..], b"short"])), Err(Stop::Malformed));
    }
}
