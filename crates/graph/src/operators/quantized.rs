//! Linear layers with weights in blocks of few bits, as GGUF files hold them, and such weights as float32.

mod reference;
mod tiles;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::{Singles, write_singles};
use crate::layout::{Dense, call, check, expect_dtype, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, shape_of};
use openmps_host::native::quantized as native;
use openmps_tile::DType;

pub use openmps_host::native::quantized::BlockFormat;

/// `x weight^T`, or `x weight`. Inputs: x (.., columns), or (.., rows), of a float type, and the weight's bytes (rows, bytes of a row), each row
/// in whole blocks. Output: (.., rows), or (.., columns), of x's type. The weight is read as it is.
///
/// On the CPU `x weight^T` rounds each 32 neighbours of x to 8 bits with a scale of their own, as llama.cpp does, and sums in integers; the
/// other product and GPUs compute in float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantizedLinear {
    /// How the weight's rows are written.
    pub format: BlockFormat,
    /// Which product it is.
    pub product: Product,
}

/// Which of a weight's sides is summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// `x weight^T`, a layer's result: over the columns.
    Forward,
    /// `x weight`, the gradient of a layer's input: over the rows.
    Backward,
}

/// The weight's bytes (.., bytes of a row) as float32 (.., columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dequantize {
    /// How the rows are written.
    pub format: BlockFormat,
}

/// The elements of a row of this many bytes.
fn columns(operator: &'static str, format: BlockFormat, weight: &Meta) -> Result<usize> {
    expect_dtype(operator, "weight", weight.dtype, &[DType::U8])?;
    match weight.shape.last() {
        Some(bytes) if bytes % format.bytes() == 0 => Ok(format.columns(*bytes)),
        _ => {
            let expected = format!("rows of blocks of {} bytes, as {} has them", format.bytes(), format.name());
            Err(Error::Shape { operator, what: "weight", got: weight.shape.clone(), expected })
        }
    }
}

/// The weight for the native kernels: dense, alive as long as `dense`.
fn weight(format: BlockFormat, dense: &Dense, rows: usize, columns: usize) -> native::Weight {
    native::Weight { format, address: dense.address, rows, columns }
}

impl QuantizedLinear {
    /// The sizes (summed over, outputs) of a weight of rows and columns.
    fn sides(&self, rows: usize, columns: usize) -> (usize, usize) {
        match self.product {
            Product::Forward => (columns, rows),
            Product::Backward => (rows, columns),
        }
    }
}

