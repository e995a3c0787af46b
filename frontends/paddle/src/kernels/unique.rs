//! What is there once: of numbers or of slices along an axis, in order, or where neighbours are equal.

use super::compose::Compose;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, DataType, Output, Tensor};
use openmps_graph::View;
use openmps_graph::layout::axis_of;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::nonzero::{count_nonzero, nonzero};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scan::{Kind, Scan};
use openmps_graph::operators::scatter::{IndexAdd, PutAlongAxis, Reduce};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::operators::sort::Sort;
use openmps_tile::{DType, Number};

const WIDE: &[DType] = &[DType::I32, DType::I64, DType::F32, DType::F64];

/// Adds this family.
pub fn register(table: &mut Table) {
    let row = table.add("unique", WIDE, unique);
    row.output_as_inferred(1).output_as_inferred(2).output_as_inferred(3);
    let row = table.add("unique_raw", WIDE, unique_raw);
    row.output_as_inferred(1).output_as_inferred(2).output_as_inferred(3);
    table.add("unique_consecutive", WIDE, unique_consecutive).output_as_inferred(1).output_as_inferred(2);
}

/// The slices along an axis as rows of a matrix, and the dimensions of a slice with its own at `axis`.
struct Slices<'c> {
    context: &'c Context,
    c: Compose<'c>,
    rows: View,
    dims: Vec<usize>,
    axis: Option<usize>,
}

