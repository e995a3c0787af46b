//! Runs without a defined result.

use super::*;
use Scalar::*;

/// A kernel over a buffer of four f32; returns what is said of its run.
fn error(build: impl FnOnce(&mut Builder, Value)) -> String {
    let mut buffer = [0_f32; 4];
    let mut memory = HostMemory::new();
    let arguments = [(memory.register(&mut buffer), pointer(F32))];
    run(&mut memory, &arguments, |b, p| build(b, p[0])).map_or_else(hide_address, |()| "none".to_owned())
}

/// Addresses differ from run to run.
fn hide_address(message: String) -> String {
    match message.split_once("0x") {
        Some((before, after)) => {
            format!("{before}ADDRESS{}", after.trim_start_matches(|x: char| x.is_ascii_hexdigit()))
        }
        None => message,
    }
}

/// A tile of four elements of which only the first is defined.
fn mostly_undefined(b: &mut Builder, from: Value) -> Value {
    let (x, one) = (lanes(b, 4), b.constant(1.0, &Type::tile(I32, &[4])));
    let mask = b.compare(Compare::Less, x, one);
    let pointers = b.add_pointer(from, x);
    b.load(pointers, Some(mask), None)
}

#[test]
fn out_of_bounds() {
    let message = error(|b, p| {
        load(b, p, 5);
    });
    assert_eq!(
        message,
        "kernel `k`, instruction 3 (tt.load), program [0, 0, 0], element 4: 4 bytes at ADDRESS are out of bounds"
    );
    let message = error(|b, p| {
        let x = b.constant(0.0, &Type::tile(F32, &[6]));
        store(b, p, x)
    });
    assert_eq!(
        message,
        "kernel `k`, instruction 5 (tt.store), program [0, 0, 0], element 4: 4 bytes at ADDRESS are out of bounds"
    );
    let message = error(|b, p| {
        let x = b.integer(-1, I32);
        let p = b.add_pointer(p, x);
        b.load(p, None, None);
    });
    assert!(message.ends_with("element 0: 4 bytes at ADDRESS are out of bounds"), "{message}");
    let message = error(|b, p| {
        let x = b.integer(i64::MAX, I64);
        let p = b.add_pointer(p, x);
        b.load(p, None, None);
    });
    assert!(message.ends_with("element 0: 4 bytes at ADDRESS are out of bounds"), "{message}");
}

#[test]
fn uninitialised_and_read_only() {
    let (x, mut y) = ([0_i16; 2], [0_i16; 2]);
    let mut memory = HostMemory::new();
    let arguments =
        [(memory.register_read_only(&x), pointer(I16)), (memory.register_uninitialised(&mut y), pointer(I16))];
    let message = run(&mut memory, &arguments, |b, p| {
        load(b, p[1], 2);
    })
    .map_err(hide_address);
    assert_eq!(
        message,
        Err("kernel `k`, instruction 3 (tt.load), program [0, 0, 0], element 0: 2 bytes at ADDRESS are uninitialised"
            .to_owned())
    );
    let message = run(&mut memory, &arguments, |b, p| {
        let x = load(b, p[0], 2);
        store(b, p[0], x)
    })
    .map_err(hide_address);
    assert!(message.is_err_and(|x| x.ends_with("element 0: 2 bytes at ADDRESS are for reading only")));
    let result = run(&mut memory, &arguments, |b, p| {
        let x = load(b, p[0], 2);
        store(b, p[1], x);
        load(b, p[1], 2);
    });
    assert_eq!(result, Ok(()));
}

