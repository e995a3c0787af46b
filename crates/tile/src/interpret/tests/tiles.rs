//! Whole kernels: every operation on tiles, loads and stores, loops, the grid.

use super::*;
use crate::samples::{row_softmax, vector_add};
use Scalar::*;

/// What a kernel without inputs stores, as i32.
fn stored<const N: usize>(build: impl FnOnce(&mut Builder) -> Value) -> [i32; N] {
    let mut out = [-1; N];
    let mut memory = HostMemory::new();
    let address = memory.register_uninitialised(&mut out);
    let result = run(&mut memory, &[(address, pointer(I32))], |b, parameters| {
        let x = build(b);
        store(b, parameters[0], x);
    });
    assert_eq!(result, Ok(()));
    out
}

#[test]
fn shapes() {
    assert_eq!(stored(|b| b.emit(Operation::Range { start: -2 }, &[], Type::tile(I32, &[4]))), [-2, -1, 0, 1]);
    assert_eq!(
        stored(|b| {
            let x = b.integer(7, I32);
            b.splat(x, &[2, 2])
        }),
        [7; 4]
    );
    assert_eq!(
        stored(|b| {
            let x = lanes(b, 3);
            let x = b.expand_dims(x, 0);
            b.broadcast(x, &[2, 3])
        }),
        [0, 1, 2, 0, 1, 2]
    );
    assert_eq!(
        stored(|b| {
            let x = lanes(b, 3);
            let x = b.expand_dims(x, 1);
            b.broadcast(x, &[3, 2])
        }),
        [0, 0, 1, 1, 2, 2]
    );
    assert_eq!(
        stored(|b| {
            let x = lanes(b, 4);
            let x = b.emit(Operation::Reshape, &[x], Type::tile(I32, &[2, 1, 2]));
            b.broadcast(x, &[2, 2, 2])
        }),
        [0, 1, 0, 1, 2, 3, 2, 3]
    );
}

#[test]
fn reductions_on_each_axis() {
    let cube = |b: &mut Builder| {
        let x = lanes(b, 12);
        b.emit(Operation::Reshape, &[x], Type::tile(I32, &[2, 3, 2]))
    };
    assert_eq!(
        stored(|b| {
            let x = cube(b);
            b.reduce(Combine::Sum, x, 0)
        }),
        [6, 8, 10, 12, 14, 16]
    );
    assert_eq!(
        stored(|b| {
            let x = cube(b);
            b.reduce(Combine::Sum, x, 1)
        }),
        [6, 9, 24, 27]
    );
    assert_eq!(
        stored(|b| {
            let x = cube(b);
            b.reduce(Combine::Sum, x, 2)
        }),
        [1, 5, 9, 13, 17, 21]
    );
    let all = |combine| {
        stored::<1>(|b| {
            let x = b.emit(Operation::Range { start: 1 }, &[], Type::tile(I32, &[5]));
            b.reduce(combine, x, 0)
        })[0]
    };
    let of_integers = Combine::ALL.iter().filter(|x| ![Combine::MinimumNumber, Combine::MaximumNumber].contains(x));
    assert_eq!(of_integers.map(|&x| all(x)).collect::<Vec<_>>(), [15, 120, 1, 5, 0, 7, 1]);
}

#[test]
fn reductions_of_floats_and_truth_values() {
    let reduced = |combine, values: [f32; 3]| {
        let (mut x, mut out) = (values, [0_f32]);
        let mut memory = HostMemory::new();
        let arguments = [(memory.register(&mut x), pointer(F32)), (memory.register(&mut out), pointer(F32))];
        run(&mut memory, &arguments, |b, p| {
            let x = load(b, p[0], 3);
            let x = b.reduce(combine, x, 0);
            store(b, p[1], x)
        })
        .unwrap();
        out[0]
    };
    assert_eq!(reduced(Combine::Minimum, [3.0, -1.0, 2.0]), -1.0);
    assert_eq!(reduced(Combine::Maximum, [-f32::INFINITY; 3]), -f32::INFINITY);
    assert!(reduced(Combine::Maximum, [3.0, f32::NAN, 2.0]).is_nan());
    assert_eq!(reduced(Combine::MaximumNumber, [f32::NAN, 3.0, 2.0]), 3.0);
    assert_eq!(reduced(Combine::MinimumNumber, [3.0, f32::NAN, 2.0]), 2.0);
    assert!(reduced(Combine::MinimumNumber, [f32::NAN; 3]).is_nan());
    assert!(reduced(Combine::Minimum, [f32::NAN, 1.0, 2.0]).is_nan());
    assert_eq!(reduced(Combine::Sum, [1e8, -1e8, 1.0]), 1.0);
    let truth = |combine, limit| {
        stored::<1>(|b| {
            let (x, limit) = (lanes(b, 4), b.constant(limit, &Type::tile(I32, &[4])));
            let x = b.compare(Compare::Less, x, limit);
            let x = b.reduce(combine, x, 0);
            b.cast(Cast::Unsigned, x, I32)
        })[0]
    };
    assert_eq!(
        [truth(Combine::And, 4.0), truth(Combine::And, 3.0), truth(Combine::Or, 1.0), truth(Combine::Or, 0.0)],
        [1, 0, 1, 0]
    );
    assert_eq!([truth(Combine::Xor, 3.0), truth(Combine::Xor, 2.0)], [1, 0]);
}

