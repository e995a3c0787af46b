//! Grid sampling and its gradients as kernels of tiles, on every device: a tile is of points, and the channels are walked.

use super::{Beyond, Coordinates, GridSample, Sampling};
use crate::error::{Error, Result};
use crate::operators::elementwise::{self, Elementwise, Unary};
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{block, dimensions, index_type, is_wide, load_wide, moved, numbers, offset, unravelled, within};
use crate::view::View;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Binary, Builder, Cast, Compare, DType, Kernel, Number, Operation, Scalar, Type, Value};

/// Points of a tile.
const TILE: usize = 256;

/// Channels that a program of a GPU walks.
const CHANNELS: usize = 8;

/// Which of the three kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sample,
    InputGradient,
    GridGradient,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Sample => "grid_sample",
            Kind::InputGradient => "grid_sample_input_gradient",
            Kind::GridGradient => "grid_sample_grid_gradient",
        }
    }
}

/// What a kernel depends on.
struct Form {
    kind: Kind,
    of: GridSample,
    dtype: DType,
    spatial: usize,
    narrow: Scalar,
}

impl Form {
    /// How points and sums are computed.
    fn compute(&self) -> Scalar {
        self.dtype.compute().into()
    }

    fn key(&self) -> Key {
        let GridSample { sampling, beyond, coordinates } = self.of;
        let numbers = [sampling as usize, beyond as usize, coordinates as usize, self.spatial, is_wide(self.narrow)];
        Key::Other(self.kind.name(), vec![self.dtype], numbers.to_vec())
    }
}

pub(super) fn sample(queue: &Queue, of: &GridSample, x: &View, grid: &View, out: &View) -> Result<()> {
    run(queue, of, Kind::Sample, [x, grid, out], None)
}

/// By a dense `out`, which holds the sums itself where it has their type.
pub(super) fn input_gradient(queue: &Queue, of: &GridSample, grid: &View, upstream: &View, out: &View) -> Result<()> {
    let dtype = out.dtype.compute();
    if out.dtype == dtype {
        queue.fill(out, 0)?;
        return run(queue, of, Kind::InputGradient, [out, grid, upstream], None);
    }
    let operator = Kind::InputGradient.name();
    let bytes = crate::view::bytes(dtype, &out.shape)?.max(1);
    let memory = queue.allocate(bytes).map_err(|source| Error::Device { operator, source })?;
    let sums = View::dense(memory.address(), dtype, &out.shape)?;
    queue.fill(&sums, 0)?;
    run(queue, of, Kind::InputGradient, [&sums, grid, upstream], None)?;
    elementwise::run(Elementwise::Unary(Unary::Cast), queue, &[&sums], &[], out)
}

pub(super) fn grid_gradient(
    queue: &Queue,
    of: &GridSample,
    x: &View,
    grid: &View,
    upstream: &View,
    out: &View,
) -> Result<()> {
    if of.sampling == Sampling::Nearest {
        return queue.fill(out, 0);
    }
    run(queue, of, Kind::GridGradient, [x, grid, upstream], Some(out))
}

