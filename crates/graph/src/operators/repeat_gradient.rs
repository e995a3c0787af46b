//! Sums over what was repeated: the gradients of expand and tile.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Recorder};
use crate::image::{Singles, write_singles};
use crate::layout::{Dense, call, check_dense, copy_view, expect_inputs};
use crate::operator::{Meta, Operator};
use crate::operators::expand::Tile;
use crate::operators::reduce::{Reduce, Reduction};
use crate::queue::Queue;
use crate::reference::{Array, for_each_index};
use crate::view::{MAX_RANK, Shape, View, dense_strides};
use openmps_host::by_type;
use openmps_host::native::{axis_sum::axis_sum, lines::Lines};
use openmps_tile::{DType, dtype};
use std::sync::Arc;

/// The sum over every copy of each element: the gradient of repeating a tensor of dimensions `dims`, whether along
/// dimensions of size 1 or whole. The input's dimensions are multiples of `dims`, which get leading ones.
#[derive(Clone, Debug)]
pub struct RepeatGradient {
    /// The dimensions before the repetition.
    pub dims: Shape,
}

impl RepeatGradient {
    /// The gradient's dimensions cut into (copies, size) pairs; `None` where they are no multiples.
    fn pairs(&self, repeated: &[usize]) -> Option<Vec<(usize, usize)>> {
        let missing = repeated.len().checked_sub(self.dims.len())?;
        let pair = |(d, &size): (usize, &usize)| {
            let own = d.checked_sub(missing).map_or(1, |d| self.dims[d]);
            match (size, own) {
                (0, own) => Some((0, own)),
                (size, own) => (own != 0 && size % own == 0).then(|| (size / own, own)),
            }
        };
        repeated.iter().enumerate().map(pair).collect()
    }
}

impl RepeatGradient {
    /// The gradient with each dimension cut in two, copies and size, and the axes of copies; none where that is too many dimensions.
    fn cut(&self, repeated: &View) -> Option<(View, Vec<i64>)> {
        let pairs = self.pairs(&repeated.shape)?;
        if repeated.is_empty() || 2 * pairs.len() > MAX_RANK || pairs.is_empty() {
            return None;
        }
        let shape = pairs.iter().flat_map(|&(copies, size)| [copies, size]).collect();
        let strides =
            pairs.iter().zip(&repeated.strides).flat_map(|(&(_, size), &stride)| [stride * size as isize, stride]);
        let axes = (0..pairs.len() as i64).map(|d| 2 * d).collect();
        Some((View { shape, strides: strides.collect(), ..repeated.clone() }, axes))
    }
}

/// Cuts a list of (copies, size) pairs into alternating summed and kept dimensions, neighbours of a kind merged.
fn alternating(pairs: &[(usize, usize)]) -> Vec<(bool, usize)> {
    let mut merged: Vec<(bool, usize)> = Vec::new();
    for (summed, size) in pairs.iter().flat_map(|&(copies, size)| [(true, copies), (false, size)]) {
        match merged.last_mut() {
            _ if size == 1 => {}
            Some((kind, product)) if *kind == summed => *product *= size,
            _ => merged.push((summed, size)),
        }
    }
    merged
}

/// Sums a dense tensor of alternating dimensions, of which some are summed, in one pass for each of those: innermost first, the last one to `to`.
///
/// # Safety
/// Both are addresses of so many elements of the type, before and after the sums.
unsafe fn sum_up(dtype: DType, mut dims: Vec<(bool, usize)>, mut from: usize, to: usize) {
    let mut held = Vec::new();
    while let Some(at) = dims.iter().rposition(|(summed, _)| *summed) {
        let product = |part: &[(bool, usize)]| part.iter().map(|(_, size)| size).product::<usize>();
        let (outer, inner) = (product(&dims[..at]), product(&dims[at + 1..]));
        let lines = Lines { outer, size: dims.remove(at).1, inner };
        let last = dims.iter().all(|(summed, _)| !summed);
        let memory = vec![0_u64; if last { 0 } else { (outer * inner * dtype.size()).div_ceil(8) }];
        let to = if last { to } else { memory.as_ptr() as usize };
        // SAFETY: dense memory of these lines, and of one element for each.
        by_type!(dtype, T => unsafe { axis_sum::<T>(from, to, lines) });
        (from, held) = (to, memory);
    }
    drop(held);
}

