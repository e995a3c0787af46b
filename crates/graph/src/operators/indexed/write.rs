//! Writing by index as kernels of tiles. Where several values meet, a program walks them in their order, so that the result is the
//! native kernel's and the same every time; places that share no element go side by side.

use super::{Named, Other, Parameters};
use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::tiles::of_program;
use crate::walk::{Dimension, Walk, arguments_of, folded};
use openmps_host::native::scatter::Reduce;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Binary, Builder, DType, Kernel, Operation, Scalar, Type, Value};

const IN_ORDER: &str = "write_by_index";
const AT_ONCE: &str = "write_by_index_at_once";

/// Elements of a tile.
const TILE: usize = 256;

/// So few places side by side leave a GPU idle,
const NARROW: usize = 4096;
/// which is worse than the other ways from so many values for a place on.
const LONG: usize = 64;

/// What the kernels depend on.
struct Form {
    dtype: DType,
    reduce: Reduce,
    /// For each axis whether its indices are wide.
    axes: Vec<usize>,
    /// Dimensions that move in the tensor themselves, and those that only indices do.
    dims: [usize; 2],
    /// For each axis whether its indices vary along the former.
    varies: Vec<bool>,
}

impl Form {
    /// What elements are to the kernel: bits where they are only moved.
    fn scalar(&self) -> Scalar {
        if self.reduce == Reduce::Assign { self.dtype.bits().into() } else { self.dtype.into() }
    }

    fn key(&self, name: &'static str) -> Key {
        let varies = self.varies.iter().map(|&varies| usize::from(varies));
        let numbers = self.dims.into_iter().chain([self.reduce as usize]).chain(self.axes.iter().copied());
        Key::Other(name, vec![self.dtype], numbers.chain(varies).collect())
    }
}

fn count(dims: &[Dimension]) -> usize {
    dims.iter().map(|(size, _)| size).product()
}

/// The dimensions whose places share no element, and the others.
fn parts(named: &Named, values: &[isize]) -> [Vec<Dimension>; 2] {
    [true, false].map(|own| {
        let part = named.dimensions(Some(values)).filter(|(size, strides)| (*size > 1 && strides[0] != 0) == own);
        folded(part, 2 + named.axes.len())
    })
}

/// Whether additions of this type are atomic on every GPU.
fn is_atomic(dtype: DType, reduce: Reduce) -> bool {
    reduce == Reduce::Add && matches!(dtype, DType::F32 | DType::I32)
}

/// How many places go side by side, and how many values are walked for each.
fn extent(named: &Named) -> [usize; 2] {
    parts(named, &vec![0; named.dims.len()]).map(|part| count(&part))
}

fn is_narrow([side_by_side, walked]: [usize; 2]) -> bool {
    side_by_side < NARROW && walked >= LONG
}

/// Whether kernels write these: not means, and not many values one after the other where a native kernel may do it.
pub fn takes(queue: &Queue, named: &Named, dtype: DType, reduce: Reduce) -> bool {
    let sums = dtype != DType::Bool || reduce == Reduce::Assign;
    let visible = queue.device().properties().unified_memory;
    sums && reduce != Reduce::Mean && (!visible || is_atomic(dtype, reduce) || !is_narrow(extent(named)))
}

/// Brings values, with these strides over the selection, into the named elements.
pub fn put(queue: &Queue, operator: &'static str, named: &Named, reduce: Reduce, values: &Other) -> Result<()> {
    if named.dims.contains(&0) {
        return Ok(());
    }
    let dtype = values.dtype;
    if is_atomic(dtype, reduce) && is_narrow(extent(named)) {
        return at_once(queue, operator, named, dtype, reduce, Some(values));
    }
    let [own, others] = parts(named, &values.strides);
    let varies =
        (0..named.axes.len()).map(|axis| own.iter().any(|(_, strides)| strides[1 + axis] != 0)).collect::<Vec<_>>();
    let form = Form { dtype, reduce, axes: named.key(), dims: [own.len(), others.len()], varies };
    let pipeline = program::get(operator, &form.key(IN_ORDER), || in_order(&form))?;
    let mut arguments = named.arguments();
    arguments.extend([values.address, count(&own), count(&others)].map(|number| number as u64));
    arguments.extend(arguments_of(&own).chain(arguments_of(&others)));
    // SAFETY: strides and sizes are those of the views, which the frontend keeps alive; the kernel holds indices to their axes.
    unsafe { program::launch(queue, operator, &pipeline, [count(&own).div_ceil(TILE), 1, 1], &arguments) }
}

/// Sets the named elements to what a reduction of nothing is.
pub fn fill(queue: &Queue, operator: &'static str, named: &Named, dtype: DType, reduce: Reduce) -> Result<()> {
    if named.dims.contains(&0) {
        return Ok(());
    }
    at_once(queue, operator, named, dtype, reduce, None)
}