#[test]
fn undefined_elements_that_matter() {
    let message = error(|b, p| {
        let x = mostly_undefined(b, p);
        let x = b.exp(x);
        store(b, p, x)
    });
    assert_eq!(
        message,
        "kernel `k`, instruction 11 (tt.store), program [0, 0, 0], element 1: the stored value is undefined"
    );
    let message = error(|b, p| {
        let x = mostly_undefined(b, p);
        let x = b.reduce(Combine::Sum, x, 0);
        store(b, p, x)
    });
    assert!(message.ends_with("element 0: the stored value is undefined"), "{message}");
    let message = error(|b, p| {
        let x = mostly_undefined(b, p);
        let mask = b.compare(Compare::Less, x, x);
        let (x, offsets) = (b.constant_like(0.0, x), lanes(b, 4));
        let pointers = b.add_pointer(p, offsets);
        b.store(pointers, x, Some(mask));
    });
    assert!(message.ends_with("element 1: the mask is undefined"), "{message}");
    let message = error(|b, p| {
        let x = mostly_undefined(b, p);
        let offsets = b.cast(Cast::FloatToSigned, x, I32);
        let pointers = b.add_pointer(p, offsets);
        b.load(pointers, None, None);
    });
    assert!(message.ends_with("element 1: the address is undefined"), "{message}");
    let message = error(|b, p| {
        let x = mostly_undefined(b, p);
        let x = b.reduce(Combine::Sum, x, 0);
        let bound = b.cast(Cast::FloatToSigned, x, I32);
        let one = b.integer(1, I32);
        b.for_loop([one, bound, one], &[], |_, _, _| vec![]);
    });
    assert_eq!(message, "kernel `k`, instruction 9 (scf.for), program [0, 0, 0]: the upper bound is undefined");
}

#[test]
fn undefined_elements_that_do_not_matter() {
    let message = error(|b, p| {
        let x = mostly_undefined(b, p);
        let (offsets, one) = (lanes(b, 4), b.constant(1.0, &Type::tile(I32, &[4])));
        let first = b.compare(Compare::Less, offsets, one);
        let zero = b.constant_like(0.0, x);
        let chosen = b.select(first, x, zero);
        store(b, p, chosen);
        let pointers = b.add_pointer(p, offsets);
        b.store(pointers, x, Some(first));
    });
    assert_eq!(message, "none");
}

#[test]
fn steps_and_nested_places() {
    let message = error(|b, _| {
        let zero = b.integer(0, I32);
        b.for_loop([zero; 3], &[], |_, _, _| vec![]);
    });
    assert_eq!(
        message,
        "kernel `k`, instruction 1 (scf.for), program [0, 0, 0]: the loop's step is 0, expected at least 1"
    );
    let message = error(|b, p| {
        let bounds = [0, 9, 1].map(|x| b.integer(x, I64));
        b.for_loop(bounds, &[], |b, i, _| {
            let p = b.add_pointer(p, i);
            b.load(p, None, None);
            vec![]
        });
    });
    assert_eq!(
        message,
        "kernel `k`, instruction 3/1 (tt.load), program [0, 0, 0], element 0: 4 bytes at ADDRESS are out of bounds"
    );
}

#[test]
fn launches() {
    let mut b = Builder::new("k");
    b.parameter("x", Type::scalar(F32));
    let kernel = b.finish();
    let launch = |grid, arguments: &[u64]| {
        interpret(verify(&kernel).unwrap(), grid, arguments, &mut HostMemory::new()).map_err(|error| error.to_string())
    };
    assert_eq!(
        launch([1, 1, 1], &[]),
        Err("kernel `k`, the kernel, program [0, 0, 0]: 0 arguments, expected 1".to_owned())
    );
    assert_eq!(
        launch([1, 1 << 31, 1], &[0]),
        Err("kernel `k`, the kernel, program [0, 0, 0]: axis 1 of the grid has 2147483648 programs, expected at most 2147483647".to_owned())
    );
    assert_eq!(launch([3, 0, 2], &[0]), Ok(()));
}

#[test]
fn memory_of_sizes_that_no_element_has() {
    let mut buffer = [1_u8; 32];
    let mut memory = HostMemory::new();
    let address = memory.register(&mut buffer);
    assert_eq!(memory.read(address, 3), Ok(0x01_01_01));
    assert_eq!(memory.read(address, 16), Err(MemoryError::OutOfBounds { address, size: 16 }));
    assert_eq!(memory.write(u64::MAX, 8, 0), Err(MemoryError::OutOfBounds { address: u64::MAX, size: 8 }));
}