impl Operator for RepeatGradient {
    fn name(&self) -> &'static str {
        "repeat_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        if self.pairs(&inputs[0].shape).is_none() {
            let (got, expected) = (inputs[0].shape.clone(), format!("multiples of {:?}", self.dims));
            return Err(Error::Shape { operator: self.name(), what: "gradient", got, expected });
        }
        Ok(vec![Meta { dtype: inputs[0].dtype, shape: self.dims.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        if !queue.is_host()
            && let Some((repeated, axes)) = self.cut(&inputs[0])
        {
            let sum = Reduce { output: Some(inputs[0].dtype), ..Reduce::new(Reduction::Sum, &axes, true) };
            let kept = repeated.shape.iter().enumerate();
            let dims: Vec<usize> = kept.map(|(d, &size)| if d % 2 == 0 { 1 } else { size }).collect();
            return sum.run(queue, &[repeated], &[View::dense(outputs[0].address, inputs[0].dtype, &dims)?]);
        }
        let dims = alternating(&self.pairs(&inputs[0].shape).expect("checked by infer"));
        let (dtype, sums) = (inputs[0].dtype, dims.iter().filter(|(summed, _)| *summed).count());
        call(queue, self.name(), || {
            // Sums of a half type are rounded to it once.
            if sums > 1 && dtype.compute() != dtype {
                let singles = Singles::of(&inputs[0]);
                return write_singles(&outputs[0], |to| {
                    // SAFETY: so many elements of float32, read and written.
                    unsafe { sum_up(DType::F32, dims, singles.get().as_ptr() as usize, to.as_mut_ptr() as usize) };
                    Ok(())
                });
            }
            let dense = Dense::of(&inputs[0]);
            if sums == 0 {
                let strides = dense_strides(&outputs[0].shape);
                copy_view(&View { address: dense.address, strides, ..outputs[0].clone() }, &outputs[0]);
                return Ok(());
            }
            // SAFETY: dense tensors of the checked shapes.
            unsafe { sum_up(dtype, dims, dense.address, outputs[0].address) };
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (dy, repeated) = (b.dy()?, b.meta(b.inputs[0]).shape);
        let missing = repeated.len() - self.dims.len();
        let size = |d: usize| d.checked_sub(missing).map_or(1, |d| self.dims[d].max(1));
        let repeats = repeated.iter().enumerate().map(|(d, &repeated)| repeated / size(d)).collect();
        Ok(vec![Some(b.record(Arc::new(Tile { repeats }), &[dy])?[0])])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let mut sums = Array::from_fn(&self.dims, inputs[0].dtype, |_| 0.0);
        let strides = dense_strides(&self.dims);
        let missing = inputs[0].shape.len() - self.dims.len();
        let mut flat = 0;
        for_each_index(&inputs[0].shape, |index| {
            let at = |d: usize| (index[missing + d] % self.dims[d]) as isize * strides[d];
            sums.data[(0..self.dims.len()).map(at).sum::<isize>() as usize] += inputs[0].data[flat];
            flat += 1;
        });
        vec![sums]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "repeat_gradient",
    summary: "The sum over every copy of each element of a repeated tensor.",
    dtypes: &[dtype::DType::F32, dtype::DType::F64],
    cases: || {
        let case = |dims: &[usize], repeated: &[usize]| {
            let gradient = Input::of(repeated, crate::entry::Values::Uniform(0.5, 2.0));
            Case::new(RepeatGradient { dims: dims.iter().copied().collect() }, vec![gradient])
        };
        vec![
            case(&[], &[]),
            case(&[], &[3, 4]),
            case(&[7], &[5, 7]),
            case(&[5, 1], &[5, 7]),
            case(&[2, 1, 4, 1], &[2, 3, 4, 5]),
            case(&[3, 2], &[2, 6, 10]),
            case(&[4, 3], &[4, 3]),
            case(&[1, 3], &[0, 3]),
        ]
    },
    tolerance: 32.0,
};
