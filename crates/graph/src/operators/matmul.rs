//! The product of matrices, vectors, or batches of them, with the shapes of NumPy's and Paddle's `matmul`.

pub(in crate::operators) mod gradient;
pub(crate) mod tiles;

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{call, check, expect_dtype, expect_inputs, takes_native};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::{Array, for_each_index};
use crate::vendor::matrices;
use crate::view::{Shape, Strides, View};
use openmps_host::native::matmul::{Matrices, MatrixProduct, matmul};
use openmps_runtime::vendor::VendorCall;
use openmps_tile::{DType, dtype};

/// `left * right` over the last two dimensions; the ones before broadcast. A vector counts as a row on the left and as a column on
/// the right, and its dimension is absent from the result. Inputs of any strides, output of any strides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matmul {
    /// The last two dimensions of the left input are swapped. Ignored for a vector.
    pub transpose_left: bool,
    /// The last two dimensions of the right input are swapped. Ignored for a vector.
    pub transpose_right: bool,
}

/// The sizes of one call.
struct Sizes {
    batch: Shape,
    rows: usize,
    depth: usize,
    columns: usize,
}

impl Matmul {
    fn sizes(&self, left: &Shape, right: &Shape) -> Result<Sizes> {
        let operator = self.name();
        for (what, shape) in [("left", left), ("right", right)] {
            if shape.is_empty() {
                let expected = "at least 1 dimension".to_owned();
                return Err(Error::Shape { operator, what, got: shape.clone(), expected });
            }
        }
        let ordered = |a: usize, b: usize, swapped: bool| if swapped { (b, a) } else { (a, b) };
        let (rows, depth) = match **left {
            [depth] => (1, depth),
            [.., a, b] => ordered(a, b, self.transpose_left),
            [] => (1, 1),
        };
        let (right_depth, columns) = match **right {
            [depth] => (depth, 1),
            [.., a, b] => ordered(a, b, self.transpose_right),
            [] => (1, 1),
        };
        if depth != right_depth {
            let expected = format!("{depth} rows, as many as left {left:?} has columns");
            return Err(Error::Shape { operator, what: "right", got: right.clone(), expected });
        }
        let (a, b) = (batch_of(left), batch_of(right));
        let rank = a.len().max(b.len());
        let mut batch = Shape::new();
        for d in 0..rank {
            let size = |dims: &[usize]| (d + dims.len()).checked_sub(rank).map_or(1, |d| dims[d]);
            batch.push(match (size(a), size(b)) {
                (a, b) if a == b || b == 1 => a,
                (1, b) => b,
                _ => return Err(Error::Broadcast { operator, left: left.clone(), right: right.clone() }),
            });
        }
        Ok(Sizes { batch, rows, depth, columns })
    }

    /// The product of legal operands, [left, right, out], with where the batches' matrices begin.
    pub(crate) fn plan(&self, views: [&View; 3], factors: [f64; 2]) -> (MatrixProduct, Vec<[isize; 3]>, Matrices) {
        let sizes = self.sizes(&views[0].shape, &views[1].shape).expect("operands that were checked");
        let product = self.product(&sizes, views, factors);
        let offsets = Batch::new(&sizes.batch, views).offsets();
        (product, offsets, Matrices { left: views[0].address, right: views[1].address, out: views[2].address })
    }

    fn product(&self, sizes: &Sizes, [left, right, out]: [&View; 3], [alpha, beta]: [f64; 2]) -> MatrixProduct {
        let out_strides = match (left.rank(), right.rank(), &*out.strides) {
            (1, 1, _) => [1, 1],
            (1, _, [.., column]) => [0, *column],
            (_, 1, [.., row]) => [*row, 1],
            (_, _, [.., row, column]) => [*row, *column],
            _ => [1, 1],
        };
        MatrixProduct {
            left: matrix_strides(left, self.transpose_left, [0, 1]),
            right: matrix_strides(right, self.transpose_right, [1, 0]),
            out: out_strides,
            alpha,
            beta,
            ..MatrixProduct::dense(sizes.rows, sizes.depth, sizes.columns)
        }
    }