/// `samples` is the output or its gradient; `gradient` the grid's.
fn run(
    queue: &Queue,
    of: &GridSample,
    kind: Kind,
    [x, grid, samples]: [&View; 3],
    gradient: Option<&View>,
) -> Result<()> {
    let spatial = x.rank() - 2;
    let (images, channels, sizes) = (x.shape[0], x.shape[1], &samples.shape[2..]);
    let points: usize = sizes.iter().product();
    if images * points == 0 || channels == 0 && kind != Kind::GridGradient {
        return Ok(());
    }
    let form = Form { kind, of: *of, dtype: grid.dtype, spatial, narrow: index_type(points + TILE) };
    let tiles = points.div_ceil(TILE);
    // How many programs share the channels, and the tiles of an image. On the CPU one program writes all sums of a channel, in order.
    let [of_channels, of_tiles] = match (kind, queue.is_host()) {
        (Kind::InputGradient, true) => [channels, 1],
        (Kind::GridGradient, _) | (_, true) => [1, tiles],
        (_, false) => [channels.div_ceil(CHANNELS), tiles],
    };
    let views = [Some(x), Some(grid), Some(samples), gradient].into_iter().flatten();
    let mut arguments: Vec<u64> = Vec::new();
    for view in views {
        arguments.push(view.address as u64);
        arguments.extend(view.strides.iter().map(|&stride| stride as u64));
    }
    let counts = [images, of_channels, of_tiles, channels, tiles, points];
    arguments.extend(counts.iter().chain(sizes).chain(&x.shape[2..]).map(|&count| count as u64));
    let factor = |size: usize| scalar_bits(Number::Float(of.factor(size)), form.dtype.compute());
    arguments.extend(x.shape[2..].iter().map(|&size| factor(size)));
    let pipeline = program::get(kind.name(), &form.key(), || kernel(&form))?;
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive; what lies outside of x is masked.
    unsafe { program::launch(queue, kind.name(), &pipeline, [images * of_channels * of_tiles, 1, 1], &arguments) }
}

/// A tensor in memory: its first element and its strides.
struct Strided {
    pointer: Value,
    strides: Vec<Value>,
}

impl Strided {
    fn parameter(b: &mut Builder, name: &str, dtype: DType, rank: usize) -> Strided {
        let pointer = b.parameter(name, Type::pointer(dtype.into()));
        let stride = |d| b.parameter(format!("{name}_stride{d}"), Type::scalar(Scalar::I64));
        Strided { pointer, strides: (0..rank).map(stride).collect() }
    }

    /// How far tiles of places move in the dimensions from `first` on.
    fn offset(&self, b: &mut Builder, first: usize, places: &[Value]) -> Value {
        let steps: Vec<_> = places.iter().copied().zip(self.strides[first..].iter().copied()).collect();
        offset(b, steps[0], steps[1..].iter().copied())
    }

    /// Pointers to coordinate `d` of an image's points, which lie at these offsets; the innermost coordinate is the first one.
    fn of_coordinate(&self, b: &mut Builder, image: Value, d: usize, offset: Value) -> Value {
        let last = self.strides.len() - 1;
        let number = b.integer((last - 2 - d) as i64, Scalar::I64);
        let first = moved(b, self.pointer, [(image, self.strides[0]), (number, self.strides[last])]);
        b.add_pointer(first, offset)
    }

    /// Pointers to elements of one image and channel, that lie at these offsets.
    fn of_channel(&self, b: &mut Builder, image: Value, channel: Value, offset: Value) -> Value {
        let first = moved(b, self.pointer, [(image, self.strides[0]), (channel, self.strides[1])]);
        b.add_pointer(first, offset)
    }
}

/// What a point reads along one dimension: one element, or two with their weights.
struct Tap {
    /// Places, and which of them exist.
    elements: Vec<(Value, Value)>,
    /// The weight of each; none for the nearest.
    weights: Vec<Value>,
    /// How far the point moves with its coordinate.
    slope: Value,
}

/// Where a point reads: how far the element is from its channel's first, whether it exists, and which element of each tap it is.
struct Corner {
    offset: Value,
    exists: Value,
    sides: Vec<usize>,
}

/// The parameters that all of the kernels have.
struct Parameters {
    x: Strided,
    grid: Strided,
    samples: Strided,
    gradient: Option<Strided>,
    /// images, channel programs, tile programs, channels, tiles, points
    counts: [Value; 6],
    sizes: Vec<Value>,
    input: Vec<Value>,
    factors: Vec<Value>,
}

