//! The features of a request one by one: what a decision goes over, in place of bits whose number
//! in each word no processor foresees.

/// In an entry of a list: the feature is written.
pub(super) const WRITES: u16 = 1 << 15;

/// Features of a request one by one, as long as they are few.
#[derive(Clone, Copy, Debug)]
pub struct FeatureList {
    entries: [u16; Self::MOST],
    /// [`FeatureList::MANY`] if there are more than entries.
    count: u8,
}

impl Default for FeatureList {
    fn default() -> Self {
        Self { entries: [0; Self::MOST], count: 0 }
    }
}

impl FeatureList {
    /// Features at most: those of most transactions, in a cache line.
    pub(super) const MOST: usize = 31;
    const MANY: u8 = u8::MAX;

    /// Adds a feature that it does not have.
    pub fn push(&mut self, feature: usize, write: bool) {
        let entry = feature as u16 | if write { WRITES } else { 0 };
        match self.entries.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = entry;
                self.count += 1;
            }
            None => self.count = Self::MANY,
        }
    }

    /// Notes that a feature of it is written.
    pub fn write(&mut self, feature: usize) {
        let count = usize::from(self.count).min(Self::MOST);
        let mut entries = self.entries[..count].iter_mut();
        let found = entries.find(|entry| usize::from(**entry & !WRITES) == feature);
        found.into_iter().for_each(|entry| *entry |= WRITES);
    }

    /// The list, unless there are too many features.
    pub const fn get(&self) -> Option<&Self> {
        if self.count == Self::MANY { None } else { Some(self) }
    }

    /// Each feature, with [`WRITES`] if it is written.
    pub(super) fn entries(&self) -> &[u16] {
        &self.entries[..usize::from(self.count).min(Self::MOST)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_what_was_added_until_there_are_too_many() {
        let mut list = FeatureList::default();
        (0..31).for_each(|feature| list.push(500 - feature, feature == 3));
        list.write(480);
        list.write(7);
        let entries = list.get().unwrap().entries().to_vec();
        assert_eq!((entries[0], entries[3], entries[20]), (500, 497 | WRITES, 480 | WRITES));
        assert_eq!(
            (entries.len(), entries.iter().filter(|it| **it & WRITES != 0).count()),
            (31, 2)
        );
        list.push(9, true);
        assert!(list.get().is_none());
        list.push(10, true);
        list.write(500);
        assert!(list.get().is_none());
    }
}
