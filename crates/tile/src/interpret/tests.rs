mod conversions;
mod elements;
mod errors;
mod random;
mod tiles;

use super::*;
use crate::{Builder, verify};

/// Builds a kernel of one program with a pointer parameter for each slice and runs it on them.
fn run<'a>(
    memory: &mut HostMemory<'a>,
    arguments: &[(u64, Type)],
    build: impl FnOnce(&mut Builder, &[Value]),
) -> Result<(), String> {
    run_grid([1, 1, 1], memory, arguments, build)
}

fn run_grid<'a>(
    grid: [usize; 3],
    memory: &mut HostMemory<'a>,
    arguments: &[(u64, Type)],
    build: impl FnOnce(&mut Builder, &[Value]),
) -> Result<(), String> {
    let mut b = Builder::new("k");
    let parameters: Vec<Value> =
        arguments.iter().enumerate().map(|(i, (_, ty))| b.parameter(format!("p{i}"), ty.clone())).collect();
    build(&mut b, &parameters);
    let kernel = b.finish();
    let verified = verify(&kernel).map_err(|error| error.to_string())?;
    let bits: Vec<u64> = arguments.iter().map(|&(bits, _)| bits).collect();
    interpret(verified, grid, &bits, memory).map_err(|error| error.to_string())
}

fn pointer(scalar: Scalar) -> Type {
    Type::pointer(scalar)
}

/// The tile `0..size` of i32.
fn lanes(b: &mut Builder, size: usize) -> Value {
    b.emit(Operation::Range { start: 0 }, &[], Type::tile(Scalar::I32, &[size]))
}

/// Loads the first elements.
fn load(b: &mut Builder, from: Value, size: usize) -> Value {
    let offsets = lanes(b, size);
    let pointers = b.add_pointer(from, offsets);
    b.load(pointers, None, None)
}

/// Stores a value's elements in row-major order.
fn store(b: &mut Builder, to: Value, x: Value) {
    let size = b.type_of(x).len();
    let x = match b.type_of(x).is_scalar() {
        true => b.splat(x, &[1]),
        false => b.emit(Operation::Reshape, &[x], b.type_of(x).with_dims(&[size])),
    };
    let offsets = lanes(b, size);
    let pointers = b.add_pointer(to, offsets);
    b.store(pointers, x, None);
}
