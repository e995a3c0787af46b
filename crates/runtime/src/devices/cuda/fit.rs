//! Which of a kernel's texts suits the GPU. A product may load its factors ahead, into registers, or leave these to more threadgroups on a multiprocessor, one of
//! which computes while another waits. Which is better depends on what the compiler makes of it, so that each is compiled and looked at.
//!
//! On an H200 attention with heads of 128 takes 1.39 ms with loads ahead, which spill, and 0.92 without; with heads of 64 0.58 ms by two threadgroups, and 0.49
//! by four that do not load ahead; the tutorial's product of float16 0.43 without them, and 0.40 with.

use super::nvrtc::Nvrtc;
use super::{Compiled, Gpu, Handle};
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use openmps_codegen::{Source, Target, compile};
use std::cmp::Reverse;
use std::ffi::c_int;
use std::sync::Arc;

/// `CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`.
const LOCAL_BYTES: c_int = 3;

/// Threads that share a multiprocessor's registers where each still has 128 of them: with fewer a product's sums leave no room.
const THREADS: usize = 512;

/// A text that has been compiled.
struct Candidate {
    code: Vec<u8>,
    compiled: Compiled,
    stages: usize,
    /// Bytes of memory of each thread's own: registers that were spilt.
    spilt: usize,
    /// Threadgroups on a multiprocessor.
    residents: usize,
}

impl Candidate {
    /// Little spilt before everything else; then many threadgroups, then loads ahead.
    fn merit(&self) -> (Reverse<usize>, usize, usize) {
        (Reverse(self.spilt), self.residents, self.stages)
    }
}

/// The best text of a kernel with products, compiled, and its code. `source` is what is written for the target.
pub(super) fn best(
    gpu: &Arc<Gpu>,
    pipeline: &Pipeline,
    (target, source): (&Target, Source),
) -> Result<(Compiled, Vec<u8>)> {
    let plain = Target { stages: 1, ..target.clone() };
    let without = written(pipeline, &plain)?;
    // On a thread of its own: nearly all of the time is the compiler's.
    let (ahead, plain) = std::thread::scope(|scope| {
        let is_another = without.text != source.text;
        let other = is_another.then(|| scope.spawn(|| climb(gpu, pipeline, (&plain, without))));
        let ahead = climb(gpu, pipeline, (target, source));
        (ahead, other.map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
    });
    let best = match (ahead, plain) {
        (Ok(ahead), Some(Ok(plain))) if plain.merit() > ahead.merit() => plain,
        (Err(_), Some(Ok(plain))) => plain,
        (ahead, _) => ahead?,
    };
    Ok((best.compiled, best.code))
}

fn written(pipeline: &Pipeline, target: &Target) -> Result<Source> {
    compile(pipeline.verified(), target).map_err(Error::Codegen)
}

/// A text, or that by which more threadgroups share a multiprocessor, as long as nothing more is spilt for them.
fn climb(gpu: &Arc<Gpu>, pipeline: &Pipeline, (target, source): (&Target, Source)) -> Result<Candidate> {
    let mut best = candidate(gpu, pipeline, target, &source)?;
    while best.residents < THREADS / target.threads {
        let next = Target { residents: best.residents + 1, ..target.clone() };
        let source = written(pipeline, &next)?;
        // Where there are fewer registers than an instruction needs, the compiler refuses the text.
        match candidate(gpu, pipeline, &next, &source) {
            Ok(next) if next.spilt <= best.spilt && next.residents > best.residents => best = next,
            _ => break,
        }
    }
    Ok(best)
}

fn candidate(gpu: &Arc<Gpu>, pipeline: &Pipeline, target: &Target, source: &Source) -> Result<Candidate> {
    let code = Nvrtc::get()?.compile(pipeline.name(), &source.text, gpu.capability)?;
    let compiled = gpu.load(&code, source)?;
    let (function, threads) = (compiled.function as Handle, target.threads as c_int);
    let (mut spilt, mut residents) = (0, 0);
    // SAFETY: each writes one number; the function lives as long as `compiled`.
    unsafe {
        gpu.api.check("cuFuncGetAttribute", (gpu.api.function_attribute)(&mut spilt, LOCAL_BYTES, function))?;
        let status = (gpu.api.residents)(&mut residents, function, threads, 0);
        gpu.api.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
    }
    let (spilt, residents) = (spilt as usize, residents as usize);
    Ok(Candidate { code, compiled, stages: target.stages, spilt, residents })
}
