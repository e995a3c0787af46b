//! Pooling and its gradient as kernels of tiles, for GPUs: a result walks over its window, a gradient over the windows that hold its pixel.

use super::windows::{Window, Windows};
use super::{Pooling, PoolingType, lowest};
use crate::error::{Error, Result};
use crate::image::paddings;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{Images, dimensions, index_type, is_wide, load, load_wide, numbers, of_program, within};
use crate::view::View;
use openmps_host::native::pooling::PoolingKind;
use openmps_runtime::Buffer;
use openmps_tile::{Builder, Compare, DType, Kernel, Scalar, Type, Value};

/// Results of a tile.
const TILE: usize = 256;

/// What a kernel depends on.
struct Form {
    dtype: DType,
    kind: PoolingKind,
    /// Windows cut the image evenly instead of being a stride apart.
    adaptive: bool,
    /// Places are results too, or what the gradient of the largest is found by.
    places: bool,
    narrow: Scalar,
}

impl Form {
    fn of(pooling: &Pooling, out: &View, places: bool) -> Form {
        let (kind, adaptive) = (pooling.window_kind(), pooling.adaptive || pooling.global);
        Form { dtype: out.dtype, kind, adaptive, places, narrow: index_type(out.len() + TILE) }
    }

    fn key(&self, operator: &'static str) -> Key {
        let kind = match self.kind {
            PoolingKind::Max => 0,
            PoolingKind::Average => 1,
            PoolingKind::AverageWithPadding => 2,
        };
        let numbers = vec![kind, self.adaptive.into(), self.places.into(), is_wide(self.narrow)];
        Key::Other(operator, vec![self.dtype], numbers)
    }
}

/// The numbers of both kernels: sizes of the input and of the windows' results, the sizes of windows, their strides, paddings on both sides.
fn geometry(
    operator: &'static str,
    pooling: &Pooling,
    input: [usize; 2],
    output: [usize; 2],
) -> Result<[[usize; 2]; 6]> {
    if pooling.adaptive || pooling.global {
        // The longest window, and any stride.
        let longest = [0, 1].map(|axis| input[axis].div_ceil(output[axis].max(1)) + 1);
        return Ok([input, output, longest, [1, 1], [0, 0], [0, 0]]);
    }
    let sizes = [input, pooling.kernel_size, pooling.strides];
    let [top, bottom, left, right] = paddings(operator, pooling.padding_algorithm, &pooling.paddings, sizes)?;
    Ok([input, output, pooling.kernel_size, pooling.strides, [top, left], [bottom, right]])
}

fn dispatch(
    queue: &Queue,
    operator: &'static str,
    key: &Key,
    build: impl FnOnce() -> Kernel,
    out: &View,
    arguments: &[u64],
) -> Result<()> {
    let pipeline = program::get(operator, key, build)?;
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, operator, &pipeline, [out.len().div_ceil(TILE), 1, 1], arguments) }
}

fn sizes_of(view: &View) -> [usize; 2] {
    [view.shape[2], view.shape[3]]
}

/// Images in NCHW order: the input, the results and the places of the largest.
pub(super) fn run(queue: &Queue, pooling: &Pooling, x: &View, out: &View, places: Option<&View>) -> Result<()> {
    let operator = "pooling";
    if out.is_empty() {
        return Ok(());
    }
    let form = Form::of(pooling, out, places.is_some());
    let geometry = geometry(operator, pooling, sizes_of(x), sizes_of(out))?;
    let mut arguments: Vec<u64> = [x, out].into_iter().chain(places).flat_map(Images::arguments).collect();
    arguments.extend([out.len(), out.shape[1]].iter().chain(geometry.as_flattened()).map(|&size| size as u64));
    dispatch(queue, operator, &form.key(operator), || kernel(operator, &form), out, &arguments)
}

/// The places of each window's largest pixel, computed once more since a gradient gets none, and the memory that they live in.
fn find_largest(queue: &Queue, pooling: &Pooling, x: &View, upstream: &View) -> Result<(View, [Buffer; 2])> {
    let allocate = |dtype: DType| {
        let bytes = (upstream.len() * dtype.size()).max(1);
        queue.allocate(bytes).map_err(|source| Error::Device { operator: "pooling_gradient", source })
    };
    let room = [allocate(upstream.dtype)?, allocate(DType::I32)?];
    let values = View::dense(room[0].address(), upstream.dtype, &upstream.shape)?;
    let places = View::dense(room[1].address(), DType::I32, &upstream.shape)?;
    run(queue, pooling, x, &values, Some(&places))?;
    Ok((places, room))
}

