//! Errors of runs end with them.

use crate::error::Error;
use openmps::Device;
use openmps::runtime::Error::Deferred;

/// The device's queue keeps an error for whoever waits for it next, who may be somebody else: Paddle's device is the same one. It is told here, and with it what
/// was kept before.
pub(crate) fn told(device: &Device, error: Error) -> Error {
    match error {
        Error::Run(source) => Error::Run(alone(device, source)),
        Error::Lowering { operation, source } => Error::Lowering { operation, source: alone(device, source) },
        other => other,
    }
}

fn alone(on: &Device, error: openmps::Error) -> openmps::Error {
    let openmps::Error::Runtime(Deferred { device, queue, message, further }) = error else { return error };
    let message = match on.queue().synchronize() {
        Err(openmps::Error::Runtime(Deferred { message: kept, .. })) if kept != message => {
            format!("{message}; and before it: {kept}")
        }
        _ => message,
    };
    openmps::Error::Runtime(Deferred { device, queue, message, further })
}