    /// `out = alpha * left * right + beta * out`; a `beta` of 0 ignores what `out` holds, even NaN.
    pub fn accumulate(&self, queue: &Queue, [left, right]: [&View; 2], out: &View, factors: [f64; 2]) -> Result<()> {
        check(self, &[left.clone(), right.clone()], std::slice::from_ref(out))?;
        let sizes = self.sizes(&left.shape, &right.shape)?;
        let views = [left, right, out];
        let (product, batch) = (self.product(&sizes, views, factors), Batch::new(&sizes.batch, views));
        if crate::vendor::try_vendor(queue, self.name(), || vendor_call(&product, views, &batch.offsets()))? {
            return Ok(());
        }
        if !takes_native(queue, out.dtype.is_float()) {
            return tiles::run(queue, &product, views, &batch);
        }
        let (at, offsets) = (Matrices { left: left.address, right: right.address, out: out.address }, batch.offsets());
        call(queue, self.name(), || {
            // SAFETY: views name live memory of their shapes and strides; the output is the caller's own.
            unsafe { matmul(&product, out.dtype, at, &offsets) }
        })
    }
}

/// The batches of a product: sizes outermost first, and each matrix's strides along them, 0 where it is the same for all.
struct Batch<'a> {
    sizes: &'a [usize],
    strides: [Strides; 3],
}