/// The input, the gradient of the results and that of the input, in NCHW order.
pub(super) fn gradient(queue: &Queue, pooling: &Pooling, x: &View, upstream: &View, out: &View) -> Result<()> {
    let operator = "pooling_gradient";
    if out.is_empty() {
        return Ok(());
    }
    let largest = pooling.kind == PoolingType::Max;
    let found = if largest { Some(find_largest(queue, pooling, x, upstream)?) } else { None };
    let places = found.as_ref().map(|(places, _)| places);
    let form = Form::of(pooling, out, largest);
    let geometry = geometry(operator, pooling, sizes_of(x), sizes_of(upstream))?;
    let [input, output, window, stride, ..] = geometry;
    let most = |axis: usize| match form.adaptive {
        true => output[axis].div_ceil(input[axis].max(1)) + 1,
        false => window[axis].div_ceil(stride[axis]),
    };
    let mut arguments: Vec<u64> = [upstream, out].into_iter().chain(places).flat_map(Images::arguments).collect();
    let counts = [out.len(), out.shape[1]];
    let sizes = counts.iter().chain(geometry.as_flattened()).copied().chain([most(0), most(1)]);
    arguments.extend(sizes.map(|size| size as u64));
    dispatch(queue, operator, &form.key(operator), || gradient_kernel(operator, &form), out, &arguments)
}

/// The number of elements that a sum is divided by.
fn count(b: &mut Builder, form: &Form, [row, column]: [&Window; 2]) -> Value {
    let length = |b: &mut Builder, window: &Window| match form.kind {
        PoolingKind::AverageWithPadding => window.size,
        _ => b.subtract(window.end, window.begin),
    };
    let (rows, columns) = (length(b, row), length(b, column));
    let count = b.multiply(rows, columns);
    let one = b.constant_like(1.0, count);
    let count = b.maximum(count, one);
    convert(b, count, DType::I64, form.dtype.compute())
}

fn kernel(operator: &'static str, form: &Form) -> Kernel {
    let mut b = Builder::new(operator);
    let (x, out) = (Images::parameter(&mut b, "x", form.dtype), Images::parameter(&mut b, "out", form.dtype));
    let places = form.places.then(|| Images::parameter(&mut b, "places", DType::I32));
    let [size, channels] = numbers(&mut b, ["size", "channels"]);
    let windows = Windows::parameters(&mut b, form.adaptive);
    let (index, inside) = of_program(&mut b, 0, TILE, size);
    let sizes = [size, channels, windows.output[0], windows.output[1]];
    let parts = dimensions(&mut b, index, &sizes, form.narrow);
    let at = [parts[0], parts[1], parts[2], parts[3]];
    let (row, column) = (windows.of(&mut b, 0, at[2]), windows.of(&mut b, 1, at[3]));
    let compute = form.dtype.compute();
    let first = x.at(&mut b, [at[0], at[1], row.begin, column.begin]);
    let pixels = Pixels { form, x: &x, windows: &windows, window: [&row, &column], first, inside };
    let result = if form.kind == PoolingKind::Max {
        let (most, place) = pixels.largest(&mut b);
        if let Some(places) = places {
            let pointers = places.at(&mut b, at);
            let place = convert(&mut b, place, DType::I64, DType::I32);
            b.store(pointers, place, Some(inside));
        }
        most
    } else {
        let sum = pixels.sum(&mut b);
        let count = count(&mut b, form, [&row, &column]);
        b.divide(sum, count)
    };
    let pointers = out.at(&mut b, at);
    let result = convert(&mut b, result, compute, form.dtype);
    b.store(pointers, result, Some(inside));
    b.finish()
}

/// The pixels of a tile of windows.
struct Pixels<'a> {
    form: &'a Form,
    x: &'a Images,
    windows: &'a Windows,
    window: [&'a Window; 2],
    /// Pointers to the first pixels.
    first: Value,
    inside: Value,
}