impl<'c> Slices<'c> {
    /// Without an axis the elements are the slices.
    fn new(context: &'c Context, x: &Tensor, axis: &[i32]) -> Result<Slices<'c>> {
        let (c, x) = (Compose::new(context), x.view()?);
        let Some(&axis) = axis.first() else {
            let (count, dims) = (x.len(), vec![x.len()]);
            return Ok(Slices { context, rows: c.shaped(&x, &[count, 1])?, c, dims, axis: None });
        };
        let axis = axis_of("unique", axis.into(), x.rank())?;
        // In this order Paddle compares the elements of slices.
        let moved = x.swapped(0, axis);
        let rows = c.temporary(x.dtype, &moved.shape)?;
        c.launch(&Copy, std::slice::from_ref(&moved), std::slice::from_ref(&rows))?;
        let width = moved.shape[1..].iter().product();
        Ok(Slices {
            context,
            rows: c.shaped(&rows, &[moved.shape[0], width])?,
            c,
            dims: x.shape.to_vec(),
            axis: Some(axis),
        })
    }

    fn count(&self) -> usize {
        self.rows.shape[0]
    }

    fn gathered(&self, x: &View, index: &View) -> Result<View> {
        self.c.apply(&Gather { axis: 0 }, &[x.clone(), index.clone()])
    }

    /// 0, 1, 2, ...
    fn numbers(&self) -> Result<View> {
        let (start, step) = (Number::Integer(0), Number::Integer(1));
        self.c.apply(&Arange { start, step, len: self.count(), dtype: DType::I64 }, &[])
    }

    /// The rows in order, of equals the earlier one first: sorted by each column, the last one first, where equals keep their order.
    fn sorted(&self) -> Result<View> {
        let mut order = self.numbers()?;
        for column in (0..self.rows.shape[1]).rev() {
            let own = self.c.temporary(self.rows.dtype, &[self.count()])?;
            let column = self.rows.narrowed(1, column, 1, 1).without_axis(1);
            self.c.launch(&Copy, &[column], std::slice::from_ref(&own))?;
            let places = [self.c.temporary(own.dtype, &own.shape)?, self.c.temporary(DType::I64, &own.shape)?];
            let column = self.gathered(&own, &order)?;
            self.c.launch(&Sort { axis: 0, descending: false }, &[column], &places)?;
            order = self.gathered(&order, &places[1])?;
        }
        Ok(order)
    }

    /// Writes what is there once in this order of rows: the slices, where each comes first, which one each row is, how many of each.
    fn store(&self, order: &View, outputs: Outputs, data_type: DataType) -> Result<()> {
        let (c, count) = (&self.c, self.count());
        let dtype = data_type.or(DType::I64)?;
        let rows = self.gathered(&self.rows, order)?;
        let begins = c.constant(DType::I64, &[count], 1.0)?;
        if count > 1 {
            let part = |from: usize| rows.narrowed(0, from, 1, count - 1);
            let differs = c.map(Elementwise::Binary(Binary::NotEqual), &[&part(1), &part(0)], &[])?;
            let differs = c.reduce(Reduction::Any, &differs, &[1])?.without_axis(1);
            c.launch(&Copy, &[c.cast(&differs, DType::I64)?], &[begins.narrowed(0, 1, 1, count - 1)])?;
        }
        let found = count_nonzero(self.context.queue(), &begins)?;
        let places = c.temporary(DType::I64, &[found, 1])?;
        nonzero(self.context.queue(), &begins, &places)?;
        let places = c.shaped(&places, &[found])?;
        let scan = Scan { kind: Kind::Sum, axis: Some(0), exclusive: false, reverse: false };
        let number = c.constant(DType::I64, &[1], 1.0)?;
        let number = c.subtract(&c.apply(&scan, &[begins])?, &number)?;
        if let Some(first) = outputs.first {
            first.set_dims(&[found]);
            c.store_value(&first, dtype, &self.gathered(order, &places)?)?;
        }
        if let Some(inverse) = outputs.inverse {
            let own = c.temporary(DType::I64, &[count])?;
            c.fill(&own, 0.0)?;
            let put = PutAlongAxis { axis: 0, reduce: Reduce::Assign, include_self: true };
            c.launch(&put, &[own.clone(), order.clone(), number.clone()], std::slice::from_ref(&own))?;
            inverse.set_dims(&[count]);
            c.store_value(&inverse, dtype, &own)?;
        }
        if let Some(counts) = outputs.counts {
            let sums = c.constant(DType::I64, &[found], 0.0)?;
            let ones = c.constant(DType::I64, &[count], 1.0)?;
            c.launch(&IndexAdd { axis: 0 }, &[sums.clone(), number, ones], std::slice::from_ref(&sums))?;
            counts.set_dims(&[found]);
            c.store_value(&counts, dtype, &sums)?;
        }
        self.store_slices(&self.gathered(&rows, &places)?, found, &outputs.out)
    }

    fn store_slices(&self, rows: &View, found: usize, out: &Output) -> Result<()> {
        let axis = self.axis.unwrap_or(0);
        let mut dims = self.dims.clone();
        dims[axis] = found;
        out.set_dims(&dims);
        dims.swap(0, axis);
        self.c.store_as(out, rows.dtype, &self.c.shaped(rows, &dims)?, |to| to.swapped(0, axis))
    }
}

/// The results, of which only those that are asked for are made.
struct Outputs {
    out: Output,
    first: Option<Output>,
    inverse: Option<Output>,
    counts: Option<Output>,
}

fn unique(
    context: &Context,
    x: Tensor,
    with_first: bool,
    with_inverse: bool,
    with_counts: bool,
    axis: Vec<i32>,
    data_type: DataType,
    out: Output,
    first: Option<Output>,
    inverse: Option<Output>,
    counts: Option<Output>,
) -> Result<()> {
    let slices = Slices::new(context, &x, &axis)?;
    let order = slices.sorted()?;
    let outputs = Outputs {
        out,
        first: first.filter(|_| with_first),
        inverse: inverse.filter(|_| with_inverse),
        counts: counts.filter(|_| with_counts),
    };
    slices.store(&order, outputs, data_type)
}

/// The form of legacy programs; what is not sorted there is sorted here.
fn unique_raw(
    context: &Context,
    x: Tensor,
    with_first: bool,
    with_inverse: bool,
    with_counts: bool,
    axis: Vec<i32>,
    data_type: DataType,
    _is_sorted: bool,
    out: Output,
    first: Option<Output>,
    inverse: Option<Output>,
    counts: Option<Output>,
) -> Result<()> {
    unique(context, x, with_first, with_inverse, with_counts, axis, data_type, out, first, inverse, counts)
}

fn unique_consecutive(
    context: &Context,
    x: Tensor,
    with_inverse: bool,
    with_counts: bool,
    axis: Vec<i32>,
    data_type: DataType,
    out: Output,
    inverse: Option<Output>,
    counts: Option<Output>,
) -> Result<()> {
    let slices = Slices::new(context, &x, &axis)?;
    let order = slices.numbers()?;
    let (inverse, counts) = (inverse.filter(|_| with_inverse), counts.filter(|_| with_counts));
    slices.store(&order, Outputs { out, first: None, inverse, counts }, data_type)
}
