//! Statistics by order and by count: medians, histograms, counts.

use super::compose::Compose;
use super::movement::gave_memory_alone;
use super::reduction_gradient::axes;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, IntArray, Output, Scalar, Tensor};
use openmps_graph::View;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Gradient, Unary};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::{IndexAdd, PutAlongAxis, Reduce};
use openmps_graph::operators::sort::Sort;
use openmps_tile::{DType, Number};

const SINGLE: &[DType] = &[DType::F32, DType::F64];
const WIDE: &[DType] = &[DType::I32, DType::I64, DType::F32, DType::F64];
const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("median", WIDE, median).output_as_inferred(0).output(1, DType::I64);
    table.add("median_grad", SINGLE, median_grad);
    table.add("nanmedian", WIDE, median_of_numbers).output_as_inferred(0).output(1, DType::I64);
    table.add("nanmedian_grad", SINGLE, median_grad);
    table.add("histogram", WIDE, histogram).output_as_inferred(0);
    table.add("bincount", WIDE, bincount).output_as_inferred(0);
}

/// The axes that go, as one last axis behind the others.
struct Lines {
    /// All axes, those that go last.
    order: Vec<usize>,
    /// The dimensions of the others.
    leading: Vec<usize>,
    /// Elements of a line.
    size: usize,
}

impl Lines {
    fn of(x: &View, dims: &[i64]) -> Lines {
        let along = axes(x.rank(), dims, false);
        let others: Vec<usize> = (0..x.rank()).filter(|axis| !along.contains(axis)).collect();
        let leading = others.iter().map(|&axis| x.shape[axis]).collect();
        let size = along.iter().map(|&axis| x.shape[axis]).product();
        Lines { order: others.into_iter().chain(along).collect(), leading, size }
    }

    /// The tensor with these lines, in memory of its own where it has another order.
    fn cut(&self, c: &Compose, x: &View) -> Result<View> {
        self.with_last(c, &x.permuted(&self.order), self.size)
    }

    /// Elements of which each line has so many, one line after the other.
    fn with_last(&self, c: &Compose, x: &View, count: usize) -> Result<View> {
        c.shaped(x, &[&self.leading[..], &[count]].concat())
    }
}

/// How many elements of each line are NaN, and whether they count.
struct Missing<'c> {
    c: &'c Compose<'c>,
    counts: View,
    size: usize,
    skips_nan: bool,
}

impl<'c> Missing<'c> {
    fn of(c: &'c Compose<'c>, lines: &View, skips_nan: bool) -> Result<Missing<'c>> {
        let is_nan = c.cast(&c.map(Elementwise::Unary(Unary::IsNan), &[lines], &[])?, DType::I64)?;
        let size = lines.shape.last().copied().unwrap_or(1);
        Ok(Missing { c, counts: c.reduce(Reduction::Sum, &is_nan, &[-1])?, size, skips_nan })
    }

    /// What is left of so many elements in each line.
    fn left_of(&self, count: i64) -> Result<View> {
        let numbers = [Number::Integer(-1), Number::Integer(count)];
        self.c.map_numbers(Elementwise::Unary(Unary::Scale), &[&self.counts], &numbers)
    }

    /// The place of the lower element in the middle of each line in order (offset -1), or of the upper one (offset 0).
    fn middle(&self, offset: i64) -> Result<View> {
        let (c, size) = (self.c, self.size as i64);
        let counted = if self.skips_nan {
            self.left_of(size + offset)?
        } else {
            c.constant(DType::I64, &self.counts.shape, (size + offset) as f64)?
        };
        let half = within(c, &c.map(DIVIDE, &[&counted, &c.constant(DType::I64, &[1], 2.0)?], &[])?, self.size)?;
        if self.skips_nan {
            return Ok(half);
        }
        // The first NaN of a line comes first of those at the end of it: equal elements keep their order.
        let zero = c.constant(DType::I64, &[1], 0.0)?;
        let has_nan = c.map(Elementwise::Binary(Binary::GreaterThan), &[&self.counts, &zero], &[])?;
        c.map(Elementwise::Binary(Binary::Where), &[&has_nan, &self.left_of(size)?, &half], &[])
    }

    /// The places in their lines, which of lines of NaN alone is -1 where NaN is skipped. Where nothing at all is a
    /// number Paddle skips nothing.
    fn or_nowhere(&self, places: View) -> Result<View> {
        if !self.skips_nan {
            return Ok(places);
        }
        let (c, all) = (self.c, self.counts.len() * self.size);
        let is = |operator, x: &View, number: usize| {
            c.map(Elementwise::Binary(operator), &[x, &c.constant(DType::I64, &[1], number as f64)?], &[])
        };
        let of_all = c.reduce(Reduction::Sum, &self.counts, &[])?;
        let (has_none, others) =
            (is(Binary::Equal, &self.counts, self.size)?, is(Binary::NotEqual, &c.shaped(&of_all, &[1])?, all)?);
        let nowhere = c.map(Elementwise::Binary(Binary::LogicalAnd), &[&has_none, &others], &[])?;
        c.map(Elementwise::Binary(Binary::Where), &[&nowhere, &c.constant(DType::I64, &[1], -1.0)?, &places], &[])
    }
}

