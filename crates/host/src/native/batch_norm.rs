//! Batch norm of float32 with the batch's own statistics, and its gradient, and with given ones: a channel at a time, or a register of channels where they
//! are neighbours.

mod columns;
mod planes;

use super::lanes::{Arithmetic, Lanes, at_level};
use crate::threads::parallel_for;

/// The sizes of a dense tensor of `outer` x `channels` x `inner`. Each channel has at least one element.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    /// What is before the channels: images, or all pixels where channels are last.
    pub outer: usize,
    /// Channels.
    pub channels: usize,
    /// Elements of a channel that are neighbours.
    pub inner: usize,
}

/// The addresses of the operands of a call with the batch's own statistics, all dense float32; those of channels have one element for each.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    /// What is normalised.
    pub x: usize,
    /// A factor for each channel.
    pub scale: Option<usize>,
    /// An addend for each channel.
    pub bias: Option<usize>,
    /// The result, which may be x.
    pub y: usize,
    /// The channels' means and variances.
    pub statistics: [usize; 2],
    /// Added to the variance.
    pub epsilon: f32,
}

/// The addresses of the operands of a call with given statistics, as [`Forward`], whose statistics are read.
#[derive(Clone, Copy, Debug)]
pub struct Given(pub Forward);

/// The addresses of a gradient's operands, as [`Forward`].
#[derive(Clone, Copy, Debug)]
pub struct Gradient {
    /// What was normalised.
    pub x: usize,
    /// The gradient of the result.
    pub upstream: usize,
    /// The channels' means and the inverses of their deviations.
    pub statistics: [usize; 2],
    /// The factor of each channel.
    pub scale: Option<usize>,
    /// The gradient of x, which may be x or the upstream gradient.
    pub dx: usize,
    /// The gradients of scale and bias.
    pub weights: [usize; 2],
}

impl Channels {
    /// Elements of one channel.
    fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// Calls `work` for each group of channels that are summed side by side: one, or as many neighbours as a register holds.
    fn each(&self, work: impl Fn(usize, usize) + Sync) {
        let side_by_side = if self.inner == 1 { SIDE_BY_SIDE } else { 1 };
        let groups = self.channels.div_ceil(side_by_side);
        parallel_for(groups, self.count() * side_by_side / 4 + 20, |from, to| {
            work(from * side_by_side, (to * side_by_side).min(self.channels));
        });
    }
}

/// Neighbouring channels of one task: a cache line.
const SIDE_BY_SIDE: usize = 16;

/// Computes the result and the statistics.
///
/// # Safety
/// The operands have the elements that the sizes name, readable and writable, and overlap nothing but as said there.
pub unsafe fn forward(sizes: &Channels, operands: &Forward) {
    // SAFETY: passed on to the caller.
    unsafe { run(sizes, operands) };
}

/// Computes the result with statistics that are given.
///
/// # Safety
/// As [`forward`].
pub unsafe fn forward_given(sizes: &Channels, operands: &Given) {
    // SAFETY: passed on to the caller.
    unsafe { run(sizes, operands) };
}

/// Computes all gradients.
///
/// # Safety
/// As [`forward`].
pub unsafe fn gradient(sizes: &Channels, operands: &Gradient) {
    // SAFETY: passed on to the caller.
    unsafe { run(sizes, operands) };
}

/// What is made of a channel, or of a register of neighbouring ones, of the operands that it holds.
trait Pass: Sync {
    /// # Safety
    /// The operands have the channel's elements; the CPU has the instructions of `V`.
    unsafe fn planes<V: Lanes>(&self, sizes: &Channels, channel: usize);
    /// # Safety
    /// As [`Pass::planes`], of `V::N` channels from this one on.
    unsafe fn columns<V: Arithmetic>(&self, sizes: &Channels, channel: usize);
}

unsafe fn run(sizes: &Channels, pass: &impl Pass) {
    sizes.each(|begin, end| {
        // SAFETY: passed on to the caller.
        unsafe { at_level!(each_channel(sizes: &Channels, pass: &impl Pass, begin: usize, end: usize)) }
    });
}

#[inline(always)]
unsafe fn each_channel<V: Lanes>(sizes: &Channels, pass: &impl Pass, begin: usize, end: usize) {
    let mut channel = begin;
    // SAFETY: the caller's promise; whole registers of channels end at `end`.
    unsafe {
        while sizes.inner == 1 && channel + V::N <= end {
            pass.columns::<V>(sizes, channel);
            channel += V::N;
        }
        for channel in channel..end {
            if sizes.inner == 1 {
                pass.columns::<super::epilogue::Single>(sizes, channel);
            } else {
                pass.planes::<V>(sizes, channel);
            }
        }
    }
}

impl Pass for Forward {
    #[inline(always)]
    unsafe fn planes<V: Lanes>(&self, sizes: &Channels, channel: usize) {
        // SAFETY: passed on to the caller.
        unsafe { planes::normalise::<V>(sizes, self, channel) };
    }

    #[inline(always)]
    unsafe fn columns<V: Arithmetic>(&self, sizes: &Channels, channel: usize) {
        // SAFETY: passed on to the caller.
        unsafe { columns::normalise::<V>(sizes, self, channel) };
    }
}

impl Pass for Gradient {
    #[inline(always)]
    unsafe fn planes<V: Lanes>(&self, sizes: &Channels, channel: usize) {
        // SAFETY: passed on to the caller.
        unsafe { planes::derive::<V>(sizes, self, channel) };
    }

    #[inline(always)]
    unsafe fn columns<V: Arithmetic>(&self, sizes: &Channels, channel: usize) {
        // SAFETY: passed on to the caller.
        unsafe { columns::derive::<V>(sizes, self, channel) };
    }
}

impl Pass for Given {
    #[inline(always)]
    unsafe fn planes<V: Lanes>(&self, sizes: &Channels, channel: usize) {
        // SAFETY: passed on to the caller.
        unsafe {
            let statistics = self.0.statistics.map(|address| *(address as *const f32).add(channel));
            planes::write::<V>(&self.0, sizes, channel, statistics);
        }
    }

    #[inline(always)]
    unsafe fn columns<V: Arithmetic>(&self, sizes: &Channels, channel: usize) {
        // SAFETY: passed on to the caller; no register is wider.
        unsafe {
            let [mean, variance]: [V; 2] = self.0.statistics.map(|address| columns::of_channel(address, channel));
            let mut variances = [0.0f32; SIDE_BY_SIDE];
            variance.store(variances.as_mut_ptr());
            columns::write::<V>(&self.0, sizes, channel, mean, variances.map(f64::from));
        }
    }
}

#[cfg(test)]
mod tests;