/// Every value by itself: atomic additions, whose order is not determined, or one number everywhere.
fn at_once(
    queue: &Queue,
    operator: &'static str,
    named: &Named,
    dtype: DType,
    reduce: Reduce,
    values: Option<&Other>,
) -> Result<()> {
    let none = vec![0; named.dims.len()];
    let strides = values.map_or(&none[..], |values| &values.strides[..]);
    let dims = folded(named.dimensions(Some(strides)), 2 + named.axes.len());
    let form =
        Form { dtype, reduce, axes: named.key(), dims: [dims.len(), values.is_some().into()], varies: Vec::new() };
    let pipeline = program::get(operator, &form.key(AT_ONCE), || one_by_one(&form, values.is_some()))?;
    let mut arguments = named.arguments();
    arguments.extend(values.map(|values| values.address as u64));
    arguments.push(count(&dims) as u64);
    arguments.extend(arguments_of(&dims));
    // SAFETY: as in `put`.
    unsafe { program::launch(queue, operator, &pipeline, [count(&dims).div_ceil(TILE), 1, 1], &arguments) }
}

fn combined(b: &mut Builder, form: &Form, old: Value, new: Value) -> Value {
    let unsigned = form.dtype == DType::U8;
    match form.reduce {
        Reduce::Add | Reduce::Mean => b.add(old, new),
        Reduce::Multiply => b.multiply(old, new),
        Reduce::Minimum if unsigned => b.binary(Binary::MinimumUnsigned, old, new),
        Reduce::Maximum if unsigned => b.binary(Binary::MaximumUnsigned, old, new),
        Reduce::Minimum => b.minimum(old, new),
        Reduce::Maximum => b.maximum(old, new),
        Reduce::Assign => new,
    }
}

/// What a reduction of nothing is.
fn identity(form: &Form) -> f64 {
    let (smallest, largest) = form.dtype.bounds();
    match form.reduce {
        Reduce::Multiply => 1.0,
        Reduce::Minimum => largest,
        Reduce::Maximum => smallest,
        Reduce::Assign | Reduce::Add | Reduce::Mean => 0.0,
    }
}

fn in_order(form: &Form) -> Kernel {
    let mut b = Builder::new(IN_ORDER);
    let parameters = Parameters::new(&mut b, form.scalar(), &form.axes);
    let values = b.parameter("values", Type::pointer(form.scalar()));
    let [side_by_side, walked] = ["places", "walked"].map(|name| b.parameter(name, Type::scalar(Scalar::I64)));
    let tensors = 2 + form.axes.len();
    let own = Walk::parameters(&mut b, "own", form.dims[0], tensors);
    let others = Walk::parameters(&mut b, "other", form.dims[1], tensors);

    let (at, inside) = of_program(&mut b, 0, TILE, side_by_side);
    let places = own.places(&mut b, at);
    let offsets: Vec<Value> = (0..tensors).map(|tensor| own.offset(&mut b, &places, tensor)).collect();
    let [zero, one] = [0, 1].map(|number| b.integer(number, Scalar::I64));
    b.for_loop([zero, walked, one], &[], |b, at, _| {
        let places = others.places(b, at);
        let mut offset = offsets[0];
        let mut mask = inside;
        for (axis, &varies) in form.varies.iter().enumerate() {
            let mut of_index = others.offset(b, &places, 1 + axis);
            if varies {
                of_index = b.splat_like(of_index, offset);
                of_index = b.add(of_index, offsets[1 + axis]);
            }
            let index = parameters.index(b, axis, of_index, varies.then_some(inside));
            let (step, fits) = parameters.step(b, axis, index);
            let (step, fits) = (b.splat_like(step, offset), b.splat_like(fits, offset));
            offset = b.add(offset, step);
            mask = b.and(mask, fits);
        }
        let of_value = others.offset(b, &places, tensors - 1);
        let from = b.add_pointer(values, of_value);
        let from = b.add_pointer(from, offsets[tensors - 1]);
        let zeros = b.constant(0.0, &Type::tile(form.scalar(), &[TILE]));
        let mut new = b.load(from, Some(inside), Some(zeros));
        let to = b.add_pointer(parameters.x, offset);
        if form.reduce != Reduce::Assign {
            let old = b.load(to, Some(mask), Some(zeros));
            new = combined(b, form, old, new);
        }
        b.store(to, new, Some(mask));
        // The next value for an element may be another thread's.
        b.emit_with_blocks(Operation::Barrier, &[], &[], Vec::new());
        Vec::new()
    });
    b.finish()
}

fn one_by_one(form: &Form, adds: bool) -> Kernel {
    let mut b = Builder::new(AT_ONCE);
    let scalar = form.dtype.into();
    let parameters = Parameters::new(&mut b, scalar, &form.axes);
    let values = adds.then(|| b.parameter("values", Type::pointer(scalar)));
    let count = b.parameter("count", Type::scalar(Scalar::I64));
    let walk = Walk::parameters(&mut b, "dim", form.dims[0], 2 + form.axes.len());

    let (at, inside) = of_program(&mut b, 0, TILE, count);
    let places = walk.places(&mut b, at);
    let (offset, mask) = parameters.element(&mut b, &walk, &places, inside, None);
    let to = b.add_pointer(parameters.x, offset);
    let ty = Type::tile(scalar, &[TILE]);
    match values {
        Some(values) => {
            let of_value = walk.offset(&mut b, &places, 1 + form.axes.len());
            let from = b.add_pointer(values, of_value);
            let zeros = b.constant(0.0, &ty);
            let new = b.load(from, Some(inside), Some(zeros));
            let atomic = if form.dtype.is_float() { Atomic::AddFloat } else { Atomic::Add };
            b.emit(Operation::Atomic(atomic), &[to, new, mask], ty);
        }
        None => {
            let number = b.constant(identity(form), &ty);
            b.store(to, number, Some(mask));
        }
    }
    b.finish()
}
