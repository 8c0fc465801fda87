//! Atomics, cells and shared pointers of the lock-free parts.
//!
//! **Why.** Loom explores every interleaving of a small model, but only of operations that go through its own types. So
//! the lock-free parts take theirs from `super::sync`: this file in the product, loom's in `tests/loom.rs`, which includes
//! the same sources beside another `sync`. **Invariants**: every `Ordering` used with these names its partner.
//! **Not here**: locks; the hot path has none.

pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicUsize},
};

/// For figures and flags that order nothing else; models leave them out.
pub(crate) use std::sync::atomic::AtomicU64;
pub(crate) use std::sync::atomic::Ordering;

/// `core`'s cell with loom's face.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Wraps a value.
    pub(crate) const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }
    /// Lends the pointer to `f`, who answers for there being no other user meanwhile.
    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