impl Operator for QuantizedLinear {
    fn name(&self) -> &'static str {
        "quantized_linear"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let operator = self.name();
        expect_inputs(operator, inputs, 2)?;
        let (x, weight) = (&inputs[0], &inputs[1]);
        expect_dtype(operator, "x", x.dtype, DTYPES)?;
        if weight.shape.len() != 2 {
            let expected = "2 dimensions".to_owned();
            return Err(Error::Shape { operator, what: "weight", got: weight.shape.clone(), expected });
        }
        let (inner, outputs) = self.sides(weight.shape[0], columns(operator, self.format, weight)?);
        match x.shape.split_last() {
            Some((&last, rest)) if last == inner => {
                Ok(vec![Meta { dtype: x.dtype, shape: shape_of(&[rest, &[outputs]].concat())? }])
            }
            _ => {
                let expected = format!("rows of {inner}");
                Err(Error::Shape { operator, what: "x", got: x.shape.clone(), expected })
            }
        }
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        if out.is_empty() {
            return Ok(());
        }
        let rows = inputs[1].shape[0];
        let columns = self.format.columns(inputs[1].shape[1]);
        if !queue.is_host() {
            return tiles::linear(queue, self, self.sides(rows, columns).0, [x, &inputs[1], out]);
        }
        call(queue, self.name(), || {
            let (x, bytes) = (Singles::of(x), Dense::of(&inputs[1]));
            let (weight, count) = (weight(self.format, &bytes, rows, columns), out.len() / out.shape[out.rank() - 1]);
            write_singles(out, |to| {
                // SAFETY: a live weight of these sizes, in dense memory.
                unsafe {
                    match self.product {
                        Product::Forward => native::linear(&weight, count, x.get(), to),
                        Product::Backward => native::transposed(&weight, count, x.get(), to)?,
                    }
                }
                Ok(())
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, weight) = (b.dy()?, b.inputs[1]);
        let product = match self.product {
            Product::Forward => Product::Backward,
            Product::Backward => Product::Forward,
        };
        Ok(vec![Some(b.one(QuantizedLinear { product, ..*self }, &[dy, weight])?), None])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, weight) = (&inputs[0], reference::widened(self.format, &inputs[1]));
        let (inner, outputs) = self.sides(weight.shape[0], weight.shape[1]);
        let rank = x.shape.len();
        let shape = [&x.shape[..rank - 1], &[outputs]].concat();
        vec![Array::from_fn(&shape, x.dtype, |index| {
            let mut at = index.to_vec();
            let term = |k: usize| {
                at[rank - 1] = k;
                let [row, column] =
                    if self.product == Product::Forward { [index[rank - 1], k] } else { [k, index[rank - 1]] };
                x.at(&at) * weight.at(&[row, column])
            };
            (0..inner).map(term).sum()
        })]
    }
}

impl Operator for Dequantize {
    fn name(&self) -> &'static str {
        "dequantize"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let columns = columns(self.name(), self.format, &inputs[0])?;
        let rest = &inputs[0].shape[..inputs[0].shape.len() - 1];
        Ok(vec![Meta { dtype: DType::F32, shape: shape_of(&[rest, &[columns]].concat())? }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let out = &outputs[0];
        if out.is_empty() {
            return Ok(());
        }
        let columns = out.shape[out.rank() - 1];
        if !queue.is_host() {
            return tiles::dequantize(queue, self.format, &inputs[0], out);
        }
        call(queue, self.name(), || {
            let bytes = Dense::of(&inputs[0]);
            let weight = weight(self.format, &bytes, out.len() / columns, columns);
            write_singles(out, |to| {
                // SAFETY: a live weight of these sizes, in dense memory.
                unsafe { native::widen(&weight, to) };
                Ok(())
            })
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        vec![reference::widened(self.format, &inputs[0])]
    }
}

/// The types of x.
const DTYPES: &[DType] = &[DType::F16, DType::BF16, DType::F32];

/// x that 8 bits hold: whole numbers, of which one in each 32 is 127.
fn whole_numbers(dims: &[usize]) -> Input {
    let number = |i: usize| if i % 32 == 7 { 127.0 } else { (i * 61 % 97) as f64 - 48.0 };
    Input::of(dims, Values::Given((0..dims.iter().product()).map(number).collect()))
}

/// Blocks of bytes of every kind, whose scales are numbers of ordinary size.
fn blocks(format: BlockFormat, dims: &[usize]) -> Input {
    let per_row = format.row_bytes(dims[dims.len() - 1]);
    let scales: &[usize] = match format {
        BlockFormat::Q4_0 | BlockFormat::Q8_0 => &[0],
        BlockFormat::Q4_1 | BlockFormat::Q4K | BlockFormat::Q5K => &[0, 2],
        BlockFormat::Q6K => &[208],
    };
    let byte = |i: usize| match i % format.bytes() {
        // The upper byte of a float16: between 1/64 and 1/8, of either sign.
        at if scales.contains(&at.wrapping_sub(1)) => 0x24 + (i * 7 % 12) as u8 + (i / 3 % 2 * 0x80) as u8,
        _ => (i.wrapping_mul(0x9E37_79B9) >> 11) as u8,
    };
    let shape = [&dims[..dims.len() - 1], &[per_row]].concat();
    let count = shape.iter().product();
    Input::of(&shape, Values::Given((0..count).map(|i| f64::from(byte(i))).collect())).typed(DType::U8)
}

/// For the list of operators.
pub static LINEAR: Entry = Entry {
    name: "quantized_linear",
    summary: "A linear layer whose weight is in GGUF's blocks of 4, 5, 6 or 8 bits: its result, or its input's gradient.",
    dtypes: DTYPES,
    cases: || {
        let case = |format: BlockFormat, product: Product, x: &[usize], rows: usize, blocks_of_row: usize| {
            let columns = blocks_of_row * format.elements();
            let inner = if product == Product::Forward { columns } else { rows };
            let weight = blocks(format, &[rows, columns]);
            let operator = QuantizedLinear { format, product };
            Case::new(operator, vec![whole_numbers(&[x, &[inner]].concat()), weight])
        };
        let mut cases = Vec::new();
        for format in BlockFormat::ALL {
            cases.push(case(format, Product::Forward, &[2, 3], 6, 1));
            cases.push(case(format, Product::Backward, &[2], 35, 1));
        }
        cases.push(case(BlockFormat::Q4_1, Product::Forward, &[17], 35, 9));
        cases.push(case(BlockFormat::Q4_1, Product::Forward, &[], 5, 1));
        cases.push(case(BlockFormat::Q8_0, Product::Forward, &[0], 5, 1));
        cases.push(case(BlockFormat::Q8_0, Product::Backward, &[3], 0, 1));
        cases
    },
    tolerance: 32.0,
};

/// For the list of operators.
pub static DEQUANTIZE: Entry = Entry {
    name: "dequantize",
    summary: "Weights in GGUF's blocks of 4, 5, 6 or 8 bits as float32.",
    dtypes: &[DType::F32],
    cases: || {
        let mut cases = Vec::new();
        for format in BlockFormat::ALL {
            cases.push(Case::new(Dequantize { format }, vec![blocks(format, &[2, 3, 2 * format.elements()])]));
        }
        cases.push(Case::new(Dequantize { format: BlockFormat::Q4_0 }, vec![blocks(BlockFormat::Q4_0, &[0, 32])]));
        cases
    },
    tolerance: 2.0,
};
