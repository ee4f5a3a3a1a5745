//! What a script or function says of itself.

/// Flags of a script or function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// Their names, each with a bit. Of these `no-writes` and `allow-oom` have an effect: every
    /// node serves, and keys of any slot may be touched.
    const NAMES: [&str; 5] =
        ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];
    /// Set if there was a line that says the others.
    const DECLARED: u8 = 1 << 7;

    /// None, said by a line.
    pub fn declared() -> Self {
        Self(Self::DECLARED)
    }

    /// Those in one byte.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    /// Adds one by its name; `false`: there is none of this name.
    pub fn add(&mut self, name: &[u8]) -> bool {
        let place = Self::NAMES.iter().position(|known| known.as_bytes() == name);
        self.0 |= place.map_or(0, |place| 1 << place);
        place.is_some()
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let has = move |(place, _): &(usize, &&str)| self.0 & 1 << place != 0;
        Self::NAMES.iter().enumerate().filter(has).map(|(_, name)| *name)
    }

    /// Whether it says that it writes nothing.
    pub fn only_reads(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether its commands may grow while more memory is in use than CONFIG SET allows.
    pub fn may_grow(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether it is refused where nothing may grow: what says nothing of itself is tried.
    pub fn says_it_grows(self) -> bool {
        self.says_it_writes() && !self.may_grow()
    }

    /// Whether a command that only reads refuses it: what says nothing of itself is tried.
    pub fn says_it_writes(self) -> bool {
        self.0 & Self::DECLARED != 0 && !self.only_reads()
    }
}