/// The nearest places of a line of so many elements.
fn within(c: &Compose, places: &View, size: usize) -> Result<View> {
    let limits = [Number::Integer(0), Number::Integer(size as i64 - 1)];
    c.map_numbers(Elementwise::Unary(Unary::Clip), &[places], &limits)
}

/// The elements in the middle of each line in order: one below and one above, or one that is both. NaN stands at the end; where the
/// whole line counts its first NaN is its middle.
fn middle(
    context: &Context,
    x: &Tensor,
    dims: &[i64],
    (mode, skips_nan): (&str, bool),
    [out, places]: [&Output; 2],
) -> Result<()> {
    let c = Compose::new(context);
    let x = x.view()?;
    let lines = Lines::of(&x, dims);
    let (line, size) = (lines.cut(&c, &x)?, lines.size);
    let result = if x.dtype.is_float() { x.dtype } else { out.dtype()? };
    if size == 0 {
        return nothing(&c, &lines.leading, result, mode, [out, places]);
    }
    let sorted = [c.temporary(x.dtype, &line.shape)?, c.temporary(DType::I64, &line.shape)?];
    c.launch(&Sort { axis: -1, descending: false }, std::slice::from_ref(&line), &sorted)?;
    let [values, order] = sorted;
    let missing = Missing::of(&c, &line, skips_nan)?;
    let take = TakeAlongAxis { axis: -1, negative: Negative::Refused };
    let of = |from: &View, at: &View| c.apply(&take, &[from.clone(), at.clone()]);
    let lower = missing.middle(-1)?;
    if mode == "min" {
        c.store_value(places, DType::I64, &missing.or_nowhere(of(&order, &lower)?)?)?;
        return c.store_value(out, result, &of(&values, &lower)?);
    }
    let upper = missing.middle(0)?;
    let both = openmps_graph::operators::concat::Concat { axis: -1 };
    c.store_value(places, DType::I64, &c.apply(&both, &[of(&order, &lower)?, of(&order, &upper)?])?)?;
    let [low, high] = [of(&values, &lower)?, of(&values, &upper)?].map(|value| c.cast(&value, result));
    let (low, high) = (low?, high?);
    // Integers are divided towards zero. One element that is both is itself, whatever its double is.
    let mean = c.map(DIVIDE, &[&c.add(&low, &high)?, &c.constant(result, &[1], 2.0)?], &[])?;
    let same = c.map(Elementwise::Binary(Binary::Equal), &[&lower, &upper], &[])?;
    c.store_value(out, result, &c.map(Elementwise::Binary(Binary::Where), &[&same, &low, &mean], &[])?)
}

/// Of lines without elements: NaN, in the first place.
fn nothing(c: &Compose, leading: &[usize], dtype: DType, mode: &str, [out, places]: [&Output; 2]) -> Result<()> {
    if !dtype.is_float() {
        return Err(refuse("x", "integers", "elements along the axes: nothing has no median that is an integer"));
    }
    let count = if mode == "min" { 1 } else { 2 };
    c.store_value(places, DType::I64, &c.constant(DType::I64, &[leading, &[count]].concat(), 0.0)?)?;
    c.store_value(out, dtype, &c.constant(dtype, leading, f64::NAN)?)
}