impl Parameters {
    fn new(b: &mut Builder, form: &Form) -> Parameters {
        let (dtype, rank) = (form.dtype, form.spatial + 2);
        let of_x = if form.kind == Kind::InputGradient { dtype.compute() } else { dtype };
        let x = Strided::parameter(b, "x", of_x, rank);
        let [grid, samples] = ["grid", "samples"].map(|name| Strided::parameter(b, name, dtype, rank));
        let gradient = (form.kind == Kind::GridGradient).then(|| Strided::parameter(b, "gradient", dtype, rank));
        let counts = numbers(b, ["images", "channel_programs", "tile_programs", "channels", "tiles", "points"]);
        let mut size = |name: &str, d: usize| b.parameter(format!("{name}{d}"), Type::scalar(Scalar::I64));
        let sizes = (0..form.spatial).map(|d| size("size", d)).collect();
        let input = (0..form.spatial).map(|d| size("input", d)).collect();
        let factor = |d| b.parameter(format!("factor{d}"), Type::scalar(form.compute()));
        Parameters {
            x,
            grid,
            samples,
            gradient,
            counts,
            sizes,
            input,
            factors: (0..form.spatial).map(factor).collect(),
        }
    }
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(form.kind.name());
    let p = Parameters::new(&mut b, form);
    let [_, of_channels, of_tiles, channels, tiles, points] = p.counts;
    let own = unravelled(&mut b, 0, &p.counts[..3]);
    let (image, first_channel) = (own[0], own[1]);
    b.for_loop([own[2], tiles, of_tiles], &[], |b, tile, _| {
        let length = b.integer(TILE as i64, Scalar::I64);
        let first = b.multiply(tile, length);
        let (index, inside) = block(b, first, TILE, points);
        let places = dimensions(b, index, &p.sizes, form.narrow);
        let taps = taps(b, form, &p, image, &places, inside);
        let corners = corners(b, form, &p, &taps, inside);
        let samples = p.samples.offset(b, 2, &places);
        let walk = [first_channel, channels, of_channels];
        let points = Points { form, p: &p, image, walk, inside, samples, taps, corners };
        match form.kind {
            Kind::Sample => points.read(b),
            Kind::InputGradient => points.spread(b),
            Kind::GridGradient => points.store_slopes(b, &places),
        }
        Vec::new()
    });
    b.finish()
}

/// A tile of an image's points, and the channels that a program walks for it.
struct Points<'a> {
    form: &'a Form,
    p: &'a Parameters,
    image: Value,
    /// The first channel, their number, from one to the next.
    walk: [Value; 3],
    /// Which of the tile's points there are.
    inside: Value,
    /// How far the points' samples are from their channel's first.
    samples: Value,
    taps: Vec<Tap>,
    corners: Vec<Corner>,
}

