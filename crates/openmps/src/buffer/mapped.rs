//! A buffer's elements as slices, without a copy: while one is held, commands and other threads wait for it.

use super::lock::Guard;
use crate::data_type::Element;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Elements of a buffer, to read in place: [`Buffer::map`](super::Buffer::map). It belongs to its thread, for which a command that writes the
/// buffer meanwhile is an error; those of other threads wait.
///
/// ```
/// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[1i64, -1, 5])?;
/// let mapped = buffer.map::<i64>(1..)?;
/// assert_eq!(mapped.iter().sum::<i64>(), 4);
/// # Ok::<(), openmps::Error>(())
/// ```
pub struct Mapped<'a, T> {
    memory: Memory<'a, T>,
}

/// Elements of a buffer, to read and write in place: [`Buffer::map_mut`](super::Buffer::map_mut).
///
/// ```
/// let buffer = openmps::Buffer::from_slice(&openmps::Device::get(0)?, &[3.0f32, 1.0, 2.0])?;
/// buffer.map_mut::<f32>(..)?.sort_by(f32::total_cmp);
/// assert_eq!(buffer.read::<f32>(0, 3)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
pub struct MappedMut<'a, T> {
    memory: Memory<'a, T>,
}

struct Memory<'a, T> {
    _guard: Guard<'a>,
    first: *mut T,
    count: usize,
    /// The lock knows the thread that maps it.
    _not_send: PhantomData<*mut T>,
}

impl<'a, T: Element> Mapped<'a, T> {
    /// # Safety
    /// `count` elements at `address` lie in the memory that the guard keeps for readers, and begin where an element may.
    pub(super) unsafe fn new(guard: Guard<'a>, address: usize, count: usize) -> Mapped<'a, T> {
        Mapped { memory: Memory { _guard: guard, first: address as *mut T, count, _not_send: PhantomData } }
    }
}

impl<'a, T: Element> MappedMut<'a, T> {
    /// # Safety
    /// As [`Mapped::new`], for a guard that keeps the memory for one writer.
    pub(super) unsafe fn new(guard: Guard<'a>, address: usize, count: usize) -> MappedMut<'a, T> {
        MappedMut { memory: Memory { _guard: guard, first: address as *mut T, count, _not_send: PhantomData } }
    }
}

impl<T> Memory<'_, T> {
    fn as_slice(&self) -> &[T] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: what `new` was promised; the guard is held for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl<T: Element> Deref for Mapped<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory.as_slice()
    }
}

impl<T: Element> Deref for MappedMut<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory.as_slice()
    }
}

impl<T: Element> DerefMut for MappedMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        if self.memory.count == 0 {
            return &mut [];
        }
        // SAFETY: what `new` was promised: nobody else reads or writes while the guard is held, and `self` is borrowed for this slice alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.first, self.memory.count) }
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for Mapped<'_, T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.memory.as_slice().fmt(out)
    }
}

impl<T: Element + std::fmt::Debug> std::fmt::Debug for MappedMut<'_, T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.memory.as_slice().fmt(out)
    }
}
