//! The allocator against a model, from several threads, and at its limit.

use super::heap::{HeapSource, HostMemory, Region};
use super::pool::GRANULE;
use super::state::HEAP;
use super::*;
use crate::error::Error;
use proptest::prelude::*;
use std::collections::BTreeMap;

const PLENTY: usize = 8 << 30;

fn allocator(limit: usize) -> Allocator {
    Allocator::new(0, Box::new(HostMemory), limit)
}

/// The host's memory as a device with its own timeline would offer it.
struct OrderedMemory;

impl HeapSource for OrderedMemory {
    fn reserve(&self, bytes: usize) -> Option<Region> {
        HostMemory.reserve(bytes)
    }
    fn release(&self, region: Region) {
        HostMemory.release(region);
    }
    fn ordered_by_queue(&self) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: usize, queue: u64 },
    Free { choice: usize, queue: u64 },
    FreeWrongly { choice: usize, offset: usize },
    EmptyCache,
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        5 => 0..5000usize,
        3 => 5000..3_000_000usize,
        2 => 3_000_000..40_000_000usize,
        1 => 40_000_000..200_000_000usize,
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (sizes(), 0..3u64).prop_map(|(bytes, queue)| Step::Allocate { bytes, queue }),
        5 => (any::<usize>(), 0..3u64).prop_map(|(choice, queue)| Step::Free { choice, queue }),
        1 => (any::<usize>(), 1..100_000usize).prop_map(|(choice, offset)| Step::FreeWrongly { choice, offset }),
        1 => Just(Step::EmptyCache),
    ];
    proptest::collection::vec(step, 1..120)
}

fn rounded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(GRANULE)
}

/// What the allocator must agree with: live buffers by address.
#[derive(Default)]
struct Model {
    live: BTreeMap<usize, usize>,
    allocations: u64,
    frees: u64,
    peak: usize,
}

impl Model {
    fn allocated(&self) -> usize {
        self.live.values().map(|&bytes| rounded(bytes)).sum()
    }

    fn pick(&self, choice: usize) -> Option<(usize, usize)> {
        let index = choice.checked_rem(self.live.len())?;
        self.live.iter().nth(index).map(|(&address, &bytes)| (address, bytes))
    }

    fn add(&mut self, address: usize, bytes: usize) {
        assert_eq!(address % 256, 0);
        if let Some((&before, &length)) = self.live.range(..=address).next_back() {
            assert!(before + rounded(length) <= address, "overlaps the buffer before");
        }
        if let Some((&after, _)) = self.live.range(address..).next() {
            assert!(address + rounded(bytes) <= after, "overlaps the buffer after");
        }
        self.live.insert(address, bytes);
        self.allocations += 1;
        self.peak = self.peak.max(self.allocated());
    }
}

fn apply(step: &Step, model: &mut Model, allocator: &Allocator) {
    match *step {
        Step::Allocate { bytes, queue } => match allocator.allocate(bytes, queue) {
            Ok(address) => {
                model.add(address, bytes);
                // SAFETY: the buffer is ours; the model has just checked that it overlaps none.
                unsafe { (address as *mut u8).write(1) };
            }
            Err(error) => assert!(matches!(error, Error::OutOfMemory { .. }), "{error}"),
        },
        Step::Free { choice, queue } => {
            let Some((address, _)) = model.pick(choice) else { return };
            allocator.free(address, queue).expect("a live buffer");
            assert!(matches!(allocator.free(address, queue), Err(Error::NotAllocated { .. })), "freed twice");
            model.live.remove(&address);
            model.frees += 1;
        }
        Step::FreeWrongly { choice, offset } => {
            let Some((address, _)) = model.pick(choice) else { return };
            let wrong = address + offset;
            if !model.live.contains_key(&wrong) {
                assert!(matches!(allocator.free(wrong, 0), Err(Error::NotAllocated { .. })));
            }
        }
        Step::EmptyCache => allocator.empty_cache(),
    }
}

fn check(model: &Model, allocator: &Allocator, limit: usize) {
    let now = allocator.statistics();
    assert_eq!(now.allocated, model.allocated());
    assert_eq!((now.allocation_count, now.free_count), (model.allocations, model.frees));
    assert_eq!(now.peak_allocated, model.peak);
    assert!(now.allocated + now.cached <= now.reserved && now.reserved <= limit, "{now:?}");
    assert_eq!(now.cache_hits + now.cache_misses, now.allocation_count + now.out_of_memory_count);
    for (&address, &bytes) in &model.live {
        let last = rounded(bytes) - 1;
        assert_eq!(allocator.resolve(address, bytes).expect("live"), (address, 0));
        assert_eq!(allocator.resolve(address + last, 1).expect("live"), (address, last));
        assert!(allocator.resolve(address + last, 2).is_err());
    }
}

