//! What the tests over the recorder share.

use openmps_metal::Recorder;
use openmps_runtime::Device;

pub const ADD: &str = include_str!("../../../tile/tests/ttir/vector_add.ttir");

/// Whatever a test did: no rule of Metal's was broken, no command buffer was left over, every pool is closed.
pub fn settle(device: Device, recorder: &Recorder) {
    drop(device);
    assert_eq!(recorder.violations(), Vec::<String>::new());
    assert_eq!(recorder.outstanding(), (0, 0));
    let (opened, closed) = recorder.pools();
    assert_eq!(opened, closed);
}
