//! Two small kernels that move single bytes: the blit encoder takes four at once, from addresses that are multiples of four.

use crate::arguments::{Kernel, Parameter};
use crate::interface::{Language, MathMode, PipelineKey};

/// Threads of a threadgroup: one moves one byte.
const THREADS: usize = 256;

const TEXT: &str = "#include <metal_stdlib>
using namespace metal;

kernel void copy_bytes(device uchar* to [[buffer(0)]], device const uchar* from [[buffer(1)]], constant uint& count [[buffer(2)]],
                       uint at [[thread_position_in_grid]]) {
    if (at < count) to[at] = from[at];
}

kernel void fill_bytes(device uchar* to [[buffer(0)]], constant uchar& byte [[buffer(1)]], constant uint& count [[buffer(2)]],
                       uint at [[thread_position_in_grid]]) {
    if (at < count) to[at] = byte;
}
";

/// `copy_bytes(to, from, count)`.
pub fn copy() -> Kernel {
    let from = Parameter::Buffer { index: 1, written: false };
    kernel("copy_bytes", from)
}

/// `fill_bytes(to, byte, count)`.
pub fn fill() -> Kernel {
    kernel("fill_bytes", Parameter::Value { index: 1, size: 1 })
}

/// Threadgroups for a number of bytes.
pub fn threadgroups(bytes: usize) -> [usize; 3] {
    [bytes.div_ceil(THREADS), 1, 1]
}

fn kernel(entry: &str, second: Parameter) -> Kernel {
    let (math, language) = (MathMode::Safe, Language::Metal3_0);
    let (source, entry, constants) = (TEXT.into(), entry.to_string(), Vec::new());
    let pipeline = PipelineKey { source, entry, math, language, threads: THREADS, constants };
    let parameters =
        vec![Parameter::Buffer { index: 0, written: true }, second, Parameter::Value { index: 2, size: 4 }];
    Kernel { pipeline, threads: [THREADS, 1, 1], threadgroup_memory: Vec::new(), parameters, numbers: 0 }
}
