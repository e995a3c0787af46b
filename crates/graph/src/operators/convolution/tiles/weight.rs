//! The gradient of a convolution's weight: a product of matrices whose depth is every place of every image.
//!
//! There are few weights and many places, so the places are cut into parts that run side by side; a second kernel adds what they give.

use super::{TILE, is_product, side};
use crate::error::{Error, Result};
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{
    Images, block, both, crossed, dimensions, index_type, is_wide, load, load_wide, moved, numbers, of_program, offset,
    reads_image, scaled, unravelled,
};
use crate::view::{View, dense_strides};
use openmps_host::native::convolution::Convolution;
use openmps_tile::{Builder, Combine, DType, Kernel, Scalar, Type, Value};

const OPERATOR: &str = "convolution_weight_gradient";

/// Places of a step.
const DEPTH: usize = 32;

/// Programs that keep a GPU busy, and the fewest places that are worth one.
const PROGRAMS: usize = 512;
const FEWEST: usize = 512;

/// What the kernel depends on.
struct Form {
    dtype: DType,
    /// The element type of what it gives: that of sums where the places are cut into parts.
    out: DType,
    /// Rows and columns of a block, for filters by themselves the places of a step.
    block: [usize; 2],
    by_products: bool,
    narrow: Scalar,
}

/// The image and the gradient of the output, both in NCHW order, and the gradient of the weight.
pub(crate) fn run(queue: &Queue, of: &Convolution, x: &View, upstream: &View, out: &View) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let (filters, channels) = (of.filters / of.groups, of.channels / of.groups);
    let columns = channels * of.kernel[0] * of.kernel[1];
    let [height, width] = of.output();
    let places = of.batch * height * width;
    let by_products = is_product(filters);
    let block = if by_products { [side(filters), side(columns)] } else { [1, 2 * TILE] };
    let blocks = match by_products {
        true => [columns.div_ceil(block[1]), filters.div_ceil(block[0]), of.groups],
        false => [of.filters * columns, 1, 1],
    };
    let programs: usize = blocks.iter().product();
    let parts = PROGRAMS.div_ceil(programs).min(places.div_ceil(FEWEST)).max(1);
    let of_part = places.div_ceil(parts).next_multiple_of(DEPTH);
    let device = |source| Error::Device { operator: OPERATOR, source };
    let compute = out.dtype.compute();
    let dims = [&[parts], &out.shape[..]].concat();
    let partial = match parts {
        1 => None,
        _ => Some(queue.allocate(parts * out.len() * compute.size()).map_err(device)?),
    };
    let (to, of_next) = match &partial {
        None => (out.clone(), 0),
        Some(partial) => (View::dense(partial.address(), compute, &out.shape)?, dense_strides(&dims)[0]),
    };
    let narrow = index_type(places.max(of.filters * columns) + 4 * TILE);
    let form = Form { dtype: x.dtype, out: to.dtype, block, by_products, narrow };
    let numbers = vec![block[0], block[1], by_products.into(), is_wide(narrow)];
    let key = Key::Other(OPERATOR, vec![form.dtype, form.out], numbers);
    let pipeline = program::get(OPERATOR, &key, || kernel(&form))?;
    let mut arguments: Vec<u64> = [x, upstream, &to].into_iter().flat_map(Images::arguments).collect();
    arguments.push(of_next as u64);
    let sizes = [filters, channels, places, of_part, parts];
    let pairs = [of.kernel, [height, width], of.input, of.stride, of.dilation, [of.padding[0], of.padding[2]]];
    arguments.extend(sizes.iter().chain(pairs.as_flattened()).map(|&size| size as u64));
    let grid = [blocks[0], blocks[1], blocks[2] * parts];
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive, and of the memory above.
    unsafe { program::launch(queue, OPERATOR, &pipeline, grid, &arguments) }?;
    match partial {
        None => Ok(()),
        Some(_) => add(queue, &to, parts, out),
    }
}

/// The parameters, in the order of their arguments, and this program's part of the places.
struct Parameters {
    x: Images,
    upstream: Images,
    out: Images,
    filters: Value,
    channels: Value,
    places: Value,
    window: [Value; 2],
    size: [Value; 2],
    image: [Value; 2],
    stride: [Value; 2],
    dilation: [Value; 2],
    before: [Value; 2],
    group: Value,
    from: Value,
    end: Value,
}

