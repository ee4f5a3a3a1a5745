//! The views that an engine has had.

use std::cell::OnceCell;

use super::View;

/// The views that an engine has had, which stay borrowable, so that code which looks at one sees
/// the same one to the end.
///
/// Cost: finding the newest walks past the earlier ones. Without changes that is one comparison; a
/// view is some hundred bytes, and an engine sees few changes in its life.
#[derive(Debug)]
pub struct Views {
    view: View,
    next: OnceCell<Box<Self>>,
}

impl Views {
    /// Begins with `view`.
    pub const fn new(view: View) -> Self {
        Self { view, next: OnceCell::new() }
    }

    #[inline]
    pub fn current(&self) -> &View {
        &self.newest().view
    }

    /// Goes on to `view`; false if it is not newer than the newest.
    pub fn install(&self, view: View) -> bool {
        let newest = self.newest();
        view.epoch() > newest.view.epoch() && newest.next.set(Box::new(Self::new(view))).is_ok()
    }

    #[inline]
    fn newest(&self) -> &Self {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        at
    }
}

impl Drop for Views {
    fn drop(&mut self) {
        // One after the other: nested drops of a long chain would need a deep stack.
        let mut next = self.next.take();
        while let Some(mut views) = next {
            next = views.next.take();
        }
    }
}
