//! A world that takes long to start, which tests that are under way use one after the other.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The world of the tests that are under way; it ends with the last of them.
pub struct Shared<W>(Mutex<Weak<Mutex<Option<W>>>>);

impl<W> Shared<W> {
    /// Makes a place for the world.
    #[expect(clippy::new_without_default, reason = "the default is not constant")]
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// Lets `test` have the world for itself. `start`: makes it if there is none. A test that fails
    /// leaves none.
    pub fn with(&self, start: impl FnOnce() -> W, test: impl FnOnce(&mut W)) {
        let shared = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.upgrade().unwrap_or_else(|| {
                let new = Arc::default();
                *known = Arc::downgrade(&new);
                new
            })
        };
        let mut place = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut world = place.take().unwrap_or_else(start);
        test(&mut world);
        *place = Some(world);
    }
}
