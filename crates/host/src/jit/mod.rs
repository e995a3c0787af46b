//! Loops compiled while a program is planned: everything that a run of steps does to the elements of some rows, in one pass over them, what lies between in
//! registers. Only on CPUs with AVX2 or AVX-512, and where the system lets memory be executed; elsewhere the steps are done one after the other.

mod body;
#[cfg(target_arch = "x86_64")]
mod emit;
#[cfg(target_arch = "x86_64")]
mod instructions;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod registers;

pub(crate) use body::{Body, Element, Place, Two, Value};

/// What divides the address of a row that is written past the caches.
pub(crate) const ALIGNMENT: usize = 64;

/// Rows that a loop may have.
pub(crate) const MOST_ROWS: usize = 10;

/// A compiled loop.
#[derive(Debug)]
pub(crate) struct Compiled {
    #[cfg(target_arch = "x86_64")]
    usual: memory::Executable,
    /// The same with stores past the caches, where there are instructions for them.
    #[cfg(target_arch = "x86_64")]
    past_caches: Option<memory::Executable>,
    rows: usize,
}

#[cfg(target_arch = "x86_64")]
impl Compiled {
    /// None where there is no such instruction, or where it takes more registers than there are.
    pub fn new(body: &Body) -> Option<Compiled> {
        use emit::{Stores, emit};
        let usual = memory::Executable::new(&emit(body, Stores::Usual)?)?;
        let past_caches = emit(body, Stores::PastCaches).filter(|_| body.writes_memory());
        let past_caches = past_caches.and_then(|code| memory::Executable::new(&code));
        Some(Compiled { usual, past_caches, rows: body.row_count() })
    }

    /// Runs the loop over so many elements of each row, and writes the totals to their slots; with `past_caches` rows in memory are written so, where that is
    /// possible at all.
    ///
    /// # Safety
    /// The CPU has the instructions of the body's level. So many elements of each row are valid, for writing where the body stores, and every slot that it
    /// names is there. A row that is written has no part in common with another one, or begins where that begins and has elements of the same size. Rows
    /// that are written past the caches begin at addresses that [`ALIGNMENT`] divides.
    #[inline(always)]
    pub unsafe fn run(&self, rows: &[*mut u8], slots: *mut u64, count: usize, past_caches: bool) {
        type Loop = unsafe extern "sysv64" fn(arguments: *const *const u8, count: usize);
        debug_assert_eq!(rows.len(), self.rows, "rows of a compiled loop");
        let mut arguments = [std::ptr::null::<u8>(); MOST_ROWS + 1];
        for (argument, &row) in arguments.iter_mut().zip(rows) {
            *argument = row;
        }
        arguments[self.rows] = slots.cast();
        let code = self.past_caches.as_ref().filter(|_| past_caches).unwrap_or(&self.usual);
        // SAFETY: the memory holds a function of this type, which changes no registers but those that it may; the rest is the caller's promise.
        unsafe {
            let run = std::mem::transmute::<*const u8, Loop>(code.address());
            run(arguments.as_ptr(), count);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Compiled {
    /// There is none.
    pub fn new(_: &Body) -> Option<Compiled> {
        None
    }

    /// Is not called.
    ///
    /// # Safety
    /// None is needed.
    pub unsafe fn run(&self, _: &[*mut u8], _: *mut u64, _: usize, _: bool) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
