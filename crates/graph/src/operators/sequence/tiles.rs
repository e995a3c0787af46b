//! Tensors made of nothing but positions as kernels of tiles.

use super::Arange;
use crate::error::Result;
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::of_program;
use crate::view::View;
use crate::walk::{Walk, arguments_of, folded};
use openmps_runtime::Pipeline;
use openmps_tile::{Builder, Cast, Compare, DType, Kernel, Number, Operation, Scalar, Type};

/// Elements of a tile.
const TILE: usize = 1024;

fn dispatch(queue: &Queue, name: &'static str, pipeline: &Pipeline, count: usize, arguments: &[u64]) -> Result<()> {
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, name, pipeline, [count.div_ceil(TILE), 1, 1], arguments) }
}

/// Start and step as the kernel's arguments, where it computes what the native kernel does: integers, and float32 whose numbers and places are
/// float32 too, so that one fused operation rounds once. The native kernel computes the others in float64, which Apple's GPUs do not have.
pub(super) fn exact(arange: &Arange) -> Option<[u64; 2]> {
    let both = [arange.start, arange.step];
    if arange.dtype.is_integer() {
        return Some(both.map(|number| number.to_i64() as u64));
    }
    let single = both.iter().all(|number| f64::from(number.to_f64() as f32) == number.to_f64());
    let fits = arange.dtype == DType::F32 && single && arange.len <= 1 << f32::MANTISSA_DIGITS;
    fits.then(|| both.map(|number| scalar_bits(Number::Float(number.to_f64()), DType::F32)))
}

pub(super) fn arange(arange: &Arange, queue: &Queue, [start, step]: [u64; 2], out: &View) -> Result<()> {
    const NAME: &str = "arange";
    if out.is_empty() {
        return Ok(());
    }
    let pipeline = program::get(NAME, &Key::Other(NAME, vec![arange.dtype], Vec::new()), || count_up(arange.dtype))?;
    dispatch(queue, NAME, &pipeline, out.len(), &[out.address as u64, out.len() as u64, start, step])
}

fn count_up(dtype: DType) -> Kernel {
    let mut b = Builder::new("arange");
    let out = b.parameter("out", Type::pointer(dtype.into()));
    let count = b.parameter("count", Type::scalar(Scalar::I64));
    let compute = if dtype.is_integer() { DType::I64 } else { DType::F32 };
    let [start, step] = ["start", "step"].map(|name| b.parameter(name, Type::scalar(compute.into())));
    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let place = convert(&mut b, at, DType::I64, compute);
    let [start, step] = [start, step].map(|number| b.splat_like(number, place));
    let number = if dtype.is_integer() {
        let way = b.multiply(step, place);
        b.add(start, way)
    } else {
        let ty = b.type_of(place).clone();
        b.emit(Operation::MultiplyAdd, &[step, place, start], ty)
    };
    let number = convert(&mut b, number, compute, dtype);
    let pointers = b.add_pointer(out, at);
    b.store(pointers, number, Some(inside));
    b.finish()
}

/// Ones on the diagonal of a matrix of any strides.
pub(super) fn eye(queue: &Queue, out: &View) -> Result<()> {
    const NAME: &str = "eye";
    if out.is_empty() {
        return Ok(());
    }
    let pipeline = program::get(NAME, &Key::Other(NAME, vec![out.dtype], Vec::new()), || diagonal(out.dtype))?;
    let dims = [0, 1].map(|d| (out.shape[d], vec![out.strides[d]]));
    let mut arguments = vec![out.address as u64, out.len() as u64];
    arguments.extend(arguments_of(&dims));
    dispatch(queue, NAME, &pipeline, out.len(), &arguments)
}

fn diagonal(dtype: DType) -> Kernel {
    let mut b = Builder::new("eye");
    let out = b.parameter("out", Type::pointer(dtype.into()));
    let count = b.parameter("count", Type::scalar(Scalar::I64));
    let walk = Walk::parameters(&mut b, "dim", 2, 1);
    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let places = walk.places(&mut b, at);
    let on = b.compare(Compare::Equal, places[0], places[1]);
    let [zero, one] = [0.0, 1.0].map(|number| b.constant(number, &Type::tile(dtype.into(), &[TILE])));
    let number = b.select(on, one, zero);
    let offset = walk.offset(&mut b, &places, 0);
    let pointers = b.add_pointer(out, offset);
    b.store(pointers, number, Some(inside));
    b.finish()
}

/// A row of `classes` for each index, dense.
pub(super) fn one_hot(queue: &Queue, index: &View, classes: usize, out: &View) -> Result<()> {
    const NAME: &str = "one_hot";
    if out.is_empty() {
        return Ok(());
    }
    let mut dims = folded(index.shape.iter().zip(&index.strides).map(|(&size, &stride)| (size, vec![stride])), 1);
    dims.push((classes, vec![0]));
    let wide = index.dtype == DType::I64;
    let key = Key::Other(NAME, vec![out.dtype], vec![dims.len(), wide.into()]);
    let pipeline = program::get(NAME, &key, || hot(out.dtype, wide, dims.len()))?;
    let mut arguments = vec![index.address as u64, out.address as u64, out.len() as u64];
    arguments.extend(arguments_of(&dims));
    dispatch(queue, NAME, &pipeline, out.len(), &arguments)
}

fn hot(dtype: DType, wide: bool, dims: usize) -> Kernel {
    let mut b = Builder::new("one_hot");
    let index = b.parameter("index", Type::pointer(if wide { Scalar::I64 } else { Scalar::I32 }));
    let out = b.parameter("out", Type::pointer(dtype.into()));
    let count = b.parameter("count", Type::scalar(Scalar::I64));
    let walk = Walk::parameters(&mut b, "dim", dims, 1);
    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let places = walk.places(&mut b, at);
    let offset = walk.offset(&mut b, &places, 0);
    let pointers = b.add_pointer(index, offset);
    let chosen = b.load(pointers, Some(inside), None);
    let chosen = b.cast(Cast::Signed, chosen, Scalar::I64);
    let on = b.compare(Compare::Equal, chosen, places[dims - 1]);
    let [zero, one] = [0.0, 1.0].map(|number| b.constant(number, &Type::tile(dtype.into(), &[TILE])));
    let number = b.select(on, one, zero);
    let pointers = b.add_pointer(out, at);
    b.store(pointers, number, Some(inside));
    b.finish()
}
