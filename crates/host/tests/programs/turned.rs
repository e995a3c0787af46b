//! Tiles whose columns are neighbours in memory, loaded and stored, against the interpreter.

use crate::launch::Given::Buffer;
use crate::tiles::{at, both, keep, pointer};
use openmps_tile::{Builder, Compare, Kernel, Scalar, Type, Value};

const DIMS: [usize; 2] = [32, 16];

/// Whether an element is one of the first rows and columns.
fn inside(b: &mut Builder, [rows, columns]: [usize; 2]) -> Value {
    let below = |b: &mut Builder, axis: usize, bound: usize| {
        let range = b.range(DIMS[axis]);
        let index = b.expand_dims(range, 1 - axis);
        let bound = b.constant_like(bound as f64, index);
        let is_below = b.compare(Compare::Less, index, bound);
        b.broadcast(is_below, &DIMS)
    };
    let [of_rows, of_columns] = [below(b, 0, rows), below(b, 1, columns)];
    b.and(of_rows, of_columns)
}

/// Loads a part of a tile at these strides and stores it at the others.
fn moved(scalar: Scalar, part: [usize; 2], from: [i64; 2], to: Option<[i64; 2]>) -> Kernel {
    let mut b = Builder::new("moved");
    let [x, out] = ["x", "out"].map(|name| pointer(&mut b, name, scalar));
    let (places, mask) = (at(&mut b, x, &DIMS, &from), inside(&mut b, part));
    let other = b.constant(7.0, &Type::tile(scalar, &DIMS));
    let loaded = b.load(places, Some(mask), Some(other));
    let twice = b.add(loaded, loaded);
    match to {
        Some(to) => {
            let places = at(&mut b, out, &DIMS, &to);
            b.store(places, twice, Some(mask));
        }
        None => keep(&mut b, out, twice),
    }
    b.finish()
}

#[test]
fn columns_that_are_neighbours() {
    let memory: Vec<u8> = (0..32 * 64 * 8).map(|i| (i * 37 % 251) as u8).collect();
    let buffers = [memory, vec![3; 32 * 64 * 8]];
    for scalar in [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64] {
        for part in [DIMS, [31, 15], [7, 16], [32, 5], [4, 4], [3, 9], [1, 1], [0, 3]] {
            // Columns that are apart, share elements, and are the same one.
            for from in [[1, 32], [1, 61], [1, 5], [1, 0], [16, 1]] {
                for to in [None, Some([1, 32]), Some([1, 47]), Some([16, 1]), Some([3, 64])] {
                    let kernel = moved(scalar, part, from, to);
                    let [found, expected] = both(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1)]);
                    assert!(found == expected, "{scalar:?} {part:?} {from:?} {to:?}");
                }
            }
        }
    }
}

#[test]
fn of_columns_that_share_memory_the_last_stays() {
    let buffers = [(0..32 * 20 * 4).map(|i| (i * 37 % 251) as u8).collect(), vec![3; 32 * 20 * 4]];
    for to in [[1, 8], [1, 0], [1, 33]] {
        let kernel = moved(Scalar::I32, DIMS, [16, 1], Some(to));
        let [found, expected] = both(&kernel, [1, 1, 1], &buffers, &[Buffer(0), Buffer(1)]);
        assert!(found == expected, "{to:?}");
    }
}