fn run(steps: &[Step], allocator: &Allocator, limit: usize) {
    let mut model = Model::default();
    for step in steps {
        apply(step, &mut model, allocator);
        check(&model, allocator, limit);
    }
    for &address in model.live.keys() {
        allocator.free(address, 0).expect("a live buffer");
    }
    allocator.empty_cache();
    let end = allocator.statistics();
    assert_eq!((end.allocated, end.reserved, end.cached, end.heap_count), (0, 0, 0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_agree_with_the_model(steps in steps()) {
        run(&steps, &allocator(PLENTY), PLENTY);
    }

    #[test]
    fn so_they_do_near_the_limit(steps in steps(), limit in 1_000_000..300_000_000usize) {
        run(&steps, &allocator(limit), limit);
    }

    #[test]
    fn so_they_do_with_a_cache_for_each_queue(steps in steps()) {
        run(&steps, &Allocator::new(0, Box::new(OrderedMemory), PLENTY), PLENTY);
    }
}

#[test]
fn a_freed_block_serves_its_own_queue_first() {
    let allocator = Allocator::new(0, Box::new(OrderedMemory), PLENTY);
    let first = allocator.allocate(1000, 1).expect("memory");
    allocator.free(first, 1).expect("live");
    let other = allocator.allocate(1000, 2).expect("memory");
    assert_ne!(other, first, "queue 1 may still be using it");
    assert_eq!(allocator.allocate(900, 1).expect("memory"), first);
    assert_eq!(allocator.statistics().cache_hits, 1);
}

#[test]
fn out_of_memory_names_the_figures_and_leaves_the_allocator_usable() {
    let allocator = allocator(1 << 20);
    let kept = allocator.allocate(600 << 10, 0).expect("below the limit");
    let error = allocator.allocate(600 << 10, 0).expect_err("above the limit");
    let text = error.to_string();
    assert!(text.contains("614400 bytes were asked for") && text.contains("the limit is 1048576"), "{text}");
    assert!(matches!(allocator.allocate(usize::MAX, 0), Err(Error::OutOfMemory { .. })));
    allocator.free(kept, 0).expect("live");
    // The cached heap is too small for this one and has to go first.
    allocator.allocate(1 << 20, 0).expect("the cache was emptied");
    assert_eq!(allocator.statistics().out_of_memory_count, 2);
}

#[test]
fn cached_blocks_of_other_sizes_join_before_a_new_heap_is_taken() {
    let allocator = allocator(PLENTY);
    for bytes in [1 << 20, 4096] {
        let blocks: Vec<_> = (0..HEAP / bytes).map(|_| allocator.allocate(bytes, 0).expect("memory")).collect();
        blocks.iter().for_each(|&address| allocator.free(address, 0).expect("live"));
        allocator.allocate(HEAP / 2, 0).map(|address| allocator.free(address, 0)).expect("memory").expect("live");
        assert_eq!(allocator.statistics().heap_count, 1);
    }
}

#[test]
fn freed_memory_is_used_before_fresh_memory() {
    let allocator = allocator(PLENTY);
    let [first, second] = [3 << 20, 5 << 20].map(|bytes| allocator.allocate(bytes, 0).expect("memory"));
    let fence = allocator.allocate(100, 0).expect("memory");
    [first, second].iter().for_each(|&address| allocator.free(address, 1).expect("live"));
    let [one, two] = [7 << 20, 1 << 20].map(|bytes| allocator.allocate(bytes, 2).expect("memory"));
    assert_eq!((one, two), (first, first + (7 << 20)), "both lie where the first two were");
    assert!(fence >= first + (8 << 20));
}

#[test]
fn what_a_queue_freed_is_cut_for_it_and_for_nobody_else() {
    let allocator = Allocator::new(0, Box::new(OrderedMemory), PLENTY);
    let freed = allocator.allocate(8 << 20, 1).expect("memory");
    allocator.free(freed, 1).expect("live");
    assert_eq!(allocator.statistics().cached, 8 << 20);
    assert_ne!(allocator.allocate(1 << 20, 2).expect("memory"), freed);
    let [one, two] = [3 << 20, 1000].map(|bytes| allocator.allocate(bytes, 1).expect("memory"));
    assert_eq!((one, two), (freed, freed + (3 << 20)));
    assert_eq!(allocator.statistics().cache_hits, 2);
}

#[test]
fn heaps_of_odd_sizes_do_not_pile_up_in_the_cache() {
    let limit = 1 << 30;
    let allocator = allocator(limit);
    for step in 1..20 {
        let address = allocator.allocate(HEAP + step * (9 << 20), 0).expect("memory");
        allocator.free(address, 0).expect("live");
        assert!(allocator.statistics().reserved <= limit / 8);
    }
}

#[test]
fn wrong_addresses_are_refused_by_name() {
    let allocator = allocator(PLENTY);
    let address = allocator.allocate(1000, 0).expect("memory");
    let large = allocator.allocate(HEAP * 2, 0).expect("memory");
    let why = |address| allocator.free(address, 0).expect_err("wrong").to_string();
    assert!(why(address + 256).contains("not the beginning"));
    assert!(why(address + 1).contains("not the beginning"));
    assert!(why(large + 256).contains("not the beginning"));
    assert!(why(0xdead).contains("0xdead") && why(0xdead).contains("no heap"));
    allocator.free(large, 0).expect("live");
    assert!(why(large).contains("freed already"));
    assert!(allocator.resolve(large, 1).is_err() && allocator.resolve(address + 1024, 1).is_err());
}

#[test]
fn threads_share_an_allocator() {
    let allocator = allocator(PLENTY);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let allocator = &allocator;
            scope.spawn(move || churn(allocator, thread));
        }
    });
    allocator.empty_cache();
    let end = allocator.statistics();
    assert_eq!((end.allocated, end.reserved), (0, 0));
    assert_eq!(end.allocation_count, end.free_count);
}