fn median(
    context: &Context,
    x: Tensor,
    dims: IntArray,
    _keep: bool,
    mode: String,
    out: Output,
    places: Output,
) -> Result<()> {
    middle(context, &x, &dims, (&mode, false), [&out, &places])
}

fn median_of_numbers(
    context: &Context,
    x: Tensor,
    dims: IntArray,
    _keep: bool,
    mode: String,
    out: Output,
    places: Output,
) -> Result<()> {
    middle(context, &x, &dims, (&mode, true), [&out, &places])
}

/// The gradient of the smaller median along one axis goes to its place, which Paddle gives with it, or nowhere where
/// that is -1. Any other goes to all that equal the median, in equal parts (of a NaN to every NaN); to the places of
/// the two whose mean it is, half to each, where none does.
fn median_grad(
    context: &Context,
    x: Tensor,
    median: Tensor,
    places: Tensor,
    upstream: Tensor,
    dims: IntArray,
    _keep: bool,
    mode: String,
    dx: Output,
) -> Result<()> {
    let (c, x) = (Compose::new(context), x.view()?);
    if gave_memory_alone(context, &dx, x.dtype)? {
        return Ok(());
    }
    let lines = Lines::of(&x, &dims);
    let count = if mode == "min" { 1 } else { 2 };
    let of_each = |tensor: Tensor, count| lines.with_last(&c, &tensor.view()?, count);
    let (median, upstream, places) = (of_each(median, 1)?, of_each(upstream, 1)?, of_each(places, count)?);
    let rows = lines.cut(&c, &x)?;
    let (to, share) = if mode == "min" && dims.len() == 1 {
        let zero = c.constant(DType::I64, &[1], 0.0)?;
        let somewhere = c.map(Elementwise::Binary(Binary::GreaterEqual), &[&places, &zero], &[])?;
        let share = c.map(Elementwise::Gradient(Gradient::Chosen), &[&somewhere, &upstream], &[])?;
        (c.constant(x.dtype, &rows.shape, 0.0)?, share)
    } else {
        let (same, equals) = equal_to(&c, &rows, &median)?;
        // Nothing is multiplied by zero, so that an infinite gradient stays where it belongs.
        let share = c.map(DIVIDE, &[&upstream, &equals], &[])?;
        let to = c.map(Elementwise::Gradient(Gradient::Chosen), &[&same, &share], &[])?;
        let share = c.map(Elementwise::Gradient(Gradient::NotChosen), &[&equals, &upstream], &[])?;
        (to, c.scale(&share, 1.0 / count as f64, 0.0)?)
    };
    let places = within(&c, &places, lines.size)?;
    for at in 0..count {
        let index = places.narrowed(lines.leading.len(), at, 1, 1);
        let put = PutAlongAxis { axis: -1, reduce: Reduce::Add, include_self: true };
        c.launch(&put, &[to.clone(), index, share.clone()], std::slice::from_ref(&to))?;
    }
    let permuted = x.permuted(&lines.order);
    c.store_as(&dx, x.dtype, &c.shaped(&to, &permuted.shape)?, |out| out.permuted(&lines.order))
}

/// Which elements of each row equal its number, or are NaN as it is; and how many.
fn equal_to(c: &Compose, rows: &View, numbers: &View) -> Result<(View, View)> {
    let nan = |x: &View| c.map(Elementwise::Unary(Unary::IsNan), &[x], &[]);
    let both = c.map(Elementwise::Binary(Binary::LogicalAnd), &[&nan(rows)?, &nan(numbers)?], &[])?;
    let equal = c.map(Elementwise::Binary(Binary::Equal), &[rows, numbers], &[])?;
    let same = c.map(Elementwise::Binary(Binary::LogicalOr), &[&equal, &both], &[])?;
    let count = c.summed_to(&c.cast(&same, rows.dtype)?, &numbers.shape)?;
    Ok((same, count))
}

/// Adds a weight, or one, to the element that each index names.
fn counted(c: &Compose, index: &View, weights: &View, size: usize) -> Result<View> {
    let sums = c.constant(weights.dtype, &[size], 0.0)?;
    let flat = |x: &View| c.shaped(x, &[x.len()]);
    let inputs = [sums.clone(), flat(index)?, flat(weights)?];
    c.launch(&IndexAdd { axis: 0 }, &inputs, std::slice::from_ref(&sums))?;
    Ok(sums)
}

