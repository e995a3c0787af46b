//! The log of the wheel: `OPENMPS_LOG=info`, or targets with levels as in `openmps_runtime::stage=info`, on standard error.

use std::sync::Once;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Begins to log what `OPENMPS_LOG` asks for; later calls do nothing.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let Ok(wanted) = std::env::var("OPENMPS_LOG") else { return };
        match wanted.trim().parse::<Targets>() {
            Ok(targets) => {
                let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
                // Another logger that a program has set stays.
                let _ = tracing_subscriber::registry().with(lines).with(targets).try_init();
            }
            Err(error) => eprintln!("openmps: OPENMPS_LOG={wanted:?}: {error}"),
        }
    });
}
