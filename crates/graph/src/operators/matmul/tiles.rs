//! The product as a kernel of tiles, for GPUs: blocks of sums in registers, on matrix units where the device has them.

use super::Batch;
use crate::error::{Error, Result};
use crate::program::{self, Key, scalar_bits};
use crate::queue::Queue;
use crate::rows::convert;
use crate::tiles::{self, Access, Matrix, Order};
use crate::view::View;
use openmps_host::native::matmul::MatrixProduct;
use openmps_tile::{Builder, DType, Kernel, Number, Scalar, Type, Value};

const OPERATOR: &str = "matmul";

/// Rows and columns of a block at most, and bytes of a row in a step's depth: both factors take 10 KiB of threadgroup memory.
const LARGEST: usize = 64;
const DEPTH_BYTES: usize = 64;

/// The smallest sides of a block: those of a matrix unit.
const SMALLEST: usize = 16;

fn side(size: usize) -> usize {
    size.next_power_of_two().clamp(SMALLEST, LARGEST)
}

/// What the kernel depends on.
struct Form {
    dtype: DType,
    /// Rows, columns and depth of a block.
    block: [usize; 3],
    /// How the factors lie.
    orders: [Order; 2],
    /// How all of them are read and written.
    access: Access,
    batches: usize,
    /// Whether what the result holds counts.
    adds: bool,
}

/// `out = alpha * left * right + beta * out`, [left, right, out], for every batch.
pub(super) fn run(queue: &Queue, product: &MatrixProduct, views: [&View; 3], batch: &Batch) -> Result<()> {
    let dtype = views[2].dtype;
    if !dtype.is_float() {
        let expected = "a float type, on a device whose memory the CPU does not see".to_owned();
        return Err(Error::DType { operator: OPERATOR, what: "left", got: dtype, expected });
    }
    let batches: usize = batch.sizes.iter().product();
    if batches * product.rows * product.columns == 0 {
        return Ok(());
    }
    let deepest = (DEPTH_BYTES / dtype.size()).max(SMALLEST);
    let block = [side(product.rows), side(product.columns), product.depth.next_power_of_two().clamp(SMALLEST, deepest)];
    let orders = [product.left, product.right].map(Order::of);
    let access = access(product, orders, views, batch);
    let form = Form { dtype, block, orders, access, batches: batch.sizes.len(), adds: product.beta != 0.0 };
    let pipeline = program::get(OPERATOR, &form.key(), || kernel(&form))?;
    let mut arguments: Vec<u64> = views.iter().map(|view| view.address as u64).collect();
    arguments.extend([product.rows, product.columns, product.depth].map(|size| size as u64));
    let strides = [product.left, product.right, product.out];
    arguments.extend(strides.as_flattened().iter().map(|&stride| stride as u64));
    let bits = |number: f64| scalar_bits(Number::Float(number), dtype.compute());
    arguments.extend([product.alpha, product.beta].map(bits));
    arguments.extend(batch.sizes.iter().map(|&size| size as u64));
    for strides in &batch.strides {
        arguments.extend(strides.iter().map(|&stride| stride as u64));
    }
    let grid = [product.columns.div_ceil(block[1]), product.rows.div_ceil(block[0]), batches];
    // SAFETY: sizes and strides are those of the views, which the frontend keeps alive.
    unsafe { program::launch(queue, OPERATOR, &pipeline, grid, &arguments) }
}

impl Form {
    fn key(&self) -> Key {
        let [left, right] = self.orders.map(|order| order as usize);
        let how = [left, right, self.access as usize, self.batches, usize::from(self.adds)];
        Key::Other(OPERATOR, vec![self.dtype], [&self.block[..], &how].concat())
    }
}

