//! Scaled dot product attention, `MPSGraph`'s `scaledDotProductAttention`: grouped heads, causal and additive masks, windows, soft caps.

mod form;
mod gradient;
mod one;
mod parts;
mod tiles;
mod vendor;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{call, check, expect_dtype, expect_shape, takes_native};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::Array;
use crate::vendor::try_vendor;
use crate::view::View;
use openmps_host::native::attention::{self as native, Operands};
use openmps_host::native::memory::Memory;
use openmps_tile::{DType, dtype};

/// The most elements of a query or value where attention is a kernel of tiles: on devices whose memory the CPU does not see.
pub const LARGEST_ON_TILES: usize = tiles::LARGEST;

/// `softmax(scale * queries * keys^T + mask) * values`.
///
/// Inputs: queries [batch, heads, rows, depth], keys [batch, key heads, keys, depth], values [batch, key heads, keys, columns], and a mask
/// that broadcasts to [batch, heads, rows, keys] if there is one. Each head of keys serves `heads / key heads` neighbouring heads of
/// queries. A query that sees no key, or only keys masked by minus infinity, gives zeros. The output may have any
/// strides but the last, which is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// The factor of the scores; one over the root of the depth when there is none.
    pub scale: Option<f64>,
    /// Query i sees the keys up to i + keys - rows only: the last query sees all.
    pub causal: bool,
    /// Query i sees none of the keys up to i + keys - rows but the last so many, its own among them.
    pub window: Option<usize>,
    /// Scaled scores become `cap * tanh(score / cap)`, before a mask is added.
    pub soft_cap: Option<f64>,
}

impl Attention {
    fn sizes(&self, inputs: &[Meta]) -> Result<native::Attention> {
        let operator = self.name();
        for (input, what) in inputs.iter().zip(["queries", "keys", "values"]) {
            if input.shape.len() != 4 {
                let expected = "4 dimensions".to_owned();
                return Err(Error::Shape { operator, what, got: input.shape.clone(), expected });
            }
            expect_dtype(operator, what, input.dtype, dtype::FLOATS)?;
            expect_dtype(operator, what, input.dtype, &[inputs[0].dtype])?;
        }
        let [batch, heads, rows, depth] = [0, 1, 2, 3].map(|d| inputs[0].shape[d]);
        let [key_heads, keys] = [1, 2].map(|d| inputs[1].shape[d]);
        let columns = inputs[2].shape[3];
        if key_heads == 0 || !heads.is_multiple_of(key_heads) {
            let expected = format!("a number of heads that divides {heads}");
            return Err(Error::Shape { operator, what: "keys", got: inputs[1].shape.clone(), expected });
        }
        expect_shape(operator, "keys", &inputs[1].shape, &[batch, key_heads, keys, depth])?;
        expect_shape(operator, "values", &inputs[2].shape, &[batch, key_heads, keys, columns])?;
        let Attention { causal, soft_cap, .. } = *self;
        // More than all keys are all of them: what is added up with it stays small.
        let window = self.window.map(|window| window.min(keys.max(1)));
        let refused = |attribute, got: String, expected: &str| {
            Err(Error::Attribute { operator, attribute, got, expected: expected.to_owned() })
        };
        if self.window == Some(0) {
            return refused("window", "0".to_owned(), "at least 1");
        }
        if let Some(cap) = soft_cap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
            return refused("soft cap", cap.to_string(), "a finite number above 0");
        }
        let scale = self.scale.unwrap_or(1.0 / (depth.max(1) as f64).sqrt());
        Ok(native::Attention { batch, heads, key_heads, rows, keys, depth, columns, scale, causal, window, soft_cap })
    }
}

