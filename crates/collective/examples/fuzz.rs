//! Bytes that no rank would send, for so many seconds: `fuzz SECONDS [SEED]`. Ends with an error where memory grows.

#[path = "../tests/support/hostile.rs"]
mod hostile;

use std::time::{Duration, Instant};

/// Bytes that a process may have more at the end than after its first rounds.
const GROWTH: usize = 64 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (seconds, first) = (arguments.next().unwrap_or(60), arguments.next());
    let first = first.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let (begin, mut seed, mut at_first) = (Instant::now(), first, None);
    let mut total = hostile::Outcome::default();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let outcome = hostile::round(seed);
        total.fine += outcome.fine;
        total.failed += outcome.failed;
        seed += 1;
        if seed == first + 20 {
            at_first = resident();
        }
    }
    println!("{} rounds from seed {first}: {} ranks succeeded, {} failed", seed - first, total.fine, total.failed);
    if let (Some(before), Some(after)) = (at_first, resident()) {
        println!("memory: {} MiB after the first rounds, {} MiB at the end", before >> 20, after >> 20);
        assert!(after < before + GROWTH, "memory has grown");
    }
}

/// Bytes of memory in use, where the system says so.
fn resident() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}
