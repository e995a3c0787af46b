//! Tensor operations are asked for a known answer before a kernel is written with them: a product of a model's size, by a plain tile kernel.

use super::text::text_of;
use super::{Gpu, failed};
use crate::error::Result;
use crate::pipeline::Pipeline;
use openmps_metal::answers::{self, Class};
use openmps_metal::arguments::{Kernel, Resolved};
use openmps_metal::engine::Engine;
use openmps_metal::matrix::TensorView;
use openmps_metal::{Launch, Metal, Stream};
use openmps_settings as settings;
use openmps_tile::kernel::Cast;
use openmps_tile::{Builder, DType, Scalar, Type, Value};

/// The half types, which tensor operations multiply.
const HALF_TYPES: [(Scalar, DType); 2] = [(Scalar::F16, DType::F16), (Scalar::BF16, DType::BF16)];

/// Rows and columns of a program's tile of the result.
const TILE: usize = 64;
/// Of the depth, in one step.
const STEP: usize = 32;

/// Whether a kernel may be written with tensor operations: they were asked for by name, or `is_right` says so for each half type that it has.
pub(crate) fn are_trusted(kernel: &openmps_tile::Kernel, is_right: impl Fn(answers::Question) -> bool) -> bool {
    let question = |dtype| answers::Question { class: Class::Product, engine: Engine::Kernels, dtype };
    settings::METAL_TENSOR_OPERATIONS.get() == Some(true)
        || HALF_TYPES.iter().filter(|(scalar, _)| kernel.has(*scalar)).all(|&(_, dtype)| is_right(question(dtype)))
}

impl<M: Metal> Gpu<M> {
    /// Whether this machine's tensor operations multiply a kernel's half types rightly.
    pub(super) fn multiplies_rightly(&self, kernel: &openmps_tile::Kernel) -> bool {
        are_trusted(kernel, |question| {
            let computation = |stream: &Stream<M>, inputs: &[TensorView<M::Buffer>], out: &TensorView<M::Buffer>| {
                self.multiply(stream, inputs, out).map_err(|error| openmps_metal::Error::System {
                    what: "a product by tensor operations",
                    message: error.to_string(),
                })
            };
            self.answers.is_right_by(&self.metal, question, &computation)
        })
    }

    fn multiply(
        &self,
        stream: &Stream<M>,
        inputs: &[TensorView<M::Buffer>],
        out: &TensorView<M::Buffer>,
    ) -> Result<()> {
        let pipeline = Pipeline::new(product(inputs, out).ok_or_else(|| failed("the product's tiles do not fit"))?)
            .map_err(failed)?;
        let kernel: Kernel = text_of(&pipeline, self.metal.properties(), || true)?;
        let (compiled, limits) = self.pipelines.get(&self.metal, &kernel.pipeline).map_err(failed)?;
        let address = |view: &TensorView<M::Buffer>| self.metal.contents(&view.buffer).0;
        let views = || inputs.iter().chain([out]);
        let arguments: Vec<u64> = views().map(|view| address(view) as u64).collect();
        let resolve = |wanted: usize| {
            let view = views().find(|view| address(view) == wanted)?;
            let extent = wanted..wanted + view.span();
            Some(Resolved { buffer: view.buffer.clone(), offset: 0, extent })
        };
        let grid = [out.shape[1] / TILE, out.shape[0] / TILE, 1].into();
        let launch = Launch { kernel: &kernel, pipeline: &compiled, limits, grid, arguments: &arguments };
        // SAFETY: the grid covers the result, and the kernel's constants are the operands' sizes.
        unsafe { stream.dispatch(&launch, resolve) }.map_err(failed)
    }
}

/// Rows of `left` times columns of `right`, a tile of the result each program. Lengths are the kernel's constants.
fn product<B>(inputs: &[TensorView<B>], out: &TensorView<B>) -> Option<openmps_tile::Kernel> {
    let (&[rows, columns], [left, _]) = (&out.shape[..], inputs) else { return None };
    let depth = *left.shape.last()?;
    if !rows.is_multiple_of(TILE) || !columns.is_multiple_of(TILE) || !depth.is_multiple_of(STEP) {
        return None;
    }
    let scalar = HALF_TYPES.iter().find(|(_, dtype)| *dtype == out.dtype)?.0;
    let mut b = Builder::new("known_product");
    let [left, right, out] = ["left", "right", "out"].map(|name| {
        let pointer = b.parameter(name, Type::pointer(scalar));
        b.divisible(16);
        pointer
    });
    let (row, column) = (lines(&mut b, 1), lines(&mut b, 0));
    let zero = b.constant(0.0, &Type::tile(Scalar::F32, &[TILE, TILE]));
    let bounds = [0, depth, STEP].map(|bound| b.integer(bound as i64, Scalar::I64));
    let sums = b.for_loop(bounds, &[zero], |b, from, sums| {
        let step = b.range(STEP);
        let from = b.splat_like(from, step);
        let along = b.add(from, step);
        let x = tile(b, left, (row, depth), along);
        let x = b.load(x, None, None);
        let y = tile(b, right, (along, columns), column);
        let y = b.load(y, None, None);
        vec![b.dot(x, y, sums[0])]
    });
    let result = b.cast(Cast::Float, sums[0], scalar);
    let to = tile(&mut b, out, (row, columns), column);
    b.store(to, result, None);
    Some(b.finish())
}

/// The lines of a program's tile on one axis of the grid.
fn lines(b: &mut Builder, axis: u8) -> Value {
    let (program, size) = (b.program_id(axis), b.integer(TILE as i64, Scalar::I64));
    let (first, range) = (b.multiply(program, size), b.range(TILE));
    let first = b.splat_like(first, range);
    b.add(first, range)
}

/// Pointers to `rows` by `columns` elements of a matrix whose rows have a length.
fn tile(b: &mut Builder, matrix: Value, (rows, length): (Value, usize), columns: Value) -> Value {
    let dims = [rows, columns].map(|of| b.type_of(of).dims[0]);
    let length = b.constant_like(length as f64, rows);
    let first = b.multiply(rows, length);
    let (first, columns) = (b.expand_dims(first, 1), b.expand_dims(columns, 0));
    let (first, columns) = (b.broadcast(first, &dims), b.broadcast(columns, &dims));
    let offsets = b.add(first, columns);
    b.add_pointer(matrix, offsets)
}