/// Allocates, writes the thread's number, and finds it unchanged before freeing.
fn churn(allocator: &Allocator, thread: u8) {
    let mut live: Vec<(usize, usize)> = Vec::new();
    let mut seed = thread as usize + 1;
    for step in 0..3000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let bytes = 1 + (seed >> 33) % (1 << (4 + step % 14));
        let address = allocator.allocate(bytes, thread as u64).expect("memory");
        // SAFETY: the buffer is this thread's until it frees it.
        unsafe { std::ptr::write_bytes(address as *mut u8, thread, bytes) };
        live.push((address, bytes));
        if live.len() > 20 {
            let (address, bytes) = live.swap_remove((seed >> 20) % 20);
            // SAFETY: as above.
            let contents = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
            assert!(contents.iter().all(|&byte| byte == thread));
            allocator.free(address, thread as u64).expect("live");
        }
    }
    live.iter().for_each(|&(address, _)| allocator.free(address, 0).expect("live"));
}

#[test]
fn small_requests_use_a_small_limit_up() {
    let limit = (3 << 20) + (512 << 10);
    let allocator = allocator(limit);
    let live: Vec<_> = std::iter::from_fn(|| allocator.allocate(4096, 0).ok()).collect();
    assert!(live.len() * 4096 >= 3 << 20, "{} of {limit} bytes are in use", live.len() * 4096);
    live.iter().for_each(|&address| allocator.free(address, 0).expect("live"));
    allocator.allocate(3 << 20, 0).expect("the cache was emptied");
}

#[cfg(target_os = "linux")]
#[test]
fn emptying_the_cache_frees_the_pages_of_free_blocks_in_a_heap_that_stays() {
    fn is_resident(address: usize) -> bool {
        let mut page = 0u8;
        // SAFETY: `mincore` writes one byte for the one page asked for, or fails when it is not mapped.
        let found = unsafe { libc::mincore((address & !4095) as *mut _, 4096, &mut page) };
        found == 0 && page & 1 == 1
    }
    let allocator = allocator(PLENTY);
    let [kept, freed] = [256, 16 << 20].map(|bytes| allocator.allocate(bytes, 0).expect("memory"));
    let middle = freed + (8 << 20);
    for address in [kept, middle] {
        // SAFETY: two buffers of our own.
        unsafe { (address as *mut u8).write(1) };
        assert!(is_resident(address));
    }
    allocator.free(freed, 0).expect("live");
    assert!(is_resident(middle), "freed memory stays");
    allocator.empty_cache();
    assert!(is_resident(kept) && !is_resident(middle));
}
