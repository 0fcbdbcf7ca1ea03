//! Values that a handler keeps from its request pass to its response pass.

use std::any::Any;
use std::marker::PhantomData;

use super::Context;

/// The id of an exchange-local value of type `T`, allotted at build
/// ([`Build::allocate_local`](crate::Build::allocate_local)).
pub struct LocalId<T> {
    index: u32,
    kind: PhantomData<fn() -> T>,
}

impl<T> LocalId<T> {
    pub(crate) fn new(index: u32) -> Self {
        Self { index, kind: PhantomData }
    }
}

impl<T> Clone for LocalId<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for LocalId<T> {}

/// The values of one exchange, in the order in which they were set.
#[derive(Default)]
pub(super) struct Locals(Vec<(u32, Box<dyn Any>)>);

impl Locals {
    pub(super) fn reset(&mut self) {
        let Self(values) = self;
        values.clear();
    }
}

impl Context {
    /// Keeps a value until [`take_local`](Self::take_local), or the end of the exchange. Allocates, so it is for
    /// requests that do other work than usual. A handler that is entered twice has two values.
    pub fn set_local<T: 'static>(&mut self, id: LocalId<T>, value: T) {
        self.0.locals.0.push((id.index, Box::new(value)));
    }

    /// Takes the value that was set last; `None` if there is none.
    pub fn take_local<T: 'static>(&mut self, id: LocalId<T>) -> Option<T> {
        let values = &mut self.0.locals.0;
        let at = values.iter().rposition(|(index, _)| *index == id.index)?;
        values.remove(at).1.downcast().ok().map(|value| *value)
    }
}
