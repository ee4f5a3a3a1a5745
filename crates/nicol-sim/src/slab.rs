//! Numbered slots for what is under way; a slot is reused once it is empty.

/// Things with numbers that fit into an event.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Keeps `thing`; its number.
    #[inline]
    pub fn insert(&mut self, thing: T) -> u32 {
        if let Some(number) = self.vacant.pop() {
            self.slots[number as usize] = Some(thing);
            return number;
        }
        self.slots.push(Some(thing));
        (self.slots.len() - 1) as u32
    }

    /// Every thing, in the order of the numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// The thing with this number.
    ///
    /// # Panics
    /// If there is none: an event outlived what it was about.
    #[inline]
    pub fn get_mut(&mut self, number: u32) -> &mut T {
        let Some(thing) = self.slots[number as usize].as_mut() else {
            panic!("nothing has number {number}");
        };
        thing
    }

    /// Takes the thing with this number out.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn remove(&mut self, number: u32) -> T {
        let Some(thing) = self.slots[number as usize].take() else {
            panic!("nothing has number {number}");
        };
        self.vacant.push(number);
        thing
    }
}
