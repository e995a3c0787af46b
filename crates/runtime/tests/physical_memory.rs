//! What the system says about the process's memory. One test, so that nothing else of the process allocates.
#![cfg(target_os = "linux")]

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_runtime::Device;

/// Resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("a line for resident memory");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok()).expect("a number") << 10
}

#[test]
fn memory_costs_nothing_until_touched_and_goes_back_when_the_cache_is_emptied() {
    const LARGE: usize = 200 << 20;
    const SMALL: usize = 1 << 20;
    const SLACK: usize = 20 << 20;
    let device = Device::get(0).expect("the host");
    let queue = device.queue();
    let before = resident();
    let large = device.allocate(LARGE).expect("memory");
    let small: Vec<_> = (0..100).map(|_| device.allocate(SMALL).expect("memory")).collect();
    assert!(resident() < before + SLACK, "reserving is free");
    queue.fill_at(large.address(), 1, LARGE).expect("filled");
    small.iter().for_each(|buffer| queue.fill_at(buffer.address(), 1, SMALL).expect("filled"));
    let touched = LARGE + 100 * SMALL;
    assert!(resident() > before + touched - SLACK);
    drop((large, small));
    assert!(resident() > before + touched - SLACK, "cached memory stays");
    device.empty_cache();
    assert!(resident() < before + SLACK, "{} of {} bytes stayed", resident() - before, touched);
    assert_eq!(device.statistics().reserved, 0);
}
