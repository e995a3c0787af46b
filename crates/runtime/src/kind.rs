//! The kinds of devices that a process may use side by side, each looked for once: when it is first asked for.

use crate::device::{Device, host_devices, memory_limit};
#[cfg(feature = "cuda")]
use crate::devices::cuda;
use crate::devices::host;
use crate::error::{Error, Result};
use crate::trace;
use openmps_host::fork;
use std::any::Any;
use std::sync::{Once, OnceLock};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    Cuda,
    Metal,
    MetalEmulated,
}

/// What there is of a kind, or why there is nothing.
type Found = std::result::Result<Vec<Device>, String>;

static FOUND: [OnceLock<Found>; 4] = [const { OnceLock::new() }; 4];

/// Once, before the first device.
static START: Once = Once::new();

impl Kind {
    /// The kind that `OPENMPS_DEVICE` names: the host where it names none.
    pub fn chosen() -> Result<Kind> {
        let name = openmps_settings::DEVICE.checked().map_err(|why| Error::NoDevices { why })?;
        Ok(match name.unwrap_or("host") {
            "cuda" => Kind::Cuda,
            "metal" => Kind::Metal,
            "metal-emulated" => Kind::MetalEmulated,
            _ => Kind::Host,
        })
    }

    /// Its devices.
    pub fn devices(self) -> Result<&'static [Device]> {
        START.call_once(|| {
            trace::start_from_environment();
            fork::list(hold_allocators);
        });
        let found = FOUND[self as usize].get_or_init(|| self.find());
        found.as_deref().map_err(|why| Error::NoDevices { why: why.clone() })
    }

    /// The device with this index among them.
    pub fn device(self, index: usize) -> Result<Device> {
        let all = self.devices()?;
        all.get(index).cloned().ok_or(Error::NoSuchDevice { index, count: all.len() })
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
            #[cfg(all(feature = "emulated", target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
            Kind::MetalEmulated => {
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

/// The devices of every kind that somebody has asked for.
pub(crate) fn known() -> impl Iterator<Item = &'static Device> {
    FOUND.iter().filter_map(OnceLock::get).flat_map(|found| found.as_deref().unwrap_or_default())
}

/// The allocators of this machine's devices, for a fork: addresses are allocated and freed at any time.
fn hold_allocators() -> Box<dyn Any> {
    Box::new(known().map(|device| device.allocator().hold()).collect::<Vec<_>>())
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