#[test]
fn each_operation_runs_in_a_kernel() {
    let x: Vec<f32> = vec![-1.5, 0.0, 0.5, 2.0];
    for &operation in Unary::ALL.iter().filter(|&&x| x != Unary::Not) {
        let mut out = [0_f32; 4];
        let mut memory = HostMemory::new();
        let arguments = [(memory.register_read_only(&x), pointer(F32)), (memory.register(&mut out), pointer(F32))];
        run(&mut memory, &arguments, |b, p| {
            let x = load(b, p[0], 4);
            let x = b.unary(operation, x);
            store(b, p[1], x)
        })
        .unwrap();
        let expected = |x: f32| element::unary(operation, F32, x.to_bits().into()) as u32;
        assert_eq!(
            out.map(f32::to_bits).to_vec(),
            x.iter().map(|&x| expected(x)).collect::<Vec<_>>(),
            "{}",
            operation.text()
        );
    }
    let y = [3_i16, -2, 0, 300];
    for &operation in Binary::ALL
        .iter()
        .filter(|x| ![Binary::Power, Binary::Atan2, Binary::MinimumNumber, Binary::MaximumNumber].contains(x))
    {
        let mut out = [0_i16; 4];
        let mut memory = HostMemory::new();
        let arguments = [(memory.register_read_only(&y), pointer(I16)), (memory.register(&mut out), pointer(I16))];
        run(&mut memory, &arguments, |b, p| {
            let x = load(b, p[0], 4);
            let seven = b.constant_like(7.0, x);
            let x = b.binary(operation, x, seven);
            store(b, p[1], x);
        })
        .unwrap();
        let expected = |y: i16| element::binary(operation, I16, u64::from(y as u16), 7) as i16;
        assert_eq!(out, y.map(expected), "{}", operation.text());
    }
}

#[test]
fn select_and_masks() {
    assert_eq!(
        stored(|b| {
            let (x, two) = (lanes(b, 4), b.constant(2.0, &Type::tile(I32, &[4])));
            let condition = b.compare(Compare::Less, x, two);
            let other = b.negate(x);
            b.select(condition, x, other)
        }),
        [0, 1, -2, -3]
    );
    let (x, mut out) = ([1.5_f64, 2.5, 3.5], [9.0_f64; 4]);
    let mut memory = HostMemory::new();
    let arguments = [(memory.register_read_only(&x), pointer(F64)), (memory.register(&mut out), pointer(F64))];
    run(&mut memory, &arguments, |b, p| {
        let offsets = lanes(b, 4);
        let limits = [3.0, 1.0].map(|x| b.constant(x, &Type::tile(I32, &[4])));
        let inside = b.compare(Compare::Less, offsets, limits[0]);
        let but_first = b.compare(Compare::GreaterEqual, offsets, limits[1]);
        let other = b.constant(-7.0, &Type::tile(F64, &[4]));
        let pointers = b.add_pointer(p[0], offsets);
        let loaded = b.load(pointers, Some(inside), Some(other));
        let pointers = b.add_pointer(p[1], offsets);
        b.store(pointers, loaded, Some(but_first));
    })
    .unwrap();
    assert_eq!(out, [9.0, 2.5, 3.5, -7.0]);
}

#[test]
fn loops() {
    let sum = |lower: i64, upper: i64, step: i64, scalar| {
        stored::<2>(|b| {
            let bounds = [lower, upper, step].map(|x| b.integer(x, scalar));
            let none = b.integer(0, I32);
            let results = b.for_loop(bounds, &[none, none], |b, index, carried| {
                let index = b.cast(Cast::Signed, index, I32);
                let one = b.integer(1, I32);
                vec![b.add(carried[0], index), b.add(carried[1], one)]
            });
            let results = results.iter().map(|&x| b.splat(x, &[2])).collect::<Vec<_>>();
            let (x, one) = (lanes(b, 2), b.constant(1.0, &Type::tile(I32, &[2])));
            let first = b.compare(Compare::Less, x, one);
            b.select(first, results[0], results[1])
        })
    };
    assert_eq!(sum(0, 5, 1, I64), [10, 5]);
    assert_eq!(sum(-3, 4, 3, I32), [0, 3]);
    assert_eq!(sum(5, 5, 1, I16), [0, 0]);
    assert_eq!(sum(5, -5, 1, I64), [0, 0]);
    assert_eq!(sum(120, 127, 100, I8), [120, 1]);
    assert_eq!(sum(i64::MAX - 1, i64::MAX, i64::MAX, I64)[1], 1);
}

