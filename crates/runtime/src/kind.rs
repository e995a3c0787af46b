//! The kinds of devices that a process may use side by side, each looked for once: when it is first asked for.

use crate::device::{Device, Found, host_devices, memory_limit};
#[cfg(feature = "cuda")]
use crate::devices::cuda;
use crate::devices::host;
use crate::error::{Error, Result};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Host,
    Cuda,
    Metal,
    MetalEmulated,
}

impl Kind {
    /// The kind that `OPENMPS_DEVICE` names: the host where it names none.
    fn chosen() -> Result<Kind> {
        let name = openmps_settings::DEVICE.checked().map_err(|why| Error::NoDevices { why })?;
        Ok(match name.unwrap_or("host") {
            "cuda" => Kind::Cuda,
            "metal" => Kind::Metal,
            "metal-emulated" => Kind::MetalEmulated,
            _ => Kind::Host,
        })
    }

    /// Its devices.
    fn devices(self) -> Result<&'static [Device]> {
        Device::of_kind(self as usize, || self.find())
    }

    /// The device with this index among them.
    fn device(self, index: usize) -> Result<Device> {
        let all = self.devices()?;
        all.get(index).cloned().ok_or(Error::NoSuchDevice { index: index as i64, count: all.len() })
    }

    fn find(self) -> Found {
        match self {
            Kind::Host => Ok((0..host_devices()).map(host_device).collect()),
            #[cfg(feature = "cuda")]
            Kind::Cuda => cuda_devices().map_err(|error| error.to_string()),
            #[cfg(all(feature = "metal", target_vendor = "apple"))]
            Kind::Metal => {
                let all = crate::devices::metal::all().map_err(|error| error.to_string())?;
                Ok(all.into_iter().enumerate().map(|(index, gpu)| Device::over(index, gpu)).collect())
            }
            #[cfg(all(
                feature = "emulated",
                target_os = "linux",
                any(target_arch = "x86_64", target_arch = "aarch64")
            ))]
            Kind::MetalEmulated => {
                openmps_metal::emulated::observe(crate::trace::counted);
                let device = |index| Device::over(index, openmps_metal::emulated::Emulated::of_environment());
                Ok((0..host_devices()).map(device).collect())
            }
            #[allow(unreachable_patterns, reason = "a build may have all of them")]
            other => Err(other.why_none()),
        }
    }

    /// Why this build has no devices of a kind: the system cannot have them, or the feature was left out.
    fn why_none(self) -> String {
        let linux = cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")));
        let (name, feature, there) = match self {
            Kind::Host | Kind::Cuda => ("cuda", "cuda", true),
            Kind::Metal => ("metal", "metal", cfg!(target_vendor = "apple")),
            Kind::MetalEmulated => ("metal-emulated", "emulated", linux),
        };
        let why = match self {
            _ if there => format!("this program was built without the feature {feature:?} of the crate openmps"),
            Kind::Metal => "Metal is there on macOS only".to_string(),
            _ => "the emulated GPU is there on Linux only, on x86-64 and aarch64".to_string(),
        };
        format!("OPENMPS_DEVICE={name}: {why}")
    }
}

impl Device {
    /// The devices of this machine, of the kind that `OPENMPS_DEVICE` names: `host` (where it is not set), `metal`, `metal-emulated` (on
    /// Linux: Metal's kernels executed on the CPU) or `cuda`. On the CPU there are `OPENMPS_HOST_DEVICES` logical ones, one when it is not
    /// set. Where there are no devices of the kind, the list is empty and [`Device::get`] says why.
    pub fn all() -> &'static [Device] {
        Kind::chosen().and_then(Kind::devices).unwrap_or_default()
    }

    /// The devices of every kind that this build and this machine have: the CPU's, NVIDIA's, Apple's, and emulated ones where
    /// `OPENMPS_DEVICE` names them. A kind that fails to come up is left out; its own function ([`Device::cuda`], ...) says why.
    pub fn of_every_kind() -> Vec<Device> {
        let emulated = Kind::chosen().is_ok_and(|kind| kind == Kind::MetalEmulated).then_some(Kind::MetalEmulated);
        let kinds = [Kind::Host, Kind::Cuda, Kind::Metal].into_iter().chain(emulated);
        kinds.flat_map(|kind| kind.devices().unwrap_or_default()).cloned().collect()
    }

    /// The CPU as a device, whatever `OPENMPS_DEVICE` names.
    pub fn host(index: usize) -> Result<Device> {
        Kind::Host.device(index)
    }

    /// A GPU of NVIDIA's, whatever `OPENMPS_DEVICE` names.
    pub fn cuda(index: usize) -> Result<Device> {
        Kind::Cuda.device(index)
    }

    /// A GPU of Apple's, whatever `OPENMPS_DEVICE` names.
    pub fn metal(index: usize) -> Result<Device> {
        Kind::Metal.device(index)
    }

    /// The device with this index in [`Device::all`].
    pub fn get(index: usize) -> Result<Device> {
        Kind::chosen()?.device(index)
    }
}

fn host_device(index: usize) -> Device {
    let properties = host::properties();
    let limit = memory_limit(&properties);
    Device::new(index, properties, Box::new(host::Host), Box::new(crate::allocator::heap::HostMemory), limit)
}

#[cfg(feature = "cuda")]
fn cuda_devices() -> Result<Vec<Device>> {
    let device = |(index, (gpu, properties)): (usize, (cuda::Cuda, crate::properties::DeviceProperties))| {
        let limit = memory_limit(&properties);
        Device::new(index, properties, Box::new(gpu.clone()), Box::new(gpu), limit)
    };
    Ok(cuda::all()?.into_iter().enumerate().map(device).collect())
}
