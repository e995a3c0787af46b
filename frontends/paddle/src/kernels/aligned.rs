//! Formulas of two operands of which the second one is aligned by an axis: what legacy programs ask for by names of their own.

use super::elementwise::{compute, insert, refuse_zero};
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, ElementwiseType, Visitor};
use openmps_graph::{Shape, View};
use openmps_tile::dtype::NUMBERS;

/// Formulas that have such a form, and its name.
const NAMES: &[(&str, &str)] = &[
    ("add", "add_raw"),
    ("subtract", "subtract_raw"),
    ("multiply", "multiply_raw"),
    ("divide", "divide_raw"),
    ("floor_divide", "floor_divide_raw"),
    ("remainder", "remainder_raw"),
    ("elementwise_pow", "elementwise_pow_raw"),
    ("maximum", "maximum_raw"),
    ("minimum", "minimum_raw"),
    ("equal", "equal_raw"),
    ("not_equal", "not_equal_raw"),
    ("less_than", "less_than_raw"),
    ("less_equal", "less_equal_raw"),
    ("greater_than", "greater_than_raw"),
    ("greater_equal", "greater_equal_raw"),
];

/// Adds this family.
pub fn register(table: &mut Table) {
    Binary::each(&mut Formulas { table });
    table.add("fused_elementwise_add", NUMBERS, fused_add).strided();
    table.add("fused_elementwise_sub", NUMBERS, fused_subtract).strided();
    table.add("fused_elementwise_mul", NUMBERS, fused_multiply).strided();
    table.add("fused_elementwise_div", NUMBERS, fused_divide).strided();
}

struct Formulas<'t> {
    table: &'t mut Table,
}

impl Visitor for Formulas<'_> {
    fn visit<T: ElementwiseType>(&mut self) {
        let name = T::OPERATOR.row().name;
        if let Some((_, with_axis)) = NAMES.iter().find(|(plain, _)| *plain == name) {
            insert(self.table, with_axis, T::OPERATOR, two::<T>);
        }
    }
}

fn two<T: ElementwiseType>(context: &Context, x: Tensor, y: Tensor, axis: i32, out: Output) -> Result<()> {
    run(context, T::OPERATOR, [x, y], axis, &out)
}

fn run(context: &Context, operator: Elementwise, [x, y]: [Tensor; 2], axis: i32, out: &Output) -> Result<()> {
    let x = x.view()?;
    let y = aligned(y.view()?, x.rank(), axis)?;
    if let Elementwise::Binary(Binary::Divide | Binary::FloorDivide | Binary::Remainder) = operator {
        refuse_zero(context, &x, &y)?;
    }
    compute(context, operator, &[&x, &y], &[], out)
}

/// The dimensions of a second operand whose first one is at `axis` of `rank` dimensions: dimensions of size 1 follow its own.
pub(super) fn aligned_shape(y: &Shape, rank: usize, axis: i32) -> Shape {
    let after = usize::try_from(axis).ok().and_then(|axis| rank.checked_sub(axis + y.len())).unwrap_or(0);
    y.iter().copied().chain(std::iter::repeat_n(1, after)).collect()
}

/// The second operand in its [`aligned_shape`].
pub(super) fn aligned(y: View, rank: usize, axis: i32) -> Result<View> {
    let shape = aligned_shape(&y.shape, rank, axis);
    let strides: Vec<isize> = y.strides.iter().copied().chain(shape[y.rank()..].iter().map(|_| 1)).collect();
    Ok(View::strided(y.address, y.dtype, &shape, &strides)?)
}

macro_rules! fused {
    ($($function:ident $member:ident)+) => { $(
        /// Of Paddle's attributes its own CPU reads the axis only: the others are oneDNN's.
        fn $function(
            context: &Context,
            x: Tensor,
            y: Tensor,
            axis: i32,
            _activation: String,
            _alpha: f32,
            _beta: f32,
            _output_scale: f32,
            _axes: Vec<i32>,
            _scale_x: f32,
            _scale_y: f32,
            _scale_out: f32,
            out: Output,
        ) -> Result<()> {
            run(context, Elementwise::Binary(Binary::$member), [x, y], axis, &out)
        }
    )+ };
}
fused! {
    fused_add Add
    fused_subtract Subtract
    fused_multiply Multiply
    fused_divide Divide
}
