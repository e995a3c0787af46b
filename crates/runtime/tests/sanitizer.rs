//! The sanitizer: planted mistakes are found, with kernel, line, program and element; right kernels run and give the same results.

#[path = "harness/addresses.rs"]
mod addresses;

use addresses::ByAddress;
use openmps_runtime::sanitizer::{self, Region};
use openmps_runtime::{Device, Error, Pipeline};
use openmps_tile::kernel::{Atomic, Compare, Operation};
use openmps_tile::types::{Scalar, Type};
use openmps_tile::{Builder, InterpretError, Kernel, Value};

const SIZE: usize = 64;

/// `out[i] = x[i] + x[i]`, in tiles; lines 1 to 3 of `double.py` are offsets, load and store. What each line does may be changed.
fn double(offsets: impl Fn(&mut Builder, Value) -> Value, masked_load: bool, masked_store: bool) -> Kernel {
    let mut b = Builder::new("double");
    let [x, out] = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
    let n = b.parameter("n", Type::scalar(Scalar::I64));
    b.at(Some("double.py:1:4".to_owned()));
    let (id, lanes, count) = (b.program_id(0), b.range(SIZE), b.integer(SIZE as i64, Scalar::I64));
    let start = b.multiply(id, count);
    let (start, limit) = (b.splat(start, &[SIZE]), b.splat(n, &[SIZE]));
    let plain = b.add(start, lanes);
    let mask = b.compare(Compare::Less, plain, limit);
    let places = offsets(&mut b, plain);
    b.at(Some("double.py:2:4".to_owned()));
    let from = b.add_pointer(x, places);
    let loaded = b.load(from, masked_load.then_some(mask), None);
    let sum = b.add(loaded, loaded);
    b.at(Some("double.py:3:4".to_owned()));
    let to = b.add_pointer(out, plain);
    b.store(to, sum, masked_store.then_some(mask));
    b.finish()
}

/// Runs a kernel on two arrays of `n` elements that lie in longer ones; what comes out, or what is found.
fn run(kernel: Kernel, n: usize) -> Result<Vec<f32>, (InterpretError, String)> {
    sanitizer::set(true);
    let x: Vec<f32> = (0..n + 2 * SIZE).map(|i| i as f32).collect();
    let mut out = vec![0.0_f32; n + 2 * SIZE];
    let (from, to) = (x.as_ptr().expose_provenance() + SIZE * 4, out.as_mut_ptr().expose_provenance() + SIZE * 4);
    let region = |name: &str, address| Region { name: name.to_owned(), address, bytes: n * 4 };
    let (pipeline, queue) = (Pipeline::new(kernel).expect("verified"), Device::get(0).expect("the host").queue());
    let arguments = [from as u64, to as u64, n as u64];
    let dispatch = || {
        // SAFETY: what lies outside of both regions is refused.
        unsafe { queue.dispatch("double", &pipeline, [n.div_ceil(SIZE), 1, 1], &arguments) }
    };
    // SAFETY: both lie in arrays of this function.
    match unsafe { sanitizer::within(vec![region("x", from), region("out", to)], dispatch) } {
        Ok(()) => Ok(out[SIZE..SIZE + n].to_vec()),
        Err(Error::Sanitizer { found, hint }) => Err((found, hint)),
        Err(other) => panic!("{other}"),
    }
}

fn same(_: &mut Builder, offsets: Value) -> Value {
    offsets
}

#[test]
fn a_right_kernel_runs() {
    let n = 3 * SIZE - 7;
    let expected: Vec<f32> = (0..n).map(|i| 2.0 * (SIZE + i) as f32).collect();
    assert_eq!(run(double(same, true, true), n).expect("nothing is found"), expected);
}

#[test]
fn an_off_by_one_is_found() {
    let next = |b: &mut Builder, offsets: Value| {
        let one = b.constant_like(1.0, offsets);
        b.add(offsets, one)
    };
    let n = 3 * SIZE - 7;
    let (found, hint) = run(double(next, true, true), n).expect_err("the last element is outside");
    let text = found.to_string();
    assert!(
        text.starts_with("kernel `double`, double.py:2:4 (tt.load), program [2, 0, 0], element 56: 4 bytes at"),
        "{text}"
    );
    assert_eq!(hint, format!("; x has {} bytes, this is byte {}", n * 4, n * 4));
    let before = |b: &mut Builder, offsets: Value| {
        let one = b.constant_like(1.0, offsets);
        b.subtract(offsets, one)
    };
    let (found, hint) = run(double(before, true, true), n).expect_err("the first element is outside");
    assert_eq!((found.program, found.element), ([0, 0, 0], Some(0)));
    assert!(hint.ends_with("this is byte -4"), "{hint}");
}

#[test]
fn missing_masks_are_found() {
    let n = SIZE + 5;
    let (found, _) = run(double(same, false, true), n).expect_err("the load has no mask");
    assert!(found.to_string().contains("double.py:2:4 (tt.load), program [1, 0, 0], element 5"), "{found}");
    let (found, _) = run(double(same, true, false), n).expect_err("the store has no mask");
    let text = found.to_string();
    assert!(
        text.contains("double.py:3:4 (tt.store), program [1, 0, 0], element 5: the stored value is undefined"),
        "{text}"
    );
}

/// Every program stores its number, or adds it, to the first element.
fn total(atomic: bool) -> Kernel {
    let mut b = Builder::new("total");
    let out = b.parameter("out", Type::pointer(Scalar::I64));
    b.at(Some("total.py:7:4".to_owned()));
    let id = b.program_id(0);
    if atomic {
        b.emit(Operation::Atomic(Atomic::Add), &[out, id], Type::scalar(Scalar::I64));
    } else {
        b.store(out, id, None);
    }
    b.finish()
}

#[test]
fn a_racing_store_is_found_and_an_atomic_one_is_none() {
    sanitizer::set(true);
    let queue = Device::get(0).expect("the host").queue();
    let buffer = queue.allocate(8).expect("memory");
    let dispatch = |kernel| {
        queue.fill_at(buffer.address(), 0, 8).expect("filled");
        let pipeline = Pipeline::new(kernel).expect("verified");
        // SAFETY: the buffer holds the element that all programs store to.
        unsafe { queue.dispatch("total", &pipeline, [5, 1, 1], &[buffer.address() as u64]) }
    };
    dispatch(total(true)).expect("nothing is found");
    let mut bytes = [0; 8];
    queue.read_at(&mut bytes, buffer.address()).expect("read");
    assert_eq!(u64::from_ne_bytes(bytes), 10);
    let text = dispatch(total(false)).expect_err("a race").to_string();
    assert!(
        text.contains("kernel `total`, total.py:7:4 (tt.store), program [1, 0, 0], element 0: 8 bytes at"),
        "{text}"
    );
    assert!(text.contains("were stored by program [0, 0, 0] too"), "{text}");
}

#[test]
fn freed_buffers_are_out_of_bounds() {
    sanitizer::set(true);
    let queue = Device::get(0).expect("the host").new_queue();
    let address = queue.allocate(4096).expect("memory").address();
    let pipeline = Pipeline::new(total(false)).expect("verified");
    // SAFETY: the sanitizer refuses the address.
    let error = unsafe { queue.dispatch("total", &pipeline, [1, 1, 1], &[address as u64]) };
    assert!(error.expect_err("the buffer is gone").to_string().contains("out of bounds"));
}