#[test]
fn carried_values_are_exchanged_at_once() {
    let fibonacci = stored::<1>(|b| {
        let bounds = [0, 10, 1].map(|x| b.integer(x, I32));
        let first = [0, 1].map(|x| b.integer(x, I32));
        b.for_loop(bounds, &first, |b, _, x| vec![x[1], b.add(x[0], x[1])])[0]
    });
    assert_eq!(fibonacci, [55]);
}

#[test]
fn the_grid_in_order() {
    let mut out = [0_i32; 24];
    let mut memory = HostMemory::new();
    let arguments = [(memory.register(&mut out), pointer(I32))];
    run_grid([2, 3, 4], &mut memory, &arguments, |b, p| {
        let id = [0, 1, 2].map(|axis| b.emit(Operation::ProgramId(axis), &[], Type::scalar(I32)));
        let count = [0, 1].map(|axis| b.emit(Operation::ProgramCount(axis), &[], Type::scalar(I32)));
        let rows = b.multiply(id[2], count[1]);
        let row = b.add(rows, id[1]);
        let first = b.multiply(row, count[0]);
        let offset = b.add(first, id[0]);
        // Each program stores one more than its predecessor did.
        let (one, zero) = (b.integer(1, I32), b.integer(0, I32));
        let (previous, is_first) = (b.subtract(offset, one), b.compare(Compare::Equal, offset, zero));
        let is_not = b.not(is_first);
        let (from, to) = (b.add_pointer(p[0], previous), b.add_pointer(p[0], offset));
        let x = b.load(from, Some(is_not), Some(zero));
        let x = b.add(x, one);
        b.store(to, x, None);
    })
    .unwrap();
    assert_eq!(out.to_vec(), (1..=24).collect::<Vec<i32>>());
}

#[test]
fn arguments_are_bits_in_the_low_end() {
    let mut out = [0_f32; 3];
    let mut memory = HostMemory::new();
    let (address, high) = (memory.register(&mut out), 0xdead_beef_u64 << 32);
    let arguments = [
        (address, pointer(F32)),
        (high | u64::from(1.5_f32.to_bits()), Type::scalar(F32)),
        (-2_i64 as u64, Type::scalar(I8)),
        (f64::to_bits(0.25), Type::scalar(F64)),
    ];
    run(&mut memory, &arguments, |b, p| {
        let values = [p[1], b.cast(Cast::SignedToFloat, p[2], F32), b.cast(Cast::Float, p[3], F32)];
        for (i, x) in values.into_iter().enumerate() {
            let offset = b.integer(i as i64, I64);
            let to = b.add_pointer(p[0], offset);
            b.store(to, x, None);
        }
    })
    .unwrap();
    assert_eq!(out, [1.5, -2.0, 0.25]);
}

#[test]
fn sample_kernels() {
    let (x, y, mut out) = ([1.0_f32, 2.0, 3.0, 4.0, 5.0], [0.5_f32; 5], [0_f32; 5]);
    let mut memory = HostMemory::new();
    let arguments =
        [memory.register_read_only(&x), memory.register_read_only(&y), memory.register_uninitialised(&mut out), 5];
    interpret(verify(&vector_add(4)).unwrap(), [2, 1, 1], &arguments, &mut memory).unwrap();
    assert_eq!(out, [1.5, 2.5, 3.5, 4.5, 5.5]);

    let (x, mut out) =
        ([0.0_f32, 0.0, 0.0, 0.0, 0.0, 1.0, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, 1.0], [0_f32; 10]);
    let mut memory = HostMemory::new();
    let arguments = [memory.register_read_only(&x), memory.register_uninitialised(&mut out), 5];
    interpret(verify(&row_softmax(4)).unwrap(), [2, 1, 1], &arguments, &mut memory).unwrap();
    let (high, low) = (0.422_318_8, 0.155_362_4);
    for (found, expected) in out.into_iter().zip([0.2, 0.2, 0.2, 0.2, 0.2, high, 0.0, low, 0.0, high]) {
        assert!((found - expected).abs() < 1e-6, "{out:?}");
    }
}

#[test]
fn raw_memory() {
    let (x, mut out) = ([1_i64, -2], [0_i64; 2]);
    let mut b = Builder::new("copy");
    let parameters = ["x", "out"].map(|name| b.parameter(name, pointer(I64)));
    let loaded = load(&mut b, parameters[0], 2);
    store(&mut b, parameters[1], loaded);
    let kernel = b.finish();
    let arguments = [x.as_ptr().expose_provenance() as u64, out.as_mut_ptr().expose_provenance() as u64];
    // SAFETY: the kernel reads two elements of `x` and writes two of `out`.
    let mut memory = unsafe { RawMemory::new() };
    interpret(verify(&kernel).unwrap(), [1, 1, 1], &arguments, &mut memory).unwrap();
    assert_eq!(out, x);
    let error = interpret(verify(&kernel).unwrap(), [1, 1, 1], &[0, 0], &mut memory).unwrap_err().to_string();
    assert_eq!(
        error,
        "kernel `copy`, instruction 3 (tt.load), program [0, 0, 0], element 0: 8 bytes at 0x0 are out of bounds"
    );
}
