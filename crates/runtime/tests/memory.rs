//! Device memory through the public interface: buffers, addresses, statistics, the limit.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::free_at;
use openmps_runtime::{Device, Error};

/// A device of the test's own, so that the figures are exact.
fn device() -> Device {
    Device::recorder().0
}

#[test]
fn a_buffer_is_freed_when_its_owner_goes() {
    let device = device();
    let buffer = device.allocate(1000).expect("memory");
    assert_eq!((buffer.len(), buffer.address() % 256), (1000, 0));
    assert_eq!(buffer.device(), &device);
    assert_eq!(device.statistics().allocated, 1024);
    let address = buffer.address();
    drop(buffer);
    let now = device.statistics();
    assert_eq!((now.allocated, now.cached, now.peak_allocated, now.free_count), (0, 1024, 1024, 1));
    assert_eq!(device.allocate(1024).expect("memory").address(), address, "the cache serves the same size");
    assert_eq!(device.statistics().cache_hits, 1);
}

#[test]
fn buffers_outlive_the_handle_on_their_device() {
    let buffer = device().allocate(64).expect("memory");
    // SAFETY: the buffer holds its device, and so its memory.
    unsafe { buffer.contents().write(5) };
    assert_eq!(buffer.device().statistics().allocation_count, 1);
}

#[test]
fn interior_addresses_resolve_to_buffer_and_offset() {
    let device = device();
    for bytes in [1000, 5 << 20, 80 << 20] {
        let buffer = device.allocate(bytes).expect("memory");
        let address = buffer.address();
        assert_eq!(device.resolve(address + 300, 10).expect("inside"), (address, 300));
        assert_eq!(device.resolve(address, bytes).expect("the whole"), (address, 0));
        let error = device.resolve(address + bytes - 1, 4096).expect_err("beyond the end");
        assert!(matches!(error, Error::UnknownAddress { bytes: 4096, .. }), "{error}");
    }
}

#[test]
fn peaks_and_counters_start_anew() {
    let device = device();
    let kept = device.allocate(1 << 20).expect("memory");
    drop(device.allocate(100 << 20).expect("memory"));
    device.empty_cache();
    device.reset_peak_allocated();
    device.reset_peak_reserved();
    device.reset_accumulated();
    let now = device.statistics();
    assert_eq!((now.peak_allocated, now.allocated), (1 << 20, 1 << 20));
    assert_eq!(now.peak_reserved, now.reserved);
    assert_eq!((now.allocation_count, now.free_count, now.cache_misses), (0, 0, 0));
    drop(kept);
}

#[test]
fn the_limit_gives_a_clean_error_after_the_cache_was_emptied() {
    let device = device();
    device.set_memory_limit(150 << 20);
    assert_eq!(device.memory_limit(), 150 << 20);
    drop(device.allocate(100 << 20).expect("below the limit"));
    let large = device.allocate(140 << 20).expect("the cached heap goes first");
    let error = device.allocate(100 << 20).expect_err("above the limit");
    assert!(
        matches!(error, Error::OutOfMemory { limit, requested, .. } if (limit, requested) == (150 << 20, 100 << 20))
    );
    drop(large);
    device.allocate(120 << 20).expect("usable afterwards");
}

#[test]
fn addresses_for_c_are_freed_once() {
    let device = device();
    let address = device.allocate_address(0).expect("an address of its own for nothing");
    assert_ne!(address, device.allocate_address(0).expect("another"));
    free_at(&device, address).expect("live");
    let error = free_at(&device, address).expect_err("freed twice");
    assert!(error.to_string().contains(&format!("{address:#x}")), "{error}");
    assert!(free_at(&device, 12345).is_err());
}

#[test]
fn a_missing_device_is_an_error_with_the_count() {
    let count = Device::all().len();
    let error = Device::get(1000).expect_err("no such device");
    assert!(matches!(error, Error::NoSuchDevice { index: 1000, count: named } if named == count));
    assert_eq!(Device::get(0).expect("the host").properties().backend.name(), "host");
}

#[test]
fn devices_and_queues_are_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Device>();
    shared::<openmps_runtime::Queue>();
    shared::<openmps_runtime::Event>();
    shared::<openmps_runtime::Buffer>();
    shared::<openmps_runtime::CommandBuffer>();
    shared::<Error>();
}
