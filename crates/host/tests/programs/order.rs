//! Loads that are read again behind stores to the same memory, against the interpreter.

use crate::launch::Given::{Buffer, Integer};
use crate::launch::{singles, wave};
use crate::tiles::{at, both, pointer};
use openmps_tile::{Binary, Builder, Combine, Kernel, Scalar, Type, Value};

/// Numbers of the buffer that everything happens in.
const NUMBERS: usize = 256;

/// Loads a tile at one place of `z`, stores it plus 1 at a second place with the columns `step` apart, and three times it at a third.
fn twice(dims: &[usize], rows: &[i64], step: i64) -> Kernel {
    let mut b = Builder::new("twice");
    let (z, places) = parameters(&mut b);
    let stored: Vec<i64> = rows.iter().copied().chain([step]).collect();
    let loaded: Vec<i64> = rows.iter().copied().chain([1]).collect();
    let [from, to, last] = [(0, &loaded), (1, &stored), (2, &loaded)].map(|(place, strides)| {
        let base = b.add_pointer(z, places[place]);
        at(&mut b, base, dims, strides)
    });
    let x = b.load(from, None, None);
    let (one, three) = (b.constant_like(1.0, x), b.constant_like(3.0, x));
    let more = b.add(x, one);
    b.store(to, more, None);
    let much = b.multiply(x, three);
    b.store(last, much, None);
    b.finish()
}

/// As [`twice`], but a loop stores the tile at a second place, moved on by 16 each time, before it is stored at the third.
fn in_a_loop(dims: &[usize]) -> Kernel {
    let mut b = Builder::new("in_a_loop");
    let (z, places) = parameters(&mut b);
    let [from, to, last] = [0, 1, 2].map(|place| {
        let base = b.add_pointer(z, places[place]);
        at(&mut b, base, dims, &[1])
    });
    let x = b.load(from, None, None);
    let [begin, end, by] = [0, 48, 16].map(|value| b.integer(value, Scalar::I32));
    b.for_loop([begin, end, by], &[], |b, moved, _| {
        let all = b.splat(moved, dims);
        let to = b.add_pointer(to, all);
        let less = b.binary(Binary::Subtract, x, x);
        let more = b.add(x, less);
        b.store(to, more, None);
        vec![]
    });
    b.store(last, x, None);
    b.finish()
}

/// Stores the sum of a row at a second place, as norms keep what they divide by, before the row is stored at a third.
fn with_its_sum() -> Kernel {
    let mut b = Builder::new("with_its_sum");
    let (z, places) = parameters(&mut b);
    let [from, last] = [0, 2].map(|place| {
        let base = b.add_pointer(z, places[place]);
        at(&mut b, base, &[64], &[1])
    });
    let x = b.load(from, None, None);
    let sum = b.reduce(Combine::Sum, x, 0);
    // As the interpreter adds in another order: a number that both round to.
    let none = b.constant_like(0.0, sum);
    let sum = b.multiply(sum, none);
    let to = b.add_pointer(z, places[1]);
    b.store(to, sum, None);
    b.store(last, x, None);
    b.finish()
}

fn parameters(b: &mut Builder) -> (Value, [Value; 3]) {
    let z = pointer(b, "z", Scalar::F32);
    (z, ["first", "second", "third"].map(|name| b.parameter(name, Type::scalar(Scalar::I32))))
}

fn compare(kernel: &Kernel, places: [i64; 3], what: &str) {
    let [first, second, third] = places.map(Integer);
    let numbers = vec![singles(wave(NUMBERS))];
    let [found, expected] = both(kernel, [1, 1, 1], &numbers, &[Buffer(0), first, second, third]);
    assert_eq!(found, expected, "{what} at {places:?}");
}

#[test]
fn a_tile_is_what_it_was_when_it_was_loaded() {
    let shapes: [(&[usize], &[i64], i64, &str); 4] = [
        (&[64], &[], 1, "a row"),
        (&[64], &[], 2, "a row in steps"),
        (&[8, 8], &[8], 1, "rows"),
        (&[8, 8], &[11], 1, "rows apart"),
    ];
    for (dims, rows, step, what) in shapes {
        let kernel = twice(dims, rows, step);
        for (second, third) in (0..=128).step_by(4).flat_map(|second| [0, 3, 64, 100].map(|third| (second, third))) {
            compare(&kernel, [64, second, third], what);
        }
    }
    let kernel = in_a_loop(&[64]);
    (0..=96).step_by(4).for_each(|second| compare(&kernel, [64, second, 100], "in a loop"));
    let kernel = with_its_sum();
    (62..=130).for_each(|second| compare(&kernel, [64, second, 3], "with its sum"));
}
