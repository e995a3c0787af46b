//! Along an axis: running extrema with their places, running logarithms of summed powers, and places in sorted lines.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Node};
use crate::layout::{Dense, axis_of, call, check, check_dense, expect_dense, expect_dtype, expect_inputs, lines};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{Binary, Unary};
use crate::operators::scatter::PutAlongAxis;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_host::by_type;
use openmps_host::native::lines::Lines;
use openmps_host::native::running;
use openmps_tile::{DType, dtype};

/// The largest or smallest of the elements up to each element, and where it stood as int64: the last one of equals. A NaN stays.
#[derive(Clone, Copy, Debug)]
pub struct RunningExtreme {
    /// The largest.
    pub largest: bool,
    /// The axis along which.
    pub axis: i64,
}

/// `log(sum(e^x))` of the elements up to each element.
#[derive(Clone, Copy, Debug)]
pub struct RunningLogSum {
    /// The axis along which; `None` flattens the tensor first.
    pub axis: Option<i64>,
    /// Leaves the element itself out.
    pub exclusive: bool,
    /// From the end to the start.
    pub reverse: bool,
}

/// Where each value of the second input would be put into the sorted last axis of the first, which has the same dimensions before that
/// axis, or is a single line. NaN is above every number.
#[derive(Clone, Copy, Debug)]
pub struct SearchSorted {
    /// Behind equal elements rather than before them.
    pub right: bool,
}

/// A number alone is a line of one.
fn lines_of(operator: &'static str, shape: &[usize], axis: Option<i64>) -> Result<Lines> {
    match axis {
        Some(axis) if !shape.is_empty() => Ok(lines(shape, axis_of(operator, axis, shape.len())?)),
        Some(axis) => axis_of(operator, axis, 1).map(|_| Lines { outer: 1, size: 1, inner: 1 }),
        None => Ok(Lines { outer: 1, size: shape.iter().product(), inner: 1 }),
    }
}

/// Calls `each` with the places of every line's elements.
fn for_each_line(Lines { outer, size, inner }: Lines, mut each: impl FnMut(&[usize])) {
    for line in 0..outer * inner {
        let at = |i: usize| (line / inner * size + i) * inner + line % inner;
        each(&(0..size).map(at).collect::<Vec<_>>());
    }
}

