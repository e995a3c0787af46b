//! Copies, fills and writes on a queue: by the GPU wherever its memory is concerned, so that nobody waits.

use super::{Gpu, failed};
use crate::error::Result;
use openmps_metal::arguments::{Kernel, Resolved};
use openmps_metal::{Launch, Metal, bytes as single, limits, stream};
use std::sync::LazyLock;

static COPY: LazyLock<Kernel> = LazyLock::new(single::copy);
static FILL: LazyLock<Kernel> = LazyLock::new(single::fill);

/// Whether Metal's blit encoder takes these addresses and lengths.
fn is_aligned(values: &[usize]) -> bool {
    values.iter().all(|value| value.is_multiple_of(limits::BLIT_ALIGNMENT))
}

impl<M: Metal> Gpu<M> {
    /// Copies on the GPU where it can; else (ranges that overlap, memory that is not the GPU's) on the host when the queue has ended what came
    /// before.
    pub(super) fn copy(&self, queue: u64, destination: usize, source: usize, bytes: usize) -> Result<()> {
        let apart = destination.abs_diff(source) >= bytes;
        match (apart, self.resolve(destination, bytes), self.resolve(source, bytes)) {
            (true, Some(to), Some(from)) => self.copy_apart(queue, destination, &to, source, &from, bytes),
            _ => {
                self.stream(queue)?.wait();
                // SAFETY: the queue has checked both ranges; `copy` allows overlap.
                unsafe { std::ptr::copy(source as *const u8, destination as *mut u8, bytes) };
                Ok(())
            }
        }
    }

    fn copy_apart(
        &self,
        queue: u64,
        destination: usize,
        to: &Resolved<M::Buffer>,
        source: usize,
        from: &Resolved<M::Buffer>,
        bytes: usize,
    ) -> Result<()> {
        if is_aligned(&[to.offset, from.offset, bytes]) {
            return self.stream(queue)?.copy(to, from, bytes).map_err(failed);
        }
        self.move_bytes(
            queue,
            &COPY,
            bytes,
            |first| [destination + first, source + first].map(|at| at as u64),
            |address| {
                if from.extent.contains(&address) { Some(at(from, source, address)) } else { self.pointer(address) }
            },
        )
    }

    /// Copies the host's bytes: at once where the queue has nothing to do, else into memory from which the GPU copies them in the queue's order.
    pub(super) fn write(&self, queue: u64, destination: usize, source: &[u8]) -> Result<()> {
        let stream = self.stream(queue)?;
        let place = self.resolve(destination, source.len()).filter(|_| !stream.is_empty());
        let staged = place.and_then(|place| Some((place, stream.stage(source)?)));
        let Some((to, staged)) = staged else {
            stream.wait();
            // SAFETY: the queue has checked the destination, and the source is a slice of the caller's.
            unsafe { std::ptr::copy(source.as_ptr(), destination as *mut u8, source.len()) };
            return Ok(());
        };
        let from = &staged.place;
        self.copy_apart(queue, destination, &to, from.extent.start, from, source.len())?;
        stream.keep(staged.user).map_err(failed)
    }

    pub(super) fn fill(&self, queue: u64, address: usize, byte: u8, bytes: usize) -> Result<()> {
        let stream = self.stream(queue)?;
        let Some(target) = self.resolve(address, bytes) else {
            stream.wait();
            // SAFETY: the queue has checked the range.
            unsafe { std::ptr::write_bytes(address as *mut u8, byte, bytes) };
            return Ok(());
        };
        if is_aligned(&[target.offset, bytes]) {
            return stream.fill(&target, bytes, byte).map_err(failed);
        }
        self.move_bytes(
            queue,
            &FILL,
            bytes,
            |first| [(address + first) as u64, byte.into()],
            |address| self.pointer(address),
        )
    }

    /// Runs one of the kernels for single bytes, in pieces. `arguments` gives its first two for the piece that begins there.
    fn move_bytes(
        &self,
        queue: u64,
        kernel: &Kernel,
        bytes: usize,
        arguments: impl Fn(usize) -> [u64; 2],
        resolve: impl Fn(usize) -> Option<Resolved<M::Buffer>>,
    ) -> Result<()> {
        let (pipeline, limits) = self.pipelines.get(&self.metal, &kernel.pipeline).map_err(failed)?;
        let (pipeline, stream) = (&pipeline, self.stream(queue)?);
        for (first, count) in stream::pieces(bytes) {
            let [to, second] = arguments(first);
            let (arguments, grid) = (&[to, second, count as u64], single::threadgroups(count).into());
            let launch = Launch { kernel, pipeline, limits, grid, arguments };
            // SAFETY: a piece of ranges that the caller has checked.
            unsafe { stream.dispatch(&launch, &resolve) }.map_err(failed)?;
        }
        Ok(())
    }
}

/// The place of an address in memory that holds `begin` at `place`.
fn at<B: Clone>(place: &Resolved<B>, begin: usize, address: usize) -> Resolved<B> {
    Resolved { offset: place.offset + (address - begin), ..place.clone() }
}