/// The one number of a reduction, on the host.
fn number(context: &Context, c: &Compose, reduction: Reduction, x: &View) -> Result<f64> {
    Ok(context.elements(&c.reduce(reduction, x, &[])?)?[0].float)
}

/// How many elements lie in each of equal parts of a range, the last of which has both its ends; without a range it is that of the elements.
fn histogram(
    context: &Context,
    x: Tensor,
    weights: Option<Tensor>,
    bins: i64,
    low: f32,
    high: f32,
    is_density: bool,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let x = x.view()?;
    let (mut low, mut high, size) = (f64::from(low), f64::from(high), bins.max(0) as usize);
    if low == high && !x.is_empty() {
        low = number(context, &c, Reduction::Minimum, &x)?;
        high = number(context, &c, Reduction::Maximum, &x)?;
    }
    if low == high {
        (low, high) = (low - 1.0, high + 1.0);
    }
    let most = if x.dtype == DType::F32 { f32::MAX.into() } else { f64::MAX };
    if !(low.is_finite() && high.is_finite() && low < high && high - low < most) {
        let expected = format!("a range of finite numbers, max - min below {most:e}");
        return Err(refuse("min, max", (low, high), &expected));
    }
    let numbers = c.cast(&x, if x.dtype == DType::F64 || !x.dtype.is_float() { DType::F64 } else { x.dtype })?;
    let scaled = c.scale(&c.scale(&numbers, 1.0, -low)?, size as f64 / (high - low), 0.0)?;
    let index = c.map(Elementwise::Unary(Unary::Clip), &[&scaled], &[0.0, size as f64 - 1.0])?;
    let index = c.cast(&index, DType::I64)?;
    let inside = c.map(Elementwise::Unary(Unary::Clip), &[&numbers], &[low, high])?;
    let inside = c.map(Elementwise::Binary(Binary::Equal), &[&inside, &numbers], &[])?;
    let result = out.dtype()?;
    let counting = if weights.is_some() || is_density { DType::F64 } else { DType::I64 };
    let one = match &weights {
        Some(weights) => c.cast(&weights.view()?, counting)?,
        None => c.cast(&inside, counting)?,
    };
    let one = c.map(Elementwise::Gradient(Gradient::Chosen), &[&inside, &one], &[])?;
    // NaN has no place, and no weight.
    let index = c.map(Elementwise::Gradient(Gradient::Chosen), &[&inside, &index], &[])?;
    let mut counts = counted(&c, &index, &one, size)?;
    if is_density {
        let sum = c.reduce(Reduction::Sum, &counts, &[])?;
        counts = c.scale(&c.map(DIVIDE, &[&counts, &sum], &[])?, size as f64 / (high - low), 0.0)?;
    }
    c.store_value(&out, result, &counts)
}

fn bincount(context: &Context, x: Tensor, weights: Option<Tensor>, least: Scalar, out: Output) -> Result<()> {
    let c = Compose::new(context);
    let x = x.view()?;
    if least.i64() < 0 {
        return Err(refuse("minlength", least.i64(), "no negative number"));
    }
    let mut size = least.i64() as usize;
    if !x.is_empty() {
        let smallest = number(context, &c, Reduction::Minimum, &x)?;
        if smallest < 0.0 {
            return Err(refuse("x", smallest, "no negative numbers"));
        }
        size = size.max(number(context, &c, Reduction::Maximum, &x)? as usize + 1);
    }
    out.set_dims(&[size]);
    let dtype = match &weights {
        Some(weights) if weights.dtype()? == DType::F32 => DType::F32,
        Some(_) => DType::F64,
        None => out.dtype().unwrap_or(DType::I64),
    };
    let weights = match &weights {
        Some(weights) => c.cast(&weights.view()?, dtype)?,
        None => {
            let one = c.temporary(dtype, &x.shape)?;
            c.fill(&one, 1.0)?;
            one
        }
    };
    c.store_value(&out, dtype, &counted(&c, &x, &weights, size)?)
}
