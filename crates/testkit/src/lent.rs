//! An Envoy that serves several tests, one after the other. Envoy compiles the module when it
//! starts, which takes longer than most tests.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::thread;

/// Something that no test has at the moment.
pub type Idle<T> = Mutex<Vec<T>>;

/// Something that one test has at a time. The next test gets it, unless this one fails: nobody
/// knows the state of Envoy after a failure.
pub struct Lent<T: 'static> {
    /// `None` only while the value is dropped.
    value: Option<T>,
    idle: &'static Idle<T>,
}

impl<T> Lent<T> {
    /// Lends an idle value after `renew`, or a new one of `start`.
    pub(crate) fn new(
        idle: &'static Idle<T>,
        start: impl FnOnce() -> T,
        renew: impl FnOnce(&mut T),
    ) -> Self {
        let found = idle.lock().unwrap().pop();
        let value = match found {
            Some(mut value) => {
                renew(&mut value);
                value
            }
            None => start(),
        };
        Self { value: Some(value), idle }
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().unwrap()
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().unwrap()
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.idle.lock().unwrap().extend(self.value.take());
        }
    }
}