impl Points<'_> {
    /// The product of the weights of a corner along all dimensions but one.
    fn weight(&self, b: &mut Builder, corner: &Corner, without: Option<usize>) -> Option<Value> {
        let others = (0..self.taps.len()).filter(|&d| Some(d) != without);
        let weights = others.filter_map(|d| self.taps[d].weights.get(corner.sides[d]));
        weights.copied().reduce(|product, weight| b.multiply(product, weight))
    }

    /// Each corner with its weight.
    fn weighed(&self, b: &mut Builder) -> Vec<(&Corner, Option<Value>)> {
        self.corners.iter().map(|corner| (corner, self.weight(b, corner, None))).collect()
    }

    /// The element of x at a corner.
    fn element(&self, b: &mut Builder, channel: Value, corner: &Corner) -> Value {
        let from = self.p.x.of_channel(b, self.image, channel, corner.offset);
        load_wide(b, from, corner.exists, self.form.dtype)
    }

    /// The gradient of a channel's samples.
    fn upstream(&self, b: &mut Builder, channel: Value) -> Value {
        let from = self.p.samples.of_channel(b, self.image, channel, self.samples);
        load_wide(b, from, self.inside, self.form.dtype)
    }

    /// Reads every channel at the corners.
    fn read(&self, b: &mut Builder) {
        let weighed = self.weighed(b);
        b.for_loop(self.walk, &[], |b, channel, _| {
            let mut terms = Vec::new();
            for &(corner, weight) in &weighed {
                let element = self.element(b, channel, corner);
                terms.push(weight.map_or(element, |weight| b.multiply(element, weight)));
            }
            if let Some(sum) = terms.into_iter().reduce(|sum, term| b.add(sum, term)) {
                let sum = convert(b, sum, self.form.dtype.compute(), self.form.dtype);
                let to = self.p.samples.of_channel(b, self.image, channel, self.samples);
                b.store(to, sum, Some(self.inside));
            }
            Vec::new()
        });
    }

    /// Adds the gradient of every channel to the corners.
    fn spread(&self, b: &mut Builder) {
        let weighed = self.weighed(b);
        b.for_loop(self.walk, &[], |b, channel, _| {
            let upstream = self.upstream(b, channel);
            for &(corner, weight) in &weighed {
                let share = weight.map_or(upstream, |weight| b.multiply(upstream, weight));
                let to = self.p.x.of_channel(b, self.image, channel, corner.offset);
                let ty = b.type_of(share).clone();
                b.emit(Operation::Atomic(Atomic::AddFloat), &[to, share, corner.exists], ty);
            }
            Vec::new()
        });
    }

    /// For each corner the sum over channels of element times gradient.
    fn products(&self, b: &mut Builder) -> Vec<Value> {
        let zero = b.constant(0.0, &Type::tile(self.form.compute(), &[TILE]));
        b.for_loop(self.walk, &vec![zero; self.corners.len()], |b, channel, sums| {
            let upstream = self.upstream(b, channel);
            let mut next = Vec::new();
            for (corner, &sum) in self.corners.iter().zip(sums) {
                let element = self.element(b, channel, corner);
                let product = b.multiply(element, upstream);
                next.push(b.add(sum, product));
            }
            next
        })
    }

    /// The grid's gradient: along each dimension the corners behind less those before, weighed by the other dimensions.
    fn store_slopes(&self, b: &mut Builder, places: &[Value]) {
        let sums = self.products(b);
        let Some(gradient) = &self.p.gradient else { return };
        let of_point = gradient.offset(b, 1, places);
        for (d, tap) in self.taps.iter().enumerate() {
            let mut total = b.constant_like(0.0, tap.slope);
            for (corner, &sum) in self.corners.iter().zip(&sums) {
                let term = self.weight(b, corner, Some(d)).map_or(sum, |weight| b.multiply(sum, weight));
                total = if corner.sides[d] == 1 { b.add(total, term) } else { b.subtract(total, term) };
            }
            let total = b.multiply(total, tap.slope);
            let total = convert(b, total, self.form.dtype.compute(), self.form.dtype);
            let to = gradient.of_coordinate(b, self.image, d, of_point);
            b.store(to, total, Some(self.inside));
        }
    }
}

fn taps(b: &mut Builder, form: &Form, p: &Parameters, image: Value, places: &[Value], inside: Value) -> Vec<Tap> {
    let of_point = p.grid.offset(b, 1, places);
    let mut taps = Vec::new();
    for d in 0..form.spatial {
        let pointers = p.grid.of_coordinate(b, image, d, of_point);
        let coordinate = load_wide(b, pointers, inside, form.dtype);
        taps.push(tap(b, form, coordinate, p.input[d], p.factors[d]));
    }
    taps
}

/// What a coordinate reads of a dimension of `size`; from one element to the next it is `1 / factor`.
fn tap(b: &mut Builder, form: &Form, coordinate: Value, size: Value, factor: Value) -> Tap {
    let (one, half) = (b.constant_like(1.0, coordinate), b.constant_like(0.5, coordinate));
    let factor = b.splat_like(factor, coordinate);
    let mut point = coordinate;
    if form.of.coordinates != Coordinates::Elements {
        let moved = b.add(coordinate, one);
        point = b.multiply(moved, factor);
    }
    if form.of.coordinates == Coordinates::Sides {
        point = b.subtract(point, half);
    }
    let float = b.cast(Cast::SignedToFloat, size, form.compute());
    let float = b.splat_like(float, coordinate);
    let (point, slope) = held(b, form, (point, factor), float);
    let whole = match form.of.sampling {
        Sampling::Linear => b.unary(openmps_tile::Unary::Floor, point),
        Sampling::Nearest => b.unary(openmps_tile::Unary::Round, point),
    };
    // NaN and what is far away become integers that are outside, with their neighbours.
    let before = b.constant_like(-2.0, whole);
    let bounded = b.binary(Binary::MaximumNumber, whole, before);
    let bounded = b.minimum(bounded, float);
    let low = b.cast(Cast::FloatToSigned, bounded, Scalar::I64);
    let exists = within(b, low, size);
    if form.of.sampling == Sampling::Nearest {
        return Tap { elements: vec![(low, exists)], weights: Vec::new(), slope };
    }
    let next = b.constant_like(1.0, low);
    let mut high = b.add(low, next);
    if form.of.beyond != Beyond::Zeros {
        let size = b.splat_like(size, high);
        let last = b.subtract(size, next);
        high = b.minimum(high, last);
    }
    let also = within(b, high, size);
    let weight = b.subtract(point, whole);
    let rest = b.subtract(one, weight);
    Tap { elements: vec![(low, exists), (high, also)], weights: vec![rest, weight], slope }
}

