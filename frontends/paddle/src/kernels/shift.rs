//! Shifts of bits: arithmetic ones, which keep the sign, and logical ones, which do not know it.

use super::compose::Compose;
use super::elementwise::compute;
use crate::error::Result;
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::full::Full;
use openmps_graph::{DType, View};
use openmps_tile::Number;

const INTEGERS: &[DType] = &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("bitwise_left_shift", INTEGERS, left).strided();
    table.add("bitwise_right_shift", INTEGERS, right).strided();
}

/// To the left both are one.
fn left(context: &Context, x: Tensor, y: Tensor, _is_arithmetic: bool, out: Output) -> Result<()> {
    compute(context, Elementwise::Binary(Binary::LeftShift), &[&x.view()?, &y.view()?], &[], &out)
}

const RIGHT: Elementwise = Elementwise::Binary(Binary::RightShift);

fn right(context: &Context, x: Tensor, y: Tensor, is_arithmetic: bool, out: Output) -> Result<()> {
    let (x, y) = (x.view()?, y.view()?);
    // Two types are the operator's to refuse, under its own name.
    if is_arithmetic || x.dtype == DType::U8 || x.dtype != y.dtype {
        return compute(context, RIGHT, &[&x, &y], &[], &out);
    }
    // One place first, without the sign that came in, then the others.
    let c = Compose::new(context);
    let number = |value: i64| -> Result<View> {
        c.apply(&Full { dims: [1].into_iter().collect(), dtype: x.dtype, value: Number::Integer(value) }, &[])
    };
    let (zero, one) = (number(0)?, number(1)?);
    let positive = number(i64::MAX >> (64 - 8 * x.dtype.size()))?;
    let halved = c.map(Elementwise::Binary(Binary::BitwiseAnd), &[&c.map(RIGHT, &[&x, &one], &[])?, &positive], &[])?;
    let shifted = c.map(RIGHT, &[&halved, &c.subtract(&y, &one)?], &[])?;
    let stays = c.map(Elementwise::Binary(Binary::Equal), &[&y, &zero], &[])?;
    compute(context, Elementwise::Binary(Binary::Where), &[&stays, &x, &shifted], &[], &out)
}
