//! The last step of kernels that sum in a buffer of their own: the epilogue, on the way to the output.

use crate::native::epilogue::Epilogue;
use crate::native::lanes::{Lanes, at_level};

/// Writes a row of sums to the output through the epilogue; `at` is the row's index in the whole output.
pub(crate) fn finish_row(from: &[f32], to: &mut [f32], epilogue: &Epilogue, channel: usize, at: usize) {
    if epilogue.is_identity() {
        to.copy_from_slice(&from[..to.len()]);
        return;
    }
    assert!(from.len() >= to.len() && epilogue.residual.is_none_or(|r| r.len() >= at + to.len()));
    // SAFETY: both rows and the residual are long enough.
    unsafe { at_level!(body(from: &[f32], to: &mut [f32], epilogue: &Epilogue, channel: usize, at: usize)) }
}

#[inline(always)]
unsafe fn body<V: Lanes>(from: &[f32], to: &mut [f32], epilogue: &Epilogue, channel: usize, at: usize) {
    let mut x = 0;
    while x + V::N <= to.len() {
        // SAFETY: the vector ends inside both rows.
        unsafe {
            let value = epilogue.apply(V::load(from.as_ptr().add(x)), channel, at + x);
            value.store(to.as_mut_ptr().add(x));
        }
        x += V::N;
    }
    for x in x..to.len() {
        to[x] = epilogue.apply_one(from[x], channel, at + x);
    }
}
