//! Operators whose result's size depends on the values: nonzero, masked_select and its gradient.
//!
//! The caller asks for the size first, makes the output, and runs the operator; their tests are here, not in the list.

use crate::error::{Error, Result};
use crate::layout::{Dense, call, expect_dense, expect_dtype, expect_shape};
use crate::queue::Queue;
use crate::view::View;
use openmps_host::by_type;
use openmps_host::native::nonzero as native;
use openmps_tile::DType;

/// How many elements of a tensor are not zero.
pub fn count_nonzero(queue: &Queue, x: &View) -> Result<usize> {
    let mut found = 0;
    call(queue, "nonzero", || {
        let dense = Dense::of(x);
        // SAFETY: a dense tensor of that many elements.
        found = by_type!(x.dtype, T => unsafe { native::count::<T>(dense.address, x.len()) });
        Ok(())
    })?;
    Ok(found)
}

/// Writes the coordinates of each element that is not zero; `out` is int64 of shape [found, rank].
pub fn nonzero(queue: &Queue, x: &View, out: &View) -> Result<()> {
    expect_dtype("nonzero", "output", out.dtype, &[DType::I64])?;
    expect_dense("nonzero", out)?;
    let found = count_nonzero(queue, x)?;
    expect_shape("nonzero", "output", &out.shape, &[found, x.rank()])?;
    call(queue, "nonzero", || {
        let dense = Dense::of(x);
        // SAFETY: a dense tensor of this shape, and a row of the output for each element found.
        by_type!(x.dtype, T => unsafe { native::coordinates::<T>(dense.address, &x.shape, out.address, found) });
        Ok(())
    })
}

/// Both inputs in one shape.
fn broadcast(x: &View, mask: &View) -> Result<(View, View)> {
    expect_dtype("masked_select", "mask", mask.dtype, &[DType::Bool, DType::U8])?;
    let rank = x.rank().max(mask.rank());
    let size = |view: &View, d: usize| (d + view.rank()).checked_sub(rank).map_or(1, |d| view.shape[d]);
    let dims: Vec<usize> = (0..rank).map(|d| if size(x, d) == 1 { size(mask, d) } else { size(x, d) }).collect();
    match (x.broadcast_to(&dims), mask.broadcast_to(&dims)) {
        (Some(x), Some(mask)) => Ok((x, mask)),
        _ => {
            let (left, right) = (x.shape.clone(), mask.shape.clone());
            Err(Error::Broadcast { operator: "masked_select", left, right })
        }
    }
}

/// How many elements a mask selects of a tensor, after both are broadcast to one shape.
pub fn count_masked(queue: &Queue, x: &View, mask: &View) -> Result<usize> {
    count_nonzero(queue, &broadcast(x, mask)?.1)
}

/// Writes the selected elements one after the other; `out` has one dimension of as many.
pub fn masked_select(queue: &Queue, x: &View, mask: &View, out: &View) -> Result<()> {
    let (x, mask) = broadcast(x, mask)?;
    expect_dense("masked_select", out)?;
    expect_dtype("masked_select", "output", out.dtype, &[x.dtype])?;
    let found = count_nonzero(queue, &mask)?;
    expect_shape("masked_select", "output", &out.shape, &[found])?;
    call(queue, "masked_select", || {
        let (dense, mask) = (Dense::of(&x), Dense::of(&mask));
        // SAFETY: dense tensors of one shape, and as many results as the mask selects.
        unsafe { native::masked_select(x.dtype.size(), dense.address, mask.address, x.len(), out.address) };
        Ok(())
    })
}

/// The reverse of [`masked_select`] for a mask of the output's shape: selected places take the next value, others zero.
pub fn masked_scatter(queue: &Queue, values: &View, mask: &View, out: &View) -> Result<()> {
    expect_dtype("masked_select", "mask", mask.dtype, &[DType::Bool, DType::U8])?;
    expect_shape("masked_select", "mask", &mask.shape, &out.shape)?;
    expect_dtype("masked_select", "gradient", values.dtype, &[out.dtype])?;
    expect_dense("masked_select", out)?;
    expect_shape("masked_select", "gradient", &values.shape, &[count_nonzero(queue, mask)?])?;
    call(queue, "masked_select", || {
        let (values, mask) = (Dense::of(values), Dense::of(mask));
        // SAFETY: a mask of the output's shape, and as many values as it selects.
        unsafe { native::masked_scatter(out.dtype.size(), values.address, mask.address, out.len(), out.address) };
        Ok(())
    })
}
