//! The log of the wheel: `OPENMPS_LOG=info`, or targets with levels as in `openmps_runtime::stage=info`, on standard error.

use std::sync::Once;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Begins to log what `OPENMPS_LOG` asks for; later calls do nothing.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // The setting has been checked: what it lets through are targets.
        let Some(targets) = openmps_settings::LOG.get().and_then(|text| text.parse::<Targets>().ok()) else { return };
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
        // Another logger that a program has set stays.
        let _ = tracing_subscriber::registry().with(lines).with(targets).try_init();
    });
}
