//! Stages of compilation in the log: read, verify, plan, generate, each with its kernel and its time.

use std::time::Instant;

/// Does a stage's work, and logs how long it took where somebody listens to `openmps_runtime::stage` at the level of information.
pub(crate) fn timed<T>(stage: &'static str, kernel: &str, work: impl FnOnce() -> T) -> T {
    if !tracing::enabled!(tracing::Level::INFO) {
        return work();
    }
    let begin = Instant::now();
    let result = work();
    tracing::info!(stage, kernel, microseconds = begin.elapsed().as_micros() as u64);
    result
}