impl Operator for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let operator = self.name();
        if !(3..=4).contains(&inputs.len()) {
            let (got, expected) = (inputs.len().to_string(), "3 or 4".to_owned());
            return Err(Error::Attribute { operator, attribute: "number of inputs", got, expected });
        }
        let sizes = self.sizes(inputs)?;
        if let Some(mask) = inputs.get(3) {
            expect_dtype(operator, "mask", mask.dtype, &[inputs[0].dtype])?;
            let full = [sizes.batch, sizes.heads, sizes.rows, sizes.keys];
            let fits = mask.shape.len() <= 4
                && mask.shape.iter().rev().zip(full.iter().rev()).all(|(&own, &size)| own == size || own == 1);
            if !fits {
                let (got, expected) = (mask.shape.clone(), format!("what broadcasts to {full:?}"));
                return Err(Error::Shape { operator, what: "mask", got, expected });
            }
        }
        let mut output = inputs[0].clone();
        output.shape[3] = sizes.columns;
        Ok(vec![output])
    }

    fn arithmetic(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let of = |of: native::Attention| of.batch * of.heads * of.rows * of.keys * (of.depth + of.columns);
        2 * self.sizes(inputs).map_or(0, |sizes| of(sizes) as u64)
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let last = outputs[0].strides[3];
        if last != 1 && outputs[0].shape[3] > 1 {
            let (got, expected) = (last.to_string(), "1".to_owned());
            return Err(Error::Attribute { operator: self.name(), attribute: "output's last stride", got, expected });
        }
        let metas: Vec<Meta> =
            inputs.iter().map(|view| Meta { dtype: view.dtype, shape: view.shape.clone() }).collect();
        let sizes = self.sizes(&metas)?;
        if try_vendor(queue, self.name(), || self.vendor_call(&sizes, inputs, &outputs[0]))? {
            return Ok(());
        }
        let full = [sizes.batch, sizes.heads, sizes.rows, sizes.keys];
        let mask = inputs.get(3).and_then(|mask| mask.broadcast_to(&full));
        if !takes_native(queue, tiles::fits(&sizes)) {
            return tiles::run(queue, &sizes, [&inputs[0], &inputs[1], &inputs[2]], mask.as_ref(), &outputs[0]);
        }
        let memory = |view: &'_ View| -> (usize, crate::view::Strides) { (view.address, view.strides.clone()) };
        let [q, k, v] = [0, 1, 2].map(|i| memory(&inputs[i]));
        let operands = Operands {
            queries: Memory::new(q.0, &q.1),
            keys: Memory::new(k.0, &k.1),
            values: Memory::new(v.0, &v.1),
            mask: mask.as_ref().map(|mask| Memory::new(mask.address, &mask.strides)),
            out: Memory::new(outputs[0].address, &outputs[0].strides),
        };
        call(queue, self.name(), || {
            // SAFETY: views name live memory of the checked shapes; the output is the caller's own and dense.
            unsafe { native::attention(&sizes, inputs[0].dtype, &operands) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        gradient::gradient(self, b)
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let metas: Vec<Meta> =
            inputs.iter().map(|array| Meta { dtype: array.dtype, shape: array.shape.clone() }).collect();
        let sizes = self.sizes(&metas).expect("a legal call");
        let dims = [sizes.batch, sizes.heads, sizes.rows, sizes.columns];
        vec![Array::from_fn(&dims, inputs[0].dtype, |at| {
            let (b, h, i, c) = (at[0], at[1], at[2], at[3]);
            let key_head = h / (sizes.heads / sizes.key_heads);
            let sees = |j: usize| {
                let near = |window: usize| j + sizes.rows + window > i + sizes.keys;
                (!self.causal || j + sizes.rows <= i + sizes.keys) && sizes.window.is_none_or(near)
            };
            let scores: Vec<(usize, f64)> = (0..sizes.keys)
                .filter(|&j| sees(j))
                .map(|j| {
                    let terms =
                        (0..sizes.depth).map(|p| inputs[0].at(&[b, h, i, p]) * inputs[1].at(&[b, key_head, j, p]));
                    let mask = inputs.get(3).map_or(0.0, |mask| mask.at_broadcast(&[b, h, i, j]));
                    let scaled = terms.sum::<f64>() * sizes.scale;
                    (j, self.soft_cap.map_or(scaled, |cap| cap * (scaled / cap).tanh()) + mask)
                })
                .collect();
            let largest = scores.iter().fold(f64::NEG_INFINITY, |top, &(_, score)| top.max(score));
            if largest == f64::NEG_INFINITY {
                return 0.0;
            }
            let total: f64 = scores.iter().map(|&(_, score)| (score - largest).exp()).sum();
            let weighted =
                scores.iter().map(|&(j, score)| (score - largest).exp() * inputs[2].at(&[b, key_head, j, c]));
            weighted.sum::<f64>() / total
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "attention",
    summary: "softmax(scale * queries * keys^T + mask) * values, of grouped heads.",
    dtypes: &[DType::F16, DType::BF16, DType::F32, DType::F64],
    cases: || {
        let of = |attention: Attention, shapes: &[&[usize]]| {
            let mut inputs: Vec<Input> =
                shapes.iter().map(|dims| Input::of(dims, Values::Uniform(-1.0, 1.0))).collect();
            if let Some(mask) = inputs.get_mut(3) {
                mask.values = Values::Given(vec![0.0, -1.5, 0.25, f64::NEG_INFINITY, 0.5]);
            }
            Case::new(attention, inputs)
        };
        let case = |causal, scale, shapes: &[&[usize]]| of(Attention { scale, causal, ..Attention::default() }, shapes);
        let near = |causal, window, soft_cap, shapes: &[&[usize]]| {
            of(Attention { causal, window, soft_cap, ..Attention::default() }, shapes)
        };
        vec![
            case(false, None, &[&[1, 1, 1, 1], &[1, 1, 1, 1], &[1, 1, 1, 1]]),
            case(false, None, &[&[2, 4, 7, 8], &[2, 2, 9, 8], &[2, 2, 9, 16]]),
            case(true, Some(0.5), &[&[1, 3, 20, 32], &[1, 3, 20, 32], &[1, 3, 20, 32]]),
            case(true, None, &[&[1, 2, 3, 5], &[1, 1, 11, 5], &[1, 1, 11, 3]]),
            case(true, None, &[&[1, 1, 5, 4], &[1, 1, 3, 4], &[1, 1, 3, 4]]),
            case(false, None, &[&[2, 2, 6, 4], &[2, 2, 17, 4], &[2, 2, 17, 4], &[2, 1, 1, 17]]),
            case(true, None, &[&[2, 2, 6, 4], &[2, 2, 17, 4], &[2, 2, 17, 4], &[6, 17]]),
            case(false, None, &[&[2, 2, 6, 4], &[2, 2, 17, 4], &[2, 2, 17, 4], &[2, 2, 6, 17]]),
            // Keys that several programs share: grouped heads, more than one query, a mask, and causal ones of which the last part sees few.
            case(false, None, &[&[1, 2, 1, 16], &[1, 1, 777, 16], &[1, 1, 777, 40]]),
            case(true, None, &[&[2, 2, 7, 5], &[2, 1, 529, 5], &[2, 1, 529, 3], &[7, 529]]),
            case(true, None, &[&[1, 1, 8, 8], &[1, 1, 513, 8], &[1, 1, 513, 8]]),
            // One query of each head: vectors of 16 bytes, a mask of which one part sees nothing, a window, a cap.
            case(true, None, &[&[1, 2, 1, 64], &[1, 2, 600, 64], &[1, 2, 600, 64]]),
            case(false, None, &[&[2, 2, 1, 12], &[2, 1, 520, 12], &[2, 1, 520, 24], &[2, 1, 1, 520]]),
            near(true, Some(300), Some(1.5), &[&[1, 2, 1, 32], &[1, 1, 700, 32], &[1, 1, 700, 32]]),
            case(false, None, &[&[1, 2, 3, 4], &[1, 2, 0, 4], &[1, 2, 0, 4]]),
            case(false, None, &[&[0, 2, 3, 4], &[0, 2, 5, 4], &[0, 2, 5, 4]]),
            near(true, Some(1), None, &[&[1, 2, 9, 8], &[1, 1, 9, 8], &[1, 1, 9, 8]]),
            near(true, Some(70), Some(2.0), &[&[1, 4, 5, 16], &[1, 2, 150, 16], &[1, 2, 150, 16]]),
            near(false, Some(6), None, &[&[2, 2, 30, 8], &[2, 2, 30, 8], &[2, 2, 30, 8], &[30, 30]]),
            near(true, Some(40), Some(0.5), &[&[1, 1, 90, 32], &[1, 1, 80, 32], &[1, 1, 80, 32]]),
            near(false, None, Some(1.0), &[&[1, 2, 6, 4], &[1, 1, 17, 4], &[1, 1, 17, 4], &[6, 17]]),
        ]
    },
    tolerance: 16.0,
};
