//! A kernel ready for any device: each compiles it when it is first asked to run it.

use crate::error::Error;
use crate::identity::Identity;
use crate::{dump, stage};
use openmps_codegen::{Target, threads_for};
use openmps_host::Program;
use openmps_tile::kernel::Parameter;
use openmps_tile::{Kernel, ParseError, Verified, VerifiedKernel, VerifyError, parse};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A verified kernel, with what devices have made of it so far. What they made goes with it.
pub struct Pipeline {
    kernel: VerifiedKernel,
    limits: Limits,
    program: OnceLock<Result<Program, openmps_host::Error>>,
    /// By the device and the kind of its compiled form.
    compiled: Mutex<Vec<(CompiledFor, Arc<dyn Any + Send + Sync>)>>,
}

/// Which device a kernel was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompiledFor {
    Device(Identity),
    /// Somebody else's GPU, by the index that its owner gives: devices over it come and go.
    External(usize),
}

/// What a kernel may use of a GPU at the most, where its author says so; the device has limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads of a threadgroup; rounded down to a power of two, at least one simdgroup.
    pub threads: usize,
    /// Bytes of threadgroup memory.
    pub threadgroup_memory: usize,
}

impl Limits {
    /// Those of the device alone.
    pub const NONE: Limits = Limits { threads: usize::MAX, threadgroup_memory: usize::MAX };

    /// The most threads that are a power of two.
    fn most_threads(self) -> usize {
        1 << self.threads.max(openmps_codegen::SIMD_WIDTH).ilog2()
    }
}

/// A text that does not become a pipeline.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is no module of the language, or has an operation that is not covered.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// Its kernel breaks a rule of the language.
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

impl Pipeline {
    /// Verifies a kernel; nothing is compiled yet. Where `OPENMPS_DUMP` names a folder, the kernel and its texts are written there.
    pub fn new(kernel: Kernel) -> Result<Pipeline, VerifyError> {
        Pipeline::verify(kernel, None)
    }

    /// Reads and verifies the text that Triton prints of a module.
    pub fn read(ttir: &str) -> Result<Pipeline, ReadError> {
        let kernel = stage::timed("read", "a module", || parse(ttir))?;
        Ok(Pipeline::verify(kernel, Some(ttir))?)
    }

    fn verify(kernel: Kernel, ttir: Option<&str>) -> Result<Pipeline, VerifyError> {
        let name = kernel.name.clone();
        let kernel = stage::timed("verify", &name, || VerifiedKernel::new(kernel))?;
        dump::kernel(kernel.verified(), ttir);
        Ok(Pipeline { kernel, limits: Limits::NONE, program: OnceLock::new(), compiled: Mutex::default() })
    }

    /// The same kernel, not compiled yet, within limits.
    #[must_use]
    pub fn within(self, limits: Limits) -> Pipeline {
        Pipeline { limits, compiled: Mutex::default(), ..self }
    }

    /// What the kernel is written for on a GPU, of which `target` is a description by the number of threads: as many as suit the kernel, within
    /// the limits.
    pub(crate) fn target(&self, target: impl FnOnce(usize) -> Target) -> Target {
        let mut target = target(threads_for(&self.kernel).min(self.limits.most_threads()));
        let memory = &mut target.limits.threadgroup_memory;
        *memory = self.limits.threadgroup_memory.min(*memory);
        target
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.kernel.name
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel, with the proof that it is one.
    pub fn verified(&self) -> Verified<'_> {
        self.kernel.verified()
    }

    /// Checks what a kernel compiled for a GPU relies on: as many arguments as parameters, divisible by what was promised.
    pub(crate) fn check(&self, arguments: &[u64]) -> Result<(), Error> {
        let (parameters, kernel) = (&self.kernel.parameters, || self.kernel.name.clone());
        let (found, expected) = (arguments.len(), parameters.len());
        if found != expected {
            return Err(Error::ArgumentCount { kernel: kernel(), found, expected });
        }
        let wrong =
            |(parameter, argument): &(&Parameter, &u64)| !argument.is_multiple_of(parameter.divisibility.into());
        match parameters.iter().zip(arguments).find(wrong) {
            None => Ok(()),
            Some((parameter, &value)) => {
                let (argument, divisor) = (parameter.name.clone(), parameter.divisibility);
                Err(Error::NotDivisible { kernel: kernel(), argument, value, divisor })
            }
        }
    }

    /// The kernel as a program of the host.
    #[inline]
    pub fn program(&self) -> Result<&Program, openmps_host::Error> {
        let plan = || stage::timed("plan", self.name(), || Program::new(&self.kernel));
        self.program.get_or_init(plan).as_ref().map_err(Clone::clone)
    }

    /// What a device has compiled of the kernel, made by `make` when it is asked for first.
    pub(crate) fn compiled<T: Any + Send + Sync, E>(
        &self,
        device: CompiledFor,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let found =
            compiled.iter().find_map(|(of, made)| (*of == device).then(|| made.clone().downcast::<T>().ok())?);
        if let Some(found) = found {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        compiled.push((device, made.clone()));
        Ok(made)
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Pipeline({})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openmps_tile::{Builder, Scalar, Type};

    #[test]
    fn arguments_must_be_what_the_kernel_was_made_for() {
        let mut b = Builder::new("made_for_multiples");
        b.parameter("x", Type::pointer(Scalar::F32));
        b.divisible(16);
        let pipeline = Pipeline::new(b.finish()).expect("verified");
        assert!(pipeline.check(&[4096]).is_ok());
        let message = |arguments: &[u64]| pipeline.check(arguments).expect_err("refused").to_string();
        assert!(message(&[4104]).contains("argument `x` is 4104, which 16 does not divide"), "{}", message(&[4104]));
        assert!(message(&[]).contains("0 arguments, expected 1"));
    }

    #[test]
    fn limits_hold_what_suits_a_kernel() {
        let kernel = || {
            let mut b = Builder::new("wide");
            b.range(1 << 14);
            Pipeline::new(b.finish()).expect("verified")
        };
        let suits = kernel().target(Target::metal);
        assert_eq!((suits.threads, suits.limits.threadgroup_memory), (256, 32 << 10));
        for (asked, threads) in [(1, 32), (100, 64), (128, 128), (1024, 256)] {
            let limits = Limits { threads: asked, threadgroup_memory: 1000 };
            let held = kernel().within(limits).target(Target::metal);
            assert_eq!((held.threads, held.limits.threadgroup_memory), (threads, 1000), "{asked}");
        }
    }

    #[test]
    fn each_device_compiles_once() {
        let pipeline = Pipeline::new(Builder::new("nothing").finish()).expect("verified");
        let (devices, mut made) = ([Identity::next(), Identity::next()], 0);
        for _ in 0..2 {
            for device in devices.map(CompiledFor::Device) {
                let compiled = pipeline.compiled(device, || {
                    made += 1;
                    Ok::<CompiledFor, ()>(device)
                });
                assert_eq!(compiled.as_deref(), Ok(&device));
            }
        }
        assert_eq!(made, 2);
        assert_eq!(pipeline.program().expect("planned").name(), "nothing");
    }
}