impl Parameters {
    fn new(b: &mut Builder, form: &Form) -> Parameters {
        let (x, upstream) = (Images::parameter(b, "x", form.dtype), Images::parameter(b, "upstream", form.dtype));
        let mut out = Images::parameter(b, "out", form.out);
        let [of_next] = numbers(b, ["part_stride"]);
        let [filters, channels, places, of_part, parts] =
            numbers(b, ["filters", "channels", "places", "part", "parts"]);
        let mut pair =
            |name: &str| ["y", "x"].map(|axis| b.parameter(format!("{name}_{axis}"), Type::scalar(Scalar::I64)));
        let [window, size, image, stride, dilation, before] =
            ["window", "size", "image", "stride", "dilation", "before"].map(&mut pair);
        let of_grid = unravelled(b, 2, &[parts, parts]);
        let (group, part) = (of_grid[0], of_grid[1]);
        out.pointer = moved(b, out.pointer, [(part, of_next)]);
        let from = b.multiply(part, of_part);
        let end = b.add(from, of_part);
        let end = b.minimum(end, places);
        Parameters {
            x,
            upstream,
            out,
            filters,
            channels,
            places,
            window,
            size,
            image,
            stride,
            dilation,
            before,
            group,
            from,
            end,
        }
    }

    /// Where the pixels of places begin (image, row, column of the padded input), and how far their gradients lie from the first.
    fn places(&self, b: &mut Builder, index: Value, narrow: Scalar) -> ([Value; 3], Value) {
        let parts = dimensions(b, index, &[self.places, self.size[0], self.size[1]], narrow);
        let [of_batch, _, of_row, of_column] = self.upstream.strides;
        let own = offset(b, (parts[0], of_batch), [(parts[1], of_row), (parts[2], of_column)]);
        let [row, column] = [0, 1].map(|axis| scaled(b, parts[1 + axis], self.stride[axis]));
        ([parts[0], row, column], own)
    }

    /// By how much a tap moves what is read along an axis.
    fn shift(&self, b: &mut Builder, axis: usize, tap: Value) -> Value {
        let [dilation, before] = [self.dilation, self.before].map(|pair| b.splat_like(pair[axis], tap));
        let reach = b.multiply(tap, dilation);
        b.subtract(reach, before)
    }

    fn of_pixels(&self, b: &mut Builder, [batch, row, column]: [Value; 3]) -> Value {
        let [of_batch, _, of_row, of_column] = self.x.strides;
        offset(b, (batch, of_batch), [(row, of_row), (column, of_column)])
    }
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let p = Parameters::new(&mut b, form);
    if form.by_products {
        by_products(&mut b, form, &p)
    } else {
        by_filters(&mut b, form, &p)
    }
    b.finish()
}

fn by_products(b: &mut Builder, form: &Form, p: &Parameters) {
    let [rows, columns] = form.block;
    let row = of_program(b, 1, rows, p.filters);
    let weights = [p.window[0], p.window[1]].into_iter().fold(p.channels, |product, size| b.multiply(product, size));
    let (column, exists) = of_program(b, 0, columns, weights);
    let parts = dimensions(b, column, &[p.channels, p.window[0], p.window[1]], form.narrow);
    let shifts = [0, 1].map(|axis| p.shift(b, axis, parts[1 + axis]));
    let [_, of_channel, of_row, of_column] = p.x.strides;
    let by_column = offset(b, (parts[0], of_channel), [(shifts[0], of_row), (shifts[1], of_column)]);
    let by_row = scaled(b, row.0, p.upstream.strides[1]);
    let (first_filter, first_channel) = (b.multiply(p.group, p.filters), b.multiply(p.group, p.channels));
    let upstream = moved(b, p.upstream.pointer, [(first_filter, p.upstream.strides[1])]);
    let x = moved(b, p.x.pointer, [(first_channel, of_channel)]);
    let none = b.constant(0.0, &Type::tile(form.dtype.compute().into(), &form.block));
    let step = b.integer(DEPTH as i64, Scalar::I64);
    let sum = b.for_loop([p.from, p.end, step], &[none], |b, at, carried| {
        let (place, counts) = block(b, at, DEPTH, p.end);
        let (pixel, own) = p.places(b, place, form.narrow);
        let pointers = crossed(b, upstream, by_row, own);
        let mask = both(b, row.1, counts);
        let gradient = load(b, pointers, mask);
        let by_place = p.of_pixels(b, pixel);
        let pointers = crossed(b, x, by_place, by_column);
        let mut mask = both(b, counts, exists);
        for axis in [0, 1] {
            mask = reads_image(b, mask, pixel[1 + axis], shifts[axis], p.image[axis]);
        }
        let image = load(b, pointers, mask);
        vec![b.dot(gradient, image, carried[0])]
    })[0];
    let result = convert(b, sum, form.dtype.compute(), form.out);
    let first = b.splat_like(first_filter, row.0);
    let filter = b.add(row.0, first);
    let [of_filter, of_channel, of_row, of_column] = p.out.strides;
    let by_row = scaled(b, filter, of_filter);
    let by_column = offset(b, (parts[0], of_channel), [(parts[1], of_row), (parts[2], of_column)]);
    let pointers = crossed(b, p.out.pointer, by_row, by_column);
    let mask = both(b, row.1, exists);
    b.store(pointers, result, Some(mask));
}