impl Operator for RunningExtreme {
    fn name(&self) -> &'static str {
        if self.largest { "running_maximum" } else { "running_minimum" }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        expect_dtype(self.name(), "input", inputs[0].dtype, dtype::NUMBERS)?;
        lines_of(self.name(), &inputs[0].shape, Some(self.axis))?;
        Ok(vec![inputs[0].clone(), Meta { dtype: DType::I64, shape: inputs[0].shape.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        let lines = lines_of(self.name(), &inputs[0].shape, Some(self.axis))?;
        call(queue, self.name(), || {
            let x = Dense::of(&inputs[0]);
            // SAFETY: dense tensors of the checked shapes and types.
            by_type!(inputs[0].dtype, T => unsafe {
                running::extreme::<T>(self.largest, x.address, outputs[0].address, outputs[1].address, lines)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, places, dy) = (b.inputs[0], b.outputs[1], b.of_output(0)?);
        let dims = b.shape(x);
        // A number alone is a line of one.
        let lines = if dims.is_empty() { [1].into_iter().collect() } else { dims.clone() };
        let (places, dy, zeros) = (b.reshape(places, &lines)?, b.reshape(dy, &lines)?, b.zeros_like(x)?);
        let zeros = b.reshape(zeros, &lines)?;
        let sum = b.one(PutAlongAxis::sum(self.axis), &[zeros, places, dy])?;
        Ok(vec![Some(b.reshape(sum, &dims)?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let (mut values, mut places) = (x.data.clone(), x.data.clone());
        let lines = lines_of(self.name(), &x.shape, Some(self.axis)).expect("checked by infer");
        for_each_line(lines, |line| {
            for (i, &to) in line.iter().enumerate() {
                let before = || (0..=i).map(|place| (place, x.data[line[place]]));
                let is_better = |a: f64, b: f64| if self.largest { a >= b } else { a <= b };
                let found = before().rfind(|(_, value)| value.is_nan());
                let found =
                    found.or_else(|| before().reduce(|best, next| if is_better(next.1, best.1) { next } else { best }));
                (places[to], values[to]) = found.map(|(place, value)| (place as f64, value)).expect("i is one");
            }
        });
        vec![Array::new(&x.shape, values, x.dtype), Array::new(&x.shape, places, DType::I64)]
    }
}

impl RunningLogSum {
    /// What the positive parts of a gradient give: `e^x sum(dy e^-y)` over the results behind, in logarithms, which do not overflow.
    fn share_of(&self, b: &mut Backward<'_>, x: Node, y: Node, dy: Node) -> Result<Node> {
        let zeros = b.zeros_like(dy)?;
        let positive = b.binary(Binary::Maximum, dy, zeros)?;
        let logarithm = b.unary(Unary::Log, positive)?;
        let shifted = b.subtract(logarithm, y)?;
        let behind = b.one(RunningLogSum { reverse: !self.reverse, ..*self }, &[shifted])?;
        let sum = b.add(behind, x)?;
        b.unary(Unary::Exp, sum)
    }
}

impl Operator for RunningLogSum {
    fn name(&self) -> &'static str {
        "running_log_sum"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        expect_dtype(self.name(), "input", inputs[0].dtype, dtype::FLOATS)?;
        let lines = lines_of(self.name(), &inputs[0].shape, self.axis)?;
        let shape = if self.axis.is_none() { [lines.size].into_iter().collect() } else { inputs[0].shape.clone() };
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let lines = lines_of(self.name(), &inputs[0].shape, self.axis)?;
        call(queue, self.name(), || {
            let x = Dense::of(&inputs[0]);
            // SAFETY: dense tensors of the checked shapes and types.
            by_type!(inputs[0].dtype, T => unsafe {
                running::log_sum::<T>(x.address, outputs[0].address, lines, self.exclusive, self.reverse)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, y, dy) = (b.inputs[0], b.outputs[0], b.dy()?);
        let (dims, lines) = (b.shape(x), b.shape(y));
        let x = b.reshape(x, &lines)?;
        let negative = b.unary(Unary::Negate, dy)?;
        let (added, taken) = (self.share_of(b, x, y, dy)?, self.share_of(b, x, y, negative)?);
        let sum = b.subtract(added, taken)?;
        Ok(vec![Some(b.reshape(sum, &dims)?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let mut sums = x.data.clone();
        let lines = lines_of(self.name(), &x.shape, self.axis).expect("checked by infer");
        for_each_line(lines, |line| {
            for (i, &to) in line.iter().enumerate() {
                let counted = (0..line.len()).filter(|&j| if self.reverse { j >= i } else { j <= i });
                let powers = counted.filter(|&j| !(self.exclusive && j == i)).map(|j| x.data[line[j]].exp());
                sums[to] = powers.sum::<f64>().ln();
            }
        });
        let flat = [sums.len()];
        vec![Array::new(if self.axis.is_none() { &flat } else { &x.shape }, sums, x.dtype)]
    }
}

impl Operator for SearchSorted {
    fn name(&self) -> &'static str {
        "search_sorted"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 2)?;
        expect_dtype(self.name(), "values", inputs[1].dtype, &[inputs[0].dtype])?;
        let (sorted, values) = (&inputs[0].shape, &inputs[1].shape);
        let fits = match &sorted[..] {
            [_] => true,
            [leading @ .., _] => values.len() == sorted.len() && values[..leading.len()] == *leading,
            [] => false,
        };
        if !fits {
            let expected = format!("one line, or {values:?} but for the last axis");
            return Err(Error::Shape { operator: self.name(), what: "sorted lines", got: sorted.clone(), expected });
        }
        Ok(vec![Meta { dtype: DType::I64, shape: values.clone() }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (is_shared, size) = (inputs[0].rank() == 1, inputs[0].shape[inputs[0].rank() - 1]);
        let count = if is_shared { inputs[1].len() } else { inputs[1].shape[inputs[1].rank() - 1] };
        let rows = if is_shared { 1 } else { inputs[1].len() / count.max(1) };
        call(queue, self.name(), || {
            let (sorted, values) = (Dense::of(&inputs[0]), Dense::of(&inputs[1]));
            // SAFETY: dense tensors of the checked shapes and types.
            by_type!(inputs[0].dtype, T => unsafe {
                let lines = (sorted.address, size, is_shared);
                running::search::<T>(lines, values.address, outputs[0].address, (rows, count), self.right)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (sorted, values) = (&inputs[0], &inputs[1]);
        let size = sorted.shape[sorted.shape.len() - 1];
        let count = values.shape.last().copied().unwrap_or(1);
        let place = |i: usize| {
            let line = if sorted.shape.len() == 1 { &sorted.data } else { &sorted.data[i / count * size..][..size] };
            let value = values.data[i];
            line.iter().filter(|&&element| element < value || self.right && element == value).count() as f64
        };
        vec![Array::new(&values.shape, (0..values.data.len()).map(place).collect(), DType::I64)]
    }
}

const SHAPES: [(i64, &[usize]); 5] = [(0, &[]), (0, &[9]), (-1, &[3, 40]), (1, &[2, 5, 3]), (1, &[2, 0, 3])];

fn extremes(largest: bool) -> Vec<Case> {
    let values = [Values::Uniform(-3.0, 3.0), Values::Special];
    let case = |(axis, dims): (i64, &[usize]), values: &Values| {
        Case::new(RunningExtreme { largest, axis }, vec![Input::of(dims, values.clone())])
    };
    SHAPES.into_iter().flat_map(|shape| values.iter().map(move |values| case(shape, values))).collect()
}

fn log_sums() -> Vec<Case> {
    let ways = [(false, false), (true, false), (false, true), (true, true)];
    let of = |axis, dims: &[usize], (exclusive, reverse)| {
        Case::new(RunningLogSum { axis, exclusive, reverse }, vec![Input::of(dims, Values::Uniform(0.5, 3.0))])
    };
    let along = SHAPES.into_iter().flat_map(|(axis, dims)| ways.map(|way| of(Some(axis), dims, way)));
    along.chain([of(None, &[3, 4], ways[0])]).collect()
}

fn searches() -> Vec<Case> {
    let case = |sorted: &[usize], values: &[usize], right| {
        let inputs = vec![Input::of(sorted, Values::Counting), Input::of(values, Values::Uniform(0.0, 20.0))];
        Case::new(SearchSorted { right }, inputs)
    };
    vec![
        case(&[12], &[3, 7], false),
        case(&[12], &[], true),
        case(&[2, 3, 6], &[2, 3, 5], true),
        case(&[2, 3, 6], &[2, 3, 5], false),
        case(&[4], &[0], false),
    ]
}

/// For the list of operators.
pub static MAXIMUM: Entry = Entry {
    name: "running_maximum",
    summary: "The largest element up to each along an axis, with its index.",
    dtypes: dtype::NUMBERS,
    cases: || extremes(true),
    tolerance: 0.0,
};

/// For the list of operators.
pub static MINIMUM: Entry = Entry {
    name: "running_minimum",
    summary: "The smallest element up to each along an axis, with its index.",
    dtypes: dtype::NUMBERS,
    cases: || extremes(false),
    tolerance: 0.0,
};

/// For the list of operators.
pub static LOG_SUM: Entry = Entry {
    name: "running_log_sum",
    summary: "The logarithm of the sum of powers up to each element along an axis.",
    dtypes: dtype::FLOATS,
    cases: log_sums,
    tolerance: 4.0,
};

/// For the list of operators.
pub static SEARCH: Entry = Entry {
    name: "search_sorted",
    summary: "Where values would be put into sorted lines.",
    dtypes: dtype::NUMBERS,
    cases: searches,
    tolerance: 0.0,
};
