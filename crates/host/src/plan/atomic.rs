//! Atomic operations take turns by the memory that they change: there is a lock for each stretch of it. So neighbours are changed by vector
//! instructions under one lock, which takes as long as a single exchange of the processor's own.
//!
//! All atomic operations of kernels go through here, which makes them atomic to each other; a plain store beside them is not, here as on a GPU.

use crate::vector::binary::{BinaryFunction, binary};
use crate::vector::cast::cast;
use crate::vector::memory::copy_strided;
use crate::vector::unary::UnaryFunction;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Binary, Cast, Scalar};
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Bytes that share a lock.
const STRETCH: usize = 4096;
/// Stretches that lie so many apart share theirs.
const LOCKS: usize = 256;
/// After so many looks at a lock somebody else may need the CPU to give it back.
const PATIENCE: u32 = 256;

/// A lock, in a line of its own.
#[repr(align(64))]
struct Lock(AtomicBool);

static TABLE: [Lock; LOCKS] = [const { Lock(AtomicBool::new(false)) }; LOCKS];

/// The right to change one stretch of memory, until it is dropped or another one is asked for.
#[derive(Default)]
pub(super) struct Turn(Option<&'static Lock>);

impl Turn {
    /// Waits for the stretch of an address, unless this is its turn already.
    #[inline(always)]
    pub fn take(&mut self, address: *const u8) {
        let lock = &TABLE[number(address)];
        if self.0.is_none_or(|held| !std::ptr::eq(held, lock)) {
            self.end();
            lock.wait();
            self.0 = Some(lock);
        }
    }

    #[inline(always)]
    fn end(&mut self) {
        if let Some(held) = self.0.take() {
            held.0.store(false, Ordering::Release);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.end();
    }
}

/// Which lock is that of an address.
#[inline(always)]
fn number(address: *const u8) -> usize {
    address as usize / STRETCH % LOCKS
}

impl Lock {
    #[inline(always)]
    fn wait(&self) {
        while self.0.swap(true, Ordering::Acquire) {
            self.look();
        }
        // What this thread has stored is seen by whoever sees what it changes now, as by a release.
        fence(Ordering::AcqRel);
    }

    #[cold]
    fn look(&self) {
        for looks in 0_u32.. {
            if !self.0.load(Ordering::Relaxed) {
                return;
            }
            if looks < PATIENCE { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }
}

/// What an atomic operation does with neighbours in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    kind: Kind,
    /// Bytes of an element.
    size: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Nothing,
    Exchange,
    Combine(BinaryFunction, Option<Singles>),
    /// In float32, to which half types are widened: a sum that is rounded once more is that of the half type.
    Widened {
        widen: UnaryFunction,
        combine: BinaryFunction,
        narrow: UnaryFunction,
    },
}

impl Change {
    /// None where the type does not have the operation.
    pub fn new(atomic: Atomic, scalar: Scalar) -> Option<Change> {
        let kind = match (atomic, atomic.operation()) {
            (Atomic::Read, _) => Kind::Nothing,
            (_, None) => Kind::Exchange,
            (_, Some(operation)) if matches!(scalar, Scalar::F16 | Scalar::BF16) => Kind::Widened {
                widen: cast(Cast::Float, scalar, Scalar::F32)?,
                combine: binary(operation, Scalar::F32)?,
                narrow: cast(Cast::Float, Scalar::F32, scalar)?,
            },
            (_, Some(operation)) => Kind::Combine(binary(operation, scalar)?, singles(operation, scalar)),
        };
        Some(Change { kind, size: scalar.size() })
    }

    /// Changes `count` neighbours by what is given, stretch by stretch; what was there goes to `old`.
    ///
    /// # Safety
    /// So many elements are valid in memory, in a row of what is given and, if it is there, at `old`; nobody else reads or writes the last two.
    pub unsafe fn run(
        &self,
        turn: &mut Turn,
        place: *mut u8,
        given: (*const u8, Given),
        old: Option<*mut u8>,
        count: usize,
    ) {
        let (mut done, size) = (0, self.size);
        while done < count {
            let at = place.wrapping_add(done * size);
            let count = ((STRETCH - at as usize % STRETCH) / size).clamp(1, count - done);
            turn.take(at);
            // SAFETY: the caller's promise; the turn is this thread's.
            unsafe {
                if let Some(old) = old {
                    std::ptr::copy_nonoverlapping(at, old.add(done * size), count * size);
                }
                let (given, by) = given;
                let from = if by == Given::One { given } else { given.add(done * size) };
                self.change(at, (from, by), count);
            }
            done += count;
        }
    }

    /// # Safety
    /// As for [`Change::run`], of one stretch, whose turn it is.
    #[inline(always)]
    unsafe fn change(&self, at: *mut u8, (given, by): (*const u8, Given), count: usize) {
        let (size, one) = (self.size, by == Given::One);
        // SAFETY: the caller's promise; no more than a piece is widened at once.
        unsafe {
            match self.kind {
                Kind::Nothing => {}
                Kind::Exchange => {
                    copy_strided(at, size as isize, given, if one { 0 } else { size as isize }, size, count);
                }
                Kind::Combine(function, _) => function(at, at, false, given, one, count),
                Kind::Widened { widen, combine, narrow } => {
                    let (mut sums, mut further) = ([0_f32; PIECE], [0_f32; PIECE]);
                    for done in (0..count).step_by(PIECE) {
                        let (at, count) = (at.add(done * size), PIECE.min(count - done));
                        let (sums, further) = (sums.as_mut_ptr().cast::<u8>(), further.as_mut_ptr().cast());
                        widen(sums, at, count);
                        widen(further, if one { given } else { given.add(done * size) }, if one { 1 } else { count });
                        combine(sums, sums, false, further, one, count);
                        narrow(at, sums, count);
                    }
                }
            }
        }
    }
}

/// Elements that are widened at once.
const PIECE: usize = 256;

/// What is given to neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    One,
    Each,
}

/// Neighbours in memory, and what is given for them: one element of it for each, or one for all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub place: *mut u8,
    pub given: *const u8,
    /// The number of the first in its tile.
    pub element: u32,
    pub count: u32,
}

/// Changes single elements one after the other.
type Singles = unsafe fn(runs: &[Run]);

macro_rules! singles {
    ($($operation:ident { $($ty:ident: $scalar:ident)+, |$x:ident, $y:ident| $f:expr; })+) => {
        fn singles(operation: Binary, scalar: Scalar) -> Option<Singles> {
            match (operation, scalar) {
                // SAFETY: the caller's promise.
                $($((Binary::$operation, Scalar::$scalar) => Some(|runs| unsafe { each::<$ty>(runs, |$x, $y| $f) }),)+)+
                _ => None,
            }
        }
    };
}
singles! {
    Add { f32: F32 f64: F64, |x, y| x + y; }
    Add { i32: I32 i64: I64, |x, y| x.wrapping_add(y); }
    Minimum { i32: I32 i64: I64, |x, y| x.min(y); }
    Maximum { i32: I32 i64: I64, |x, y| x.max(y); }
    MinimumUnsigned { u32: I32 u64: I64, |x, y| x.min(y); }
    MaximumUnsigned { u32: I32 u64: I64, |x, y| x.max(y); }
}

/// # Safety
/// Each run is one element, which is readable and writable, as what is given is readable.
unsafe fn each<T>(runs: &[Run], change: impl Fn(T, T) -> T) {
    for run in runs {
        // SAFETY: the caller's promise.
        unsafe {
            let (place, given) = (run.place.cast::<T>(), run.given.cast::<T>());
            place.write_unaligned(change(place.read_unaligned(), given.read_unaligned()));
        }
    }
}

/// The runs of a tile.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    in_order: Vec<Run>,
}

