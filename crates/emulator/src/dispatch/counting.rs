//! What is counted in a dispatch of a counted text, and where its memory lies.

use super::Checked;
use crate::count::{Counters, Recorder, Regions};
use crate::image::Image;
use crate::source::Binding;
use std::collections::HashSet;
use std::ops::Range;

/// What the workers counted.
#[derive(Default)]
pub(super) struct Recorded {
    counters: Counters,
    /// Lines of device memory that any of them touched.
    lines: HashSet<u64>,
}

impl Recorded {
    pub(super) fn take(&mut self, recorder: Recorder) {
        self.counters.add(&recorder.counters);
        self.lines.extend(recorder.lines);
    }

    pub(super) fn sum(self) -> Counters {
        Counters { footprint: self.lines.len() as u64 * 128, ..self.counters }
    }
}

impl Checked<'_> {
    /// A recorder that knows where memory lies.
    pub(super) fn recorder(&self, image: &Image, memory: &[Vec<u128>]) -> Recorder {
        let given = memory.iter().map(|memory| range_of(memory.as_ptr().cast(), size_of_val(&memory[..])));
        let declared = self.function.declared.iter().map(|range| range_of(image.memory(range), range.len()));
        let threadgroup: Vec<Range<u64>> = given.chain(declared).collect();
        let mut unseen: Vec<Range<u64>> =
            self.copies.iter().map(|copy| range_of(copy.as_ptr().cast(), size_of_val(&copy[..]))).collect();
        unseen.push(self.function.images.span(image));
        let of_constants = |at: u32| {
            let constant =
                |binding: &Binding| matches!(binding, Binding::Buffer { index, constant: true, .. } if *index == at);
            self.function.kernel.parameters.iter().any(|parameter| constant(&parameter.binding))
        };
        let bound = self.buffers.iter().enumerate().filter(|(_, address)| **address != 0);
        let mut buffers: Vec<(u64, bool)> =
            bound.map(|(index, &address)| (address, of_constants(index as u32))).collect();
        buffers.sort_unstable();
        let bytes = threadgroup.iter().map(|range| range.end - range.start).sum();
        let counters = Counters { threadgroup_memory: bytes, ..Counters::default() };
        Recorder::new(Regions { threadgroup, unseen, buffers }, counters)
    }
}

fn range_of(begin: *const u8, bytes: usize) -> Range<u64> {
    begin as u64..begin as u64 + bytes as u64
}
