//! What is computed of constants: in time that grows with the graph, whatever it shares, and in memory that can be given back.

use openmps::graph::{ExecutableCache, StoredTensor, Tensor, clear_cache};
use openmps::{DataType, Device, Graph, OptimizationLevel, Result};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Far more than it takes, and far less than what it took when it grew with the number of ways through the graph.
const SOON: Duration = Duration::from_secs(30);

/// Held by those who fill or empty the shared cache: who compiles meanwhile holds what it had.
static SHARED: Mutex<()> = Mutex::new(());

/// The graph's result for a constant of two numbers, which must be there soon.
fn computed(what: &str, build: impl FnOnce(&mut Graph, Tensor) -> Result<Tensor>) -> Result<Vec<f32>> {
    let _alone = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, begin) = (Device::get(0)?, Instant::now());
    let mut graph = Graph::new();
    let x = graph.constant(&[2], &[1e-9f32, 2e-9])?;
    let y = build(&mut graph, x)?;
    let executable = graph.compile(&device, &[y])?;
    let result = executable.run(&device.queue(), &[])?[0].read()?;
    // A text of every way through the graph would have no end.
    assert!(format!("{executable:?}").len() < 10_000_000, "{what}");
    drop((executable, graph));
    clear_cache();
    assert!(begin.elapsed() < SOON, "{what} took {:?}", begin.elapsed());
    Ok(result)
}

#[test]
fn a_constant_that_is_shared_is_computed_once() -> Result<()> {
    for count in [18, 40] {
        let doubled = computed("a sum of sums", |graph, mut x| {
            for _ in 0..count {
                x = graph.add(x, x)?;
            }
            Ok(x)
        })?;
        let factor = 2.0f32.powi(count);
        assert_eq!(doubled, [1e-9 * factor, 2e-9 * factor]);
    }
    Ok(())
}

#[test]
fn a_chain_of_constants_takes_time_as_long_as_it_is() -> Result<()> {
    let result = computed("a chain", |graph, mut x| {
        for number in 0..6000 {
            x = graph.tanh(x)?;
            x = if number % 3 == 0 { graph.reshape(x, &[2 - number % 2, 1 + number % 2])? } else { x };
        }
        graph.reshape(x, &[2])
    })?;
    assert_eq!(result, [1e-9, 2e-9]);
    Ok(())
}

/// Keys that were made apart are equal as a whole, and found by that.
#[test]
fn equal_constants_of_two_graphs_are_one() -> Result<()> {
    let (device, cache) = (Device::get(0)?, ExecutableCache::new(1));
    let built = |first: f32| -> Result<(Graph, Tensor)> {
        let mut graph = Graph::new();
        let mut x = graph.constant(&[2], &[first, 3.0])?;
        for _ in 0..100 {
            let halves = graph.constant(&[2], &[0.5f32; 2])?;
            let half = graph.multiply(x, halves)?;
            x = graph.add(half, half)?;
        }
        Ok((graph, x))
    };
    for first in [1.0, 2.0, 1.0] {
        let (graph, x) = built(first)?;
        let executable = cache.compile_anew(&graph, &device, &[x], OptimizationLevel::Level1)?;
        assert_eq!(executable.run(&device.queue(), &[])?[0].read::<f32>()?, [first, 3.0]);
    }
    Ok(())
}

/// A weight of which the cache holds what it is folded to, and something that dies with the weight.
fn compiled(cache: Option<&ExecutableCache>) -> Result<Weak<()>> {
    let (device, alive) = (Device::get(0)?, Arc::new(()));
    let (dies, mut graph) = (Arc::downgrade(&alive), Graph::new());
    let read = move || {
        let _ = &alive;
        Ok(1.0f32.to_ne_bytes().repeat(64))
    };
    let weight = graph.stored(&StoredTensor::new(&device, &[64], DataType::F32, read)?);
    let doubled = graph.add(weight, weight)?;
    let x = graph.placeholder("x", &[64], DataType::F32)?;
    let y = graph.multiply(x, doubled)?;
    match cache {
        Some(cache) => cache.compile(&graph, &device, &[y], OptimizationLevel::Level1)?,
        None => graph.compile(&device, &[y])?,
    };
    Ok(dies)
}

#[test]
fn an_emptied_cache_holds_no_weights() -> Result<()> {
    let _alone = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let cache = ExecutableCache::new(4);
    let (own, shared) = (compiled(Some(&cache))?, compiled(None)?);
    assert!(own.upgrade().is_some() && shared.upgrade().is_some(), "a graph may be compiled again");
    cache.clear();
    assert!(own.upgrade().is_none(), "nobody else has it");
    let statistics = cache.statistics();
    assert_eq!((statistics.entries, statistics.hits, statistics.misses, statistics.limit), (0, 0, 0, 4));
    clear_cache();
    assert!(shared.upgrade().is_none());
    assert!(compiled(Some(&cache))?.upgrade().is_some(), "it is used as before");
    Ok(())
}
