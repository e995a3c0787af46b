//! Metal's own objects, as the rest of this folder hands them on.

use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLCommandBuffer, MTLDevice};

pub(crate) type RawDevice = ProtocolObject<dyn MTLDevice>;
pub(crate) type RawCommandBuffer = ProtocolObject<dyn MTLCommandBuffer>;
