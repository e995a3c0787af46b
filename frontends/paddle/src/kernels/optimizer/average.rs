//! Running sums of a parameter over its last steps, from which `ModelAverage` takes means.

use crate::error::{Error, Result};
use crate::kernels::compose::Compose;
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::full::Full;
use openmps_graph::{Operator, View};
use openmps_tile::Number;
use openmps_tile::dtype::FLOATS;

/// Adds the kernel.
pub fn register(table: &mut Table) {
    let row = table.add("average_accumulates", FLOATS, average_accumulates);
    for counter in 3..6 {
        row.output(counter, openmps_tile::DType::I64);
    }
}

/// So many steps go into one sum before it is added to the next: float32 loses what is much smaller than the sum.
const STEPS_PER_SUM: i64 = 16384;

fn average_accumulates(
    context: &Context,
    parameter: Tensor,
    sum1: Tensor,
    sum2: Tensor,
    sum3: Tensor,
    accumulates: Tensor,
    old_accumulates: Tensor,
    updates: Tensor,
    window: f32,
    largest_window: i64,
    smallest_window: i64,
    sum1_out: Output,
    sum2_out: Output,
    sum3_out: Output,
    accumulates_out: Output,
    old_accumulates_out: Output,
    updates_out: Output,
) -> Result<()> {
    if smallest_window > largest_window {
        return Err(Error::Attribute {
            attribute: "min_average_window",
            got: smallest_window.to_string(),
            expected: format!("at most max_average_window, {largest_window}"),
        });
    }
    let counter = |tensor: &Tensor| Scalar::of_tensor(context, tensor).map(|number| number.i64());
    let (updates, accumulates) = (counter(&updates)? + 1, counter(&accumulates)? + 1);
    let old = counter(&old_accumulates)?;
    let (c, dtype) = (Compose::new(context), sum1.dtype()?);
    let before = [&sum1, &sum2, &sum3].map(Tensor::view);
    let [first, second, third] = before;
    let (first, second, third) = (first?, second?, third?);
    let more = c.add(&first, &c.cast(&parameter.view()?, dtype)?)?;
    let total = c.add(&more, &second)?;
    let carried = updates % STEPS_PER_SUM == 0;
    let full = accumulates >= smallest_window && accumulates >= largest_window.min((updates as f32 * window) as i64);
    let store = |out: &Output, value: Option<&View>| match value {
        Some(value) => c.store_value(out, dtype, value),
        None => Ok(c.fill(&context.allocate(out, dtype)?, 0.0)?),
    };
    store(&sum3_out, Some(if full { &total } else { &third }))?;
    store(
        &sum2_out,
        if full {
            None
        } else if carried {
            Some(&total)
        } else {
            Some(&second)
        },
    )?;
    store(&sum1_out, if full || carried { None } else { Some(&more) })?;
    let (accumulates, old) = if full { (0, accumulates) } else { (accumulates, old) };
    for (out, value) in [(accumulates_out, accumulates), (old_accumulates_out, old), (updates_out, updates)] {
        set(context, &out, value)?;
    }
    Ok(())
}

/// Gives a counter its value.
fn set(context: &Context, out: &Output, value: i64) -> Result<()> {
    let to = context.allocate(out, openmps_tile::DType::I64)?;
    let operator = Full { dims: to.shape.clone(), dtype: to.dtype, value: Number::Integer(value) };
    Ok(operator.run(context.queue(), &[], std::slice::from_ref(&to))?)
}
