//! Devices. They are the runtime's, whose calls give errors of their own: here each is an [`Error`](crate::Error).

use crate::error::Result;
use openmps_runtime as runtime;
use runtime::{DeviceProperties, MemoryStatistics};
use std::fmt;
use std::sync::OnceLock;

/// A device: `MTLDevice`. Clones are the same device. [`Device::get`] is of the kind that `OPENMPS_DEVICE` names; [`Device::host`],
/// [`Device::metal`] and [`Device::cuda`] are of their own, and a process may use all of them.
///
/// ```
/// let device = openmps::Device::get(0)?;
/// assert!(device.properties().unified_memory);
/// assert_eq!(openmps::Device::host(0)?.properties().backend.name(), "host");
/// assert!(openmps::Device::of_every_kind().contains(&openmps::Device::host(0)?));
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Device(runtime::Device);

impl Device {
    /// The devices of this machine, of the kind that `OPENMPS_DEVICE` names: `host` (where it is not set), `metal`, `metal-emulated` (on
    /// Linux: Metal's kernels executed on the CPU) or `cuda`. On the CPU there are `OPENMPS_HOST_DEVICES` logical ones, one when it is not
    /// set. Where there are no devices of the kind, the list is empty and [`Device::get`] says why.
    ///
    /// ```
    /// for device in openmps::Device::all() {
    ///     println!("{device:?}");
    /// }
    /// ```
    pub fn all() -> &'static [Device] {
        static ALL: OnceLock<Vec<Device>> = OnceLock::new();
        ALL.get_or_init(|| runtime::Device::all().iter().cloned().map(Device).collect())
    }

    /// The devices of every kind that this build and this machine have: the CPU's, NVIDIA's, Apple's, and emulated ones where
    /// `OPENMPS_DEVICE` names them. A kind that fails to come up is left out; its own function ([`Device::cuda`], ...) says why.
    ///
    /// ```
    /// assert!(openmps::Device::of_every_kind().len() >= 1);
    /// ```
    pub fn of_every_kind() -> Vec<Device> {
        runtime::Device::of_every_kind().into_iter().map(Device).collect()
    }

    /// The device with this index in [`Device::all`].
    ///
    /// ```
    /// fn devices() -> openmps::Result<[openmps::Device; 2]> {
    ///     Ok([openmps::Device::get(0)?, openmps::Device::get(7)?])
    /// }
    /// assert!(matches!(devices(), Err(openmps::Error::Runtime(_))), "there are fewer than eight");
    /// ```
    pub fn get(index: usize) -> Result<Device> {
        Ok(Device(runtime::Device::get(index)?))
    }

    /// The CPU as a device, whatever `OPENMPS_DEVICE` names.
    ///
    /// ```
    /// assert_eq!(openmps::Device::host(0)?.index(), 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn host(index: usize) -> Result<Device> {
        Ok(Device(runtime::Device::host(index)?))
    }

    /// A GPU of NVIDIA's, whatever `OPENMPS_DEVICE` names.
    ///
    /// ```
    /// match openmps::Device::cuda(0) {
    ///     Ok(device) => println!("{device:?}"),
    ///     Err(why) => println!("{why}"),
    /// }
    /// ```
    pub fn cuda(index: usize) -> Result<Device> {
        Ok(Device(runtime::Device::cuda(index)?))
    }

    /// A GPU of Apple's, whatever `OPENMPS_DEVICE` names.
    ///
    /// ```
    /// match openmps::Device::metal(0) {
    ///     Ok(device) => println!("{device:?}"),
    ///     Err(why) => println!("{why}"),
    /// }
    /// ```
    pub fn metal(index: usize) -> Result<Device> {
        Ok(Device(runtime::Device::metal(index)?))
    }

    /// A device of its own over an implementation of Metal's trait, as [`runtime::Device::over`].
    ///
    /// ```
    /// use openmps::{Device, runtime::metal::Recorder};
    /// assert_eq!(Device::over(3, Recorder::default()).index(), 3);
    /// ```
    pub fn over<M: runtime::metal::Metal>(index: usize, metal: M) -> Device {
        Device(runtime::Device::over(index, metal))
    }

    /// A device of its own that runs no command, and the handle to what it was asked to do, as [`runtime::Device::recorder`].
    ///
    /// ```
    /// let (device, recorder) = openmps::Device::recorder();
    /// assert_ne!(device, openmps::Device::host(0)?);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn recorder() -> (Device, runtime::Recorder) {
        let (device, recorder) = runtime::Device::recorder();
        (Device(device), recorder)
    }

    /// The position among the devices of its kind.
    ///
    /// ```
    /// assert_eq!(openmps::Device::get(0)?.index(), 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn index(&self) -> usize {
        self.0.index()
    }

    /// What the device says about itself.
    ///
    /// ```
    /// assert!(openmps::Device::get(0)?.properties().total_memory > 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn properties(&self) -> &DeviceProperties {
        self.0.properties()
    }

    /// What its vendor's libraries were asked and have answered wrongly, on this machine and this system: a line each, for people. Own kernels
    /// compute that.
    ///
    /// ```
    /// assert!(openmps::Device::host(0)?.wrong_answers().is_empty());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn wrong_answers(&self) -> Vec<String> {
        self.0.wrong_answers()
    }

    /// The memory's figures of this moment.
    ///
    /// ```
    /// let device = openmps::Device::get(0)?;
    /// let buffer = openmps::Buffer::new(&device, 1 << 20)?;
    /// assert!(device.statistics().peak_allocated >= 1 << 20);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn statistics(&self) -> MemoryStatistics {
        self.0.statistics()
    }

    /// Starts the peak of allocated memory anew from what is allocated now.
    ///
    /// ```
    /// openmps::Device::get(0)?.reset_peak_allocated();
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn reset_peak_allocated(&self) {
        self.0.reset_peak_allocated();
    }

    /// Starts the peak of reserved memory anew from what is reserved now.
    ///
    /// ```
    /// openmps::Device::get(0)?.reset_peak_reserved();
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn reset_peak_reserved(&self) {
        self.0.reset_peak_reserved();
    }

    /// Starts every counter (allocations, frees, hits, misses, refusals) anew from zero.
    ///
    /// ```
    /// openmps::Device::get(0)?.reset_accumulated();
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn reset_accumulated(&self) {
        self.0.reset_accumulated();
    }

    /// Gives memory that no buffer uses back to the system.
    ///
    /// ```
    /// openmps::Device::get(0)?.empty_cache();
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn empty_cache(&self) {
        self.0.empty_cache();
    }

    /// The most bytes that the device's heaps may take: `OPENMPS_MEMORY_LIMIT`, or the machine's memory.
    ///
    /// ```
    /// assert!(openmps::Device::get(0)?.memory_limit() > 0);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn memory_limit(&self) -> usize {
        self.0.memory_limit()
    }

    /// Changes the limit. What is allocated already stays, even above it.
    ///
    /// ```
    /// let device = openmps::Device::get(0)?;
    /// device.set_memory_limit(device.memory_limit());
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn set_memory_limit(&self, bytes: usize) {
        self.0.set_memory_limit(bytes);
    }

    /// Waits for every queue; the first error that one of them kept is delivered.
    ///
    /// ```
    /// openmps::Device::host(0)?.synchronize()?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.0.synchronize()?)
    }

    /// The device below, for calls of [`openmps::runtime`](crate::runtime), which have an error type of their own.
    ///
    /// ```
    /// let memory = openmps::Device::get(0)?.runtime().allocate(16)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn runtime(&self) -> &runtime::Device {
        &self.0
    }
}

impl From<runtime::Device> for Device {
    fn from(device: runtime::Device) -> Device {
        Device(device)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