/// One weight in each program, for groups of few filters.
fn by_filters(b: &mut Builder, form: &Form, p: &Parameters) {
    let weights = [p.filters, p.channels, p.window[0], p.window[1]];
    let of_grid = unravelled(b, 0, &[weights[0], weights[1], weights[2], weights[3]]);
    let (filter, taps) = (of_grid[0], [of_grid[2], of_grid[3]]);
    let group = b.divide(filter, p.filters);
    let first_channel = b.multiply(group, p.channels);
    let channel = b.add(first_channel, of_grid[1]);
    let shifts = [0, 1].map(|axis| p.shift(b, axis, taps[axis]));
    let [_, of_channel, of_row, of_column] = p.x.strides;
    let steps = [(channel, of_channel), (shifts[0], of_row), (shifts[1], of_column)];
    let x = moved(b, p.x.pointer, steps);
    let upstream = moved(b, p.upstream.pointer, [(filter, p.upstream.strides[1])]);
    let tile = form.block[1];
    let none = b.constant(0.0, &Type::tile(form.dtype.compute().into(), &[tile]));
    let step = b.integer(tile as i64, Scalar::I64);
    let sum = b.for_loop([p.from, p.end, step], &[none], |b, at, carried| {
        let (place, counts) = block(b, at, tile, p.end);
        let (pixel, own) = p.places(b, place, form.narrow);
        let pointers = b.add_pointer(upstream, own);
        let gradient = load_wide(b, pointers, counts, form.dtype);
        let by_place = p.of_pixels(b, pixel);
        let pointers = b.add_pointer(x, by_place);
        let mut mask = counts;
        for axis in [0, 1] {
            mask = reads_image(b, mask, pixel[1 + axis], shifts[axis], p.image[axis]);
        }
        let image = load_wide(b, pointers, mask, form.dtype);
        let product = b.multiply(gradient, image);
        vec![b.add(carried[0], product)]
    })[0];
    let sum = b.reduce(Combine::Sum, sum, 0);
    let result = convert(b, sum, form.dtype.compute(), form.out);
    let steps = [filter, of_grid[1], taps[0], taps[1]].into_iter().zip(p.out.strides);
    let pointer = moved(b, p.out.pointer, steps);
    b.store(pointer, result, None);
}

/// Adds dense parts one after the other.
fn add(queue: &Queue, parts: &View, count: usize, out: &View) -> Result<()> {
    let operator = "convolution_weight_gradient_parts";
    let narrow = index_type(out.len() + TILE);
    let key = Key::Other(operator, vec![parts.dtype, out.dtype], vec![is_wide(narrow)]);
    let pipeline = program::get(operator, &key, || adding(operator, [parts.dtype, out.dtype], narrow))?;
    let mut arguments = vec![parts.address as u64];
    arguments.extend(Images::arguments(out));
    let sizes = [count, out.len(), out.shape[1], out.shape[2], out.shape[3]];
    arguments.extend(sizes.map(|size| size as u64));
    // SAFETY: the parts are dense and as many; the output is the caller's own.
    unsafe { program::launch(queue, operator, &pipeline, [out.len().div_ceil(TILE), 1, 1], &arguments) }
}

fn adding(operator: &'static str, [from, to]: [DType; 2], narrow: Scalar) -> Kernel {
    let mut b = Builder::new(operator);
    let parts = b.parameter("parts", Type::pointer(from.into()));
    let out = Images::parameter(&mut b, "out", to);
    let [count, size, channels, rows, columns] = numbers(&mut b, ["count", "size", "channels", "rows", "columns"]);
    let (index, inside) = of_program(&mut b, 0, TILE, size);
    let none = b.constant(0.0, &Type::tile(from.into(), &[TILE]));
    let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
    let sum = b.for_loop([zero, count, one], &[none], |b, part, carried| {
        let first = moved(b, parts, [(part, size)]);
        let pointers = b.add_pointer(first, index);
        let loaded = load(b, pointers, inside);
        vec![b.add(carried[0], loaded)]
    })[0];
    let at = dimensions(&mut b, index, &[size, channels, rows, columns], narrow);
    let pointers = out.at(&mut b, [at[0], at[1], at[2], at[3]]);
    let sum = convert(&mut b, sum, from, to);
    b.store(pointers, sum, Some(inside));
    b.finish()
}