/// The lines of a factor are its rows or its columns, as they lie; those of the result are rows.
fn access(product: &MatrixProduct, orders: [Order; 2], views: [&View; 3], batch: &Batch) -> Access {
    let lines = |[row, column]: [isize; 2], order: Order, [rows, columns]: [usize; 2]| match order {
        Order::ByRow => (column, row, columns),
        Order::ByColumn => (row, column, rows),
    };
    let MatrixProduct { rows, columns, depth, .. } = *product;
    let lines = [
        lines(product.left, orders[0], [rows, depth]),
        lines(product.right, orders[1], [depth, columns]),
        lines(product.out, Order::ByRow, [rows, columns]),
    ];
    if lines.iter().any(|&(along, ..)| along != 1) {
        return Access::Elements;
    }
    let across: Vec<isize> = lines.iter().map(|line| line.1).chain(batch.strides.iter().flatten().copied()).collect();
    Access::of(views[2].dtype, &views.map(|view| view.address), &across, &lines.map(|line| line.2))
}

/// Rows, columns and depth: of those along which lines lie may be known what divides them.
fn lengths(b: &mut Builder, form: &Form) -> [Value; 3] {
    let [left, right] = form.orders;
    let depth_is_line = left == Order::ByRow || right == Order::ByColumn;
    [("rows", left == Order::ByColumn), ("columns", true), ("depth", depth_is_line)].map(|(name, is_line)| {
        let access = if is_line { form.access } else { Access::Elements };
        access.number(b, name, form.dtype)
    })
}

fn kernel(form: &Form) -> Kernel {
    let mut b = Builder::new(OPERATOR);
    let compute = form.dtype.compute();
    let [rows_of_block, columns_of_block, depth_of_block] = form.block;
    let (access, dtype) = (form.access, form.dtype);
    let pointers = ["left", "right", "out"].map(|name| access.pointer(&mut b, name, dtype));
    let index = Type::scalar(Scalar::I64);
    let [rows, columns, depth] = lengths(&mut b, form);
    let orders = [form.orders[0], form.orders[1], Order::ByRow];
    let strides = [0, 1, 2].map(|i| {
        let [row, column] = ["row", "column"].map(|of| format!("{of}_stride{i}"));
        match orders[i] {
            Order::ByRow => [access.number(&mut b, &row, dtype), access.along(&mut b, &column)],
            Order::ByColumn => [access.along(&mut b, &row), access.number(&mut b, &column, dtype)],
        }
    });
    let [alpha, beta] = ["alpha", "beta"].map(|name| b.parameter(name, Type::scalar(compute.into())));
    let sizes: Vec<Value> = (0..form.batches).map(|d| b.parameter(format!("batch{d}"), index.clone())).collect();
    let batch_strides = [0, 1, 2].map(|i| {
        (0..form.batches).map(|d| access.number(&mut b, &format!("batch_stride{i}_{d}"), dtype)).collect::<Vec<_>>()
    });
    let places = tiles::unravelled(&mut b, 2, &sizes);
    let [left, right, out] = [0, 1, 2].map(|i| {
        let by_batch = places.iter().copied().zip(batch_strides[i].iter().copied());
        Matrix { pointer: tiles::moved(&mut b, pointers[i], by_batch), strides: strides[i] }
    });

    let row = tiles::of_program(&mut b, 1, rows_of_block, rows);
    let column = tiles::of_program(&mut b, 0, columns_of_block, columns);
    let (zero, step) = (b.integer(0, Scalar::I64), b.integer(depth_of_block as i64, Scalar::I64));
    let none = b.constant(0.0, &Type::tile(compute.into(), &[rows_of_block, columns_of_block]));
    let sum = b.for_loop([zero, depth, step], &[none], |b, at, carried| {
        let along = tiles::block(b, at, depth_of_block, depth);
        let (x, y) = (left.load_in(b, form.orders[0], row, along), right.load_in(b, form.orders[1], along, column));
        vec![b.dot(x, y, carried[0])]
    })[0];
    let alpha = b.splat_like(alpha, sum);
    let mut result = b.multiply(sum, alpha);
    if form.adds {
        let before = out.load(&mut b, row, column);
        let before = convert(&mut b, before, form.dtype, compute);
        let beta = b.splat_like(beta, before);
        let before = b.multiply(before, beta);
        result = b.add(result, before);
    }
    let result = convert(&mut b, result, compute, form.dtype);
    let (pointers, mask) = out.places(&mut b, row, column);
    b.store(pointers, result, Some(mask));
    b.finish()
}