/// A point and its slope as the rule for what lies beyond the border has them.
fn held(b: &mut Builder, form: &Form, (mut point, mut slope): (Value, Value), size: Value) -> (Value, Value) {
    if form.of.beyond == Beyond::Zeros {
        return (point, slope);
    }
    let (zero, one) = (b.constant_like(0.0, point), b.constant_like(1.0, point));
    let last = b.subtract(size, one);
    if form.of.beyond == Beyond::Reflection {
        (point, slope) = reflected(b, form, (point, slope), [size, last]);
    }
    for (comparison, bound) in [(Compare::Less, zero), (Compare::Greater, last)] {
        let is_beyond = b.compare(comparison, point, bound);
        slope = b.select(is_beyond, zero, slope);
    }
    let point = b.maximum(point, zero);
    (b.minimum(point, last), slope)
}

/// Mirrors stand at the outermost elements' centres, or half an element beyond.
fn reflected(b: &mut Builder, form: &Form, (point, slope): (Value, Value), [size, last]: [Value; 2]) -> (Value, Value) {
    let zero = b.constant_like(0.0, point);
    let shift = b.constant_like(form.of.shift(), point);
    let between = if form.of.coordinates == Coordinates::Sides { size } else { last };
    let range = b.add(between, between);
    let own = b.add(point, shift);
    let distance = b.unary(openmps_tile::Unary::Absolute, own);
    let turns = b.divide(distance, range);
    let turns = b.unary(openmps_tile::Unary::Floor, turns);
    let whole = b.multiply(turns, range);
    let rest = b.subtract(distance, whole);
    let back = b.subtract(range, rest);
    let (is_back, is_before) = (b.compare(Compare::Greater, rest, back), b.compare(Compare::Less, own, zero));
    let is_turned = b.binary(Binary::Xor, is_back, is_before);
    let turned = b.unary(openmps_tile::Unary::Negate, slope);
    let slope = b.select(is_turned, turned, slope);
    let nearer = b.minimum(rest, back);
    let point = b.subtract(nearer, shift);
    // Between mirrors in one place there is one point.
    let is_wide = b.compare(Compare::Greater, range, zero);
    (b.select(is_wide, point, zero), slope)
}

fn corners(b: &mut Builder, form: &Form, p: &Parameters, taps: &[Tap], inside: Value) -> Vec<Corner> {
    let sides = if form.of.sampling == Sampling::Nearest { 1 } else { 2_usize };
    let corner = |number: usize| {
        let sides: Vec<usize> = (0..form.spatial).map(|d| number / sides.pow(d as u32) % sides).collect();
        let elements: Vec<_> = taps.iter().zip(&sides).map(|(tap, &side)| tap.elements[side]).collect();
        let places: Vec<Value> = elements.iter().map(|element| element.0).collect();
        let exists = elements.iter().fold(inside, |all, element| b.and(all, element.1));
        Corner { offset: p.x.offset(b, 2, &places), exists, sides }
    };
    (0..sides.pow(form.spatial as u32)).map(corner).collect()
}