impl<'a> Batch<'a> {
    /// Of [left, right, out].
    fn new(sizes: &'a [usize], views: [&View; 3]) -> Batch<'a> {
        let rank = sizes.len();
        let dims = [batch_of(&views[0].shape).len(), batch_of(&views[1].shape).len(), rank];
        Batch { sizes, strides: [0, 1, 2].map(|i| broadcast_strides(views[i], dims[i], rank)) }
    }

    /// Where each batch's matrices begin, in elements.
    fn offsets(&self) -> Vec<[isize; 3]> {
        let mut offsets = Vec::with_capacity(self.sizes.iter().product());
        for_each_index(self.sizes, |index| {
            let along = |strides: &Strides| index.iter().zip(strides).map(|(&i, stride)| i as isize * stride).sum();
            offsets.push(self.strides.each_ref().map(along));
        });
        offsets
    }
}

/// The strides of the first `dims` dimensions as they broadcast to `rank` of them.
fn broadcast_strides(view: &View, dims: usize, rank: usize) -> Strides {
    let missing = std::iter::repeat_n(0, rank - dims);
    missing.chain((0..dims).map(|d| if view.shape[d] == 1 { 0 } else { view.strides[d] })).collect()
}

fn batch_of(shape: &[usize]) -> &[usize] {
    &shape[..shape.len().saturating_sub(2)]
}

/// The product for MPS, whose matrices have rows without gaps and follow each other evenly.
fn vendor_call(product: &MatrixProduct, views: [&View; 3], batches: &[[isize; 3]]) -> Option<VendorCall> {
    if product.rows * product.depth * product.columns == 0 {
        return None;
    }
    let step = |operand: usize| -> Option<isize> {
        let step = batches.get(1)?[operand] - batches.first()?[operand];
        batches.windows(2).all(|pair| pair[1][operand] - pair[0][operand] == step).then_some(step)
    };
    let (mut count, mut rows) = (batches.len(), product.rows);
    let mut steps = [0, 1, 2].map(|operand| if count == 1 { Some(0) } else { step(operand) });
    // One right matrix for all, and rows that follow each other: a single product of more rows.
    let below = |by_row: isize| Some(by_row * rows as isize);
    if count > 1 && steps == [below(product.left[0]), Some(0), below(product.out[0])] {
        (rows, count, steps) = (rows * count, 1, [Some(0); 3]);
    }
    let first = batches.first()?;
    let operand = |which: usize, sizes: [usize; 2], strides: [isize; 2]| {
        let view = views[which];
        let address = view.address.wrapping_add_signed(first[which] * view.dtype.size() as isize);
        matrices((address, view.dtype), [count, sizes[0], sizes[1]], [steps[which]?, strides[0], strides[1]])
    };
    let (left, transpose_left) = operand(0, [rows, product.depth], product.left)?;
    let (right, transpose_right) = operand(1, [product.depth, product.columns], product.right)?;
    let (out, false) = operand(2, [rows, product.columns], product.out)? else { return None };
    let (transposed, factors) = ([transpose_left, transpose_right], [product.alpha, product.beta]);
    Some(VendorCall::Product { left, right, out, transposed, factors })
}

/// The strides of the last two dimensions, (row, column), as the operand enters the product.
fn matrix_strides(view: &View, swapped: bool, vector: [isize; 2]) -> [isize; 2] {
    match *view.strides {
        [stride] => vector.map(|used| used * stride),
        [.., row, column] if swapped => [column, row],
        [.., row, column] => [row, column],
        [] => [0, 0],
    }
}

impl Operator for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        let (left, right) = (&inputs[0], &inputs[1]);
        expect_dtype(self.name(), "left", left.dtype, dtype::NUMBERS)?;
        expect_dtype(self.name(), "right", right.dtype, &[left.dtype])?;
        let Sizes { batch: mut shape, rows, columns, .. } = self.sizes(&left.shape, &right.shape)?;
        if left.shape.len() > 1 {
            shape.push(rows);
        }
        if right.shape.len() > 1 {
            shape.push(columns);
        }
        Ok(vec![Meta { dtype: left.dtype, shape }])
    }

    fn arithmetic(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let depth = self.sizes(&inputs[0].shape, &inputs[1].shape).map_or(0, |sizes| sizes.depth as u64);
        2 * depth * outputs[0].count()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        let ([left, right], [out]) = (inputs, outputs) else { return check(self, inputs, outputs) };
        self.accumulate(queue, [left, right], out, [1.0, 0.0])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        gradient::gradient(self, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (left, right) = (&inputs[0], &inputs[1]);
        let meta = |array: &Array| Meta { dtype: array.dtype, shape: array.shape.clone() };
        let out = self.infer(&[meta(left), meta(right)]).expect("a legal call").remove(0);
        let sizes = self.sizes(&left.shape, &right.shape).expect("a legal call");
        let at = |array: &Array, batch: &[usize], row: usize, column: usize, swapped: bool| {
            if array.shape.len() == 1 {
                return array.at(&[row.max(column)]);
            }
            let own = batch_of(&array.shape);
            let skipped = batch.len() - own.len();
            let mut index: Vec<usize> =
                own.iter().zip(&batch[skipped..]).map(|(&size, &i)| if size == 1 { 0 } else { i }).collect();
            index.extend(if swapped { [column, row] } else { [row, column] });
            array.at(&index)
        };
        vec![Array::from_fn(&out.shape, out.dtype, |index| {
            let (batch, rest) = index.split_at(sizes.batch.len());
            let (row, column) = match (left.shape.len(), right.shape.len()) {
                (1, 1) => (0, 0),
                (1, _) => (0, rest[0]),
                (_, 1) => (rest[0], 0),
                _ => (rest[0], rest[1]),
            };
            let row = if left.shape.len() == 1 { 0 } else { row };
            (0..sizes.depth)
                .map(|k| {
                    let column = if right.shape.len() == 1 { 0 } else { column };
                    at(left, batch, row, k, self.transpose_left) * at(right, batch, k, column, self.transpose_right)
                })
                .sum()
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "matmul",
    summary: "The product of two matrices, vectors or batches of matrices, either transposed.",
    // The narrow integers wrap, which the float64 reference does not.
    dtypes: &[DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32, DType::I64],
    cases: || {
        let shapes: &[(&[usize], &[usize], bool, bool)] = &[
            (&[1, 1], &[1, 1], false, false),
            (&[5, 7], &[7, 3], false, false),
            (&[7, 5], &[7, 3], true, false),
            (&[5, 7], &[3, 7], false, true),
            (&[7, 5], &[3, 7], true, true),
            (&[17, 31], &[31, 33], false, false),
            (&[64, 100], &[100, 65], false, false),
            (&[9], &[9], false, false),
            (&[9], &[9, 4], false, false),
            (&[4, 9], &[9], false, false),
            (&[9], &[2, 9, 4], false, false),
            (&[3, 2, 4, 9], &[9], false, false),
            (&[6, 4, 5], &[5, 8], false, false),
            (&[6, 4, 5], &[6, 5, 8], false, false),
            (&[2, 1, 4, 5], &[3, 5, 2], false, false),
            (&[4, 5], &[2, 3, 6, 5], false, true),
            (&[0, 4, 5], &[5, 3], false, false),
            (&[2, 0], &[0, 3], false, false),
            (&[0, 3], &[3, 2], false, false),
        ];
        let case = |&(left, right, transpose_left, transpose_right): &(&[usize], &[usize], bool, bool)| {
            Case::new(Matmul { transpose_left, transpose_right }, vec![Input::new(left), Input::new(right)])
        };
        shapes.iter().map(case).collect()
    },
    tolerance: 16.0,
};
