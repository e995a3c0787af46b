//! Convolutions as kernels of tiles, for GPUs: each result gathers what it is made of, in both directions, with all that may be fused.
//! Float64 goes this way only where the device has it; on GPUs of Apple's a native kernel computes it.

mod each;
mod epilogue;
mod gather;
mod product;
mod weight;

pub(crate) use weight::run as weight_gradient;

use super::Fused;
use crate::error::Result;
use crate::program::{self, Key};
use crate::queue::Queue;
use crate::tiles::{Images, index_type, is_wide};
use crate::view::View;
use openmps_host::native::convolution::Convolution;
use openmps_tile::{DType, Scalar};

/// Rows and columns of a block of sums at most, and the depth of a step.
const LARGEST: usize = 64;
const DEPTH: usize = 32;

/// The smallest sides of a block: those of a matrix unit.
const SMALLEST: usize = 16;

/// Results of a tile that adds product by product.
const TILE: usize = 256;

fn side(size: usize) -> usize {
    size.next_power_of_two().clamp(SMALLEST, LARGEST)
}

/// Whether a block of sums is worth its rows; below, each result adds its own products.
fn is_product(rows: usize) -> bool {
    2 * rows >= SMALLEST
}

/// How a kernel goes through what its sums are made of.
#[derive(Clone, Copy, PartialEq)]
enum Summation {
    /// Each result by itself: for depthwise convolutions, whose blocks of sums would be empty but for one row.
    Each,
    /// Taps of the filter one after the other, and the channels of each as depth.
    Taps,
    /// Channels and taps of a window of this size as one depth: for few channels.
    Window([usize; 2]),
}

/// What a kernel depends on.
struct Form {
    dtype: DType,
    summation: Summation,
    /// Whether the image is spread over the results: a transposed convolution, or the gradient of an input.
    transposed: bool,
    /// Rows, columns and depth of a block.
    block: [usize; 3],
    /// The type in which indices are divided.
    narrow: Scalar,
    fused: Fused,
}

impl Form {
    fn key(&self, operator: &'static str) -> Key {
        let summation = match self.summation {
            Summation::Each => [0, 0],
            Summation::Taps => [1, 0],
            Summation::Window(window) => window.map(|size| size + 1),
        };
        let rest = [self.transposed.into(), is_wide(self.narrow)];
        let numbers = [&summation[..], &rest, &self.block, &epilogue::key(&self.fused)].concat();
        Key::Other(operator, vec![self.dtype], numbers)
    }
}

/// A convolution or, from its output's side to its input's, a transposed one.
pub(crate) struct TiledConvolution<'a> {
    pub operator: &'static str,
    pub of: &'a Convolution,
    pub transposed: bool,
    pub fused: &'a Fused,
}

/// The image, the weight and the output, images in NCHW order, with what follows the weight among the operator's inputs.
pub(crate) fn run(queue: &Queue, call: &TiledConvolution, [x, weight, out]: [&View; 3], rest: &[View]) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let of = call.of;
    let (channels, filters) = (of.channels / of.groups, of.filters / of.groups);
    let (rows, depth) = if call.transposed { (channels, filters) } else { (filters, channels) };
    // A transposed convolution fills the places between neighbours of its image one phase after the other.
    let phases = if call.transposed { of.stride } else { [1, 1] };
    let places = [0, 1].map(|axis| out.shape[2 + axis].div_ceil(phases[axis]));
    let summation = match call.transposed {
        _ if !is_product(rows) => Summation::Each,
        false if depth < SMALLEST && of.kernel != [1, 1] => Summation::Window(of.kernel),
        _ => Summation::Taps,
    };
    let positions = of.batch * places[0] * places[1];
    let count = if summation == Summation::Each { positions * out.shape[1] } else { positions };
    let steps = if summation == Summation::Taps { depth } else { depth * of.kernel[0] * of.kernel[1] };
    let block = match summation {
        Summation::Each => [1, TILE, 1],
        _ => [side(rows), side(count), steps.next_power_of_two().clamp(SMALLEST, DEPTH)],
    };
    let narrow = index_type(count + TILE);
    let form = Form { dtype: out.dtype, summation, transposed: call.transposed, block, narrow, fused: *call.fused };
    let pipeline = program::get(call.operator, &form.key(call.operator), || match summation {
        Summation::Each => each::kernel(call.operator, &form),
        _ => product::kernel(call.operator, &form),
    })?;
    let mut arguments: Vec<u64> = Images::arguments(x).chain(Images::arguments(out)).collect();
    arguments.push(weight.address as u64);
    let [of_filter, of_channel] = [weight.strides[0], weight.strides[1]];
    let [row, along] = if call.transposed { [of_channel, of_filter] } else { [of_filter, of_channel] };
    let strides = [of_filter * filters as isize, row, along, weight.strides[2], weight.strides[3]];
    arguments.extend(strides.map(|stride| stride as u64));
    let before = [of.padding[0], of.padding[2]];
    let (source, size) = ([x.shape[2], x.shape[3]], [out.shape[2], out.shape[3]]);
    let pairs = [of.kernel, places, source, size, of.stride, of.dilation, before];
    arguments.extend([rows, depth, count, out.shape[1]].iter().chain(pairs.as_flattened()).map(|&size| size as u64));
    arguments.extend(epilogue::arguments(call.fused, rest, out.dtype));
    let phases = phases[0] * phases[1];
    let grid = match summation {
        Summation::Each => [count.div_ceil(TILE), 1, phases],
        _ => [count.div_ceil(block[1]), rows.div_ceil(block[0]), of.groups * phases],
    };
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, call.operator, &pipeline, grid, &arguments) }
}