impl Pixels<'_> {
    /// Walks over the windows: `each` gets a pixel of every window, which of them have it, its place in the plane, and what is carried.
    fn walk(
        &self,
        b: &mut Builder,
        carried: &[Value],
        each: impl FnOnce(&mut Builder, Value, Value, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
        let [row, column] = self.window;
        b.for_loop([zero, self.windows.size[0], one], carried, |b, i, carried| {
            let (y, exists) = step(b, row, i);
            let exists = b.and(self.inside, exists);
            let width = b.splat_like(self.windows.input[1], y);
            let line = b.multiply(y, width);
            b.for_loop([zero, self.windows.size[1], one], carried, |b, j, carried| {
                let (x, exists_too) = step(b, column, j);
                let exists = b.and(exists, exists_too);
                let steps = [(i, self.x.strides[2]), (j, self.x.strides[3])].map(|(i, stride)| b.multiply(i, stride));
                let offset = b.add(steps[0], steps[1]);
                let offset = b.splat_like(offset, line);
                let pointers = b.add_pointer(self.first, offset);
                let pixel = load_wide(b, pointers, exists, self.form.dtype);
                let place = b.add(line, x);
                each(b, pixel, exists, place, carried)
            })
        })
    }

    fn sum(&self, b: &mut Builder) -> Value {
        let none = b.constant(0.0, &Type::tile(self.form.dtype.compute().into(), &[TILE]));
        self.walk(b, &[none], |b, pixel, _, _, carried| vec![b.add(carried[0], pixel)])[0]
    }

    /// The largest and its place: the first of equal ones, the first NaN where there is one.
    fn largest(&self, b: &mut Builder) -> (Value, Value) {
        let most = b.constant(lowest(self.form.dtype), &Type::tile(self.form.dtype.compute().into(), &[TILE]));
        let nowhere = b.constant(-1.0, &Type::tile(Scalar::I64, &[TILE]));
        let found = self.walk(b, &[most, nowhere], |b, pixel, exists, place, carried| {
            let (most, found) = (carried[0], carried[1]);
            let none = b.compare(Compare::Equal, found, nowhere);
            let larger = b.compare(Compare::Greater, pixel, most);
            let (unordered, was) = (b.compare(Compare::NotEqual, pixel, pixel), b.compare(Compare::Equal, most, most));
            let first_nan = b.and(unordered, was);
            let takes = b.or(none, larger);
            let takes = b.or(takes, first_nan);
            let takes = b.and(takes, exists);
            vec![b.select(takes, pixel, most), b.select(takes, place, found)]
        });
        (found[0], found[1])
    }
}

/// The `i`-th elements of windows, and which windows have it.
fn step(b: &mut Builder, window: &Window, i: Value) -> (Value, Value) {
    let i = b.splat_like(i, window.begin);
    let place = b.add(window.begin, i);
    (place, b.compare(Compare::Less, place, window.end))
}

fn gradient_kernel(operator: &'static str, form: &Form) -> Kernel {
    let mut b = Builder::new(operator);
    let upstream = Images::parameter(&mut b, "upstream", form.dtype);
    let out = Images::parameter(&mut b, "out", form.dtype);
    let places = form.places.then(|| Images::parameter(&mut b, "places", DType::I32));
    let [size, channels] = numbers(&mut b, ["size", "channels"]);
    let windows = Windows::parameters(&mut b, form.adaptive);
    let most = numbers(&mut b, ["most_y", "most_x"]);
    let (index, inside) = of_program(&mut b, 0, TILE, size);
    let sizes = [size, channels, windows.input[0], windows.input[1]];
    let parts = dimensions(&mut b, index, &sizes, form.narrow);
    let at = [parts[0], parts[1], parts[2], parts[3]];
    let last = [0, 1].map(|axis| windows.last(&mut b, axis, at[2 + axis]));
    let width = b.splat_like(windows.input[1], index);
    let own = b.multiply(at[2], width);
    let own = b.add(own, at[3]);
    let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
    let none = b.constant(0.0, &Type::tile(form.dtype.compute().into(), &[TILE]));
    let sum = b.for_loop([zero, most[0], one], &[none], |b, i, carried| {
        let (row, window_of_row, holds) = earlier(b, &windows, 0, (last[0], at[2]), i);
        let holds = b.and(inside, holds);
        b.for_loop([zero, most[1], one], carried, |b, j, carried| {
            let (column, window_of_column, holds_too) = earlier(b, &windows, 1, (last[1], at[3]), j);
            let holds = b.and(holds, holds_too);
            let result = [at[0], at[1], row, column];
            let pointers = upstream.at(b, result);
            let mut gradient = load_wide(b, pointers, holds, form.dtype);
            if let Some(places) = &places {
                let pointers = places.at(b, result);
                let place = load(b, pointers, holds);
                let place = convert(b, place, DType::I32, DType::I64);
                let is_largest = b.compare(Compare::Equal, place, own);
                gradient = b.select(is_largest, gradient, none);
            } else {
                let count = count(b, form, [&window_of_row, &window_of_column]);
                gradient = b.divide(gradient, count);
            }
            vec![b.add(carried[0], gradient)]
        })
    })[0];
    let pointers = out.at(&mut b, at);
    let sum = convert(&mut b, sum, form.dtype.compute(), form.dtype);
    b.store(pointers, sum, Some(inside));
    b.finish()
}

/// The results `i` before the last ones, their windows, and which of these hold the pixels.
fn earlier(
    b: &mut Builder,
    windows: &Windows,
    axis: usize,
    (last, pixel): (Value, Value),
    i: Value,
) -> (Value, Window, Value) {
    let i = b.splat_like(i, last);
    let result = b.subtract(last, i);
    let exists = within(b, result, windows.output[axis]);
    let window = windows.of(b, axis, result);
    let begun = b.compare(Compare::LessEqual, window.begin, pixel);
    let holds = b.compare(Compare::Less, pixel, window.end);
    let holds = b.and(begun, holds);
    (result, window, b.and(exists, holds))
}
