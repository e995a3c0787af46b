//! What collective operations would take on a cluster, for the command line.

use openmps::collective::simulate::{Cluster, Link, Plan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Adds these to the native module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(collective_plan, module)?)
}

/// Of each size: (bytes, [(algorithm, seconds or None)], the fastest, the one that is taken). Latency in seconds, bandwidth in bytes a second.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "a row of a table")]
fn collective_plan(
    python: Python<'_>,
    hosts: usize,
    ranks_per_host: usize,
    cores_per_host: usize,
    latency: f64,
    bandwidth: f64,
    sizes: Vec<usize>,
) -> PyResult<Vec<(usize, Vec<(&'static str, Option<f64>)>, Option<&'static str>, &'static str)>> {
    let one = Cluster::machine(ranks_per_host, cores_per_host);
    let between = Link { latency, bandwidth: Some(bandwidth), ..one.between };
    let cluster = Cluster { ranks: hosts.saturating_mul(ranks_per_host), between, ..one };
    let plan = |bytes| {
        let plan = Plan::new(&cluster, bytes).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let seconds = plan.seconds.iter().map(|&(algorithm, seconds)| (algorithm.name(), seconds)).collect();
        Ok((bytes, seconds, plan.best().map(|best| best.name()), plan.suited.name()))
    };
    python.detach(|| sizes.into_iter().map(plan).collect())
}
