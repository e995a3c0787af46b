//! Bytes that no rank would send, for so many seconds: `fuzz SECONDS [SEED]`. Ends with an error where memory does not level off.

#[path = "../tests/support/hostile.rs"]
mod hostile;
#[path = "../tests/support/memory.rs"]
mod memory;

use memory::{Counting, Highest};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let (seconds, first) = (arguments.next().unwrap_or(60), arguments.next());
    let first = first.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let (begin, limit, mut seed) = (Instant::now(), Duration::from_secs(seconds), first);
    let mut total = hostile::Outcome::default();
    let mut halves = [Highest::default(); 2];
    while begin.elapsed() < limit {
        let outcome = hostile::round(seed);
        total.fine += outcome.fine;
        total.failed += outcome.failed;
        seed += 1;
        halves[usize::from(begin.elapsed() > limit / 2)].look();
    }
    println!("{} rounds from seed {first}: {} ranks succeeded, {} failed", seed - first, total.fine, total.failed);
    let [earlier, later] = halves;
    println!("after a round of the first half at most {earlier}; of the second at most {later}");
    assert!(later.levelled_off(&earlier), "memory has grown");
}