/// From so many runs on it is worth to order them, so that each lock is taken once: to take one waits for all stores before.
const MANY: usize = 64;

impl Runs {
    pub fn clear(&mut self) {
        self.runs.clear();
    }

    /// Adds an element of `size` bytes, to the run before where it goes on with it; the first of a row begins one.
    #[inline(always)]
    pub fn add(&mut self, place: *mut u8, given: *const u8, (element, is_first): (usize, bool), size: usize) {
        let element = element as u32;
        match self.runs.last_mut() {
            Some(last)
                if place == last.place.wrapping_add(last.count as usize * size)
                    && element == last.element + last.count
                    && !is_first =>
            {
                last.count += 1;
            }
            _ => self.runs.push(Run { place, given, element, count: 1 }),
        }
    }

    /// Changes all of them, those of one lock after those of the other; of one lock in the order of elements.
    ///
    /// # Safety
    /// As for [`Change::run`] of each; `old` has an element for each of the tile.
    pub unsafe fn change(&mut self, change: &Change, turn: &mut Turn, by: Given, old: Option<*mut u8>) {
        let singles = match change.kind {
            Kind::Combine(_, singles) if old.is_none() && self.runs.iter().all(|run| run.count == 1) => singles,
            _ => None,
        };
        for runs in self.by_lock().chunk_by(|x, y| number(x.place) == number(y.place)) {
            // SAFETY: the caller's promise; single elements are of one stretch each, whose turn it is.
            unsafe {
                if let Some(singles) = singles {
                    turn.take(runs[0].place);
                    singles(runs);
                    continue;
                }
                for run in runs {
                    let old = old.map(|old| old.add(run.element as usize * change.size));
                    change.run(turn, run.place, (run.given, by), old, run.count as usize);
                }
            }
        }
    }

    fn by_lock(&mut self) -> &[Run] {
        if self.runs.len() < MANY {
            return &self.runs;
        }
        let mut next = [0; LOCKS];
        self.runs.iter().for_each(|run| next[number(run.place)] += 1);
        let mut first = 0;
        for next in &mut next {
            first += std::mem::replace(next, first);
        }
        // All are overwritten: what they were before does not matter.
        let more = &self.runs[self.in_order.len().min(self.runs.len())..];
        self.in_order.extend_from_slice(more);
        for run in &self.runs {
            let next = &mut next[number(run.place)];
            self.in_order[*next] = *run;
            *next += 1;
        }
        &self.in_order[..self.runs.len()]
    }
}
