//! Grid sampling and its gradients as kernels of tiles, on every device: a tile is of points, and the channels are walked.

mod taps;

use super::{GridSample, Sampling};
use crate::error::{Error, Result};
use crate::operators::elementwise::{self, Elementwise, Unary};
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{block, dimensions, index_type, is_wide, load_wide, moved, numbers, offset, unravelled};
use crate::view::View;
use openmps_tile::kernel::Atomic;
use openmps_tile::{Builder, DType, Kernel, Number, Operation, Scalar, Type, Value};
use taps::{Corner, Tap, corners, taps};

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
