//! Kernels that move elements of every type: contiguous, strided_copy, assign.

use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::view::dense_strides;
use openmps_host::library::{copy as library, memory::Memory};

/// Adds this family.
pub fn register(table: &mut Table) {
    // Paddle calls these two with strided inputs in any case, and looks them up under the ordinary layout.
    table.add_every("contiguous", contiguous);
    table.add_every("strided_copy", strided_copy);
    table.add_every("assign", contiguous).strided();
    table.add_every("assign_raw", assign_raw).strided();
}

fn contiguous(context: &Context, x: Tensor, out: Output) -> Result<()> {
    let from = x.bytes_view()?;
    let to = context.allocate_bytes(&out, x.data_type())?;
    copy(context, "contiguous", &from, &to)
}

fn assign_raw(context: &Context, x: Option<Tensor>, out: Output) -> Result<()> {
    x.map_or(Ok(()), |x| contiguous(context, x, out))
}

/// Writes `x` into a view of `out`'s memory, which is there already: `y[1:3] = x`.
fn strided_copy(
    context: &Context,
    x: Tensor,
    dims: Vec<i64>,
    strides: Vec<i64>,
    offset: i64,
    out: Output,
) -> Result<()> {
    let dims: Vec<usize> = dims.iter().map(|&size| size.max(0) as usize).collect();
    let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
    out.set_view(&dims, &strides, offset);
    let (mut from, to) = (x.bytes_view()?, out.tensor().bytes_view()?);
    if from.shape != to.shape {
        if from.len() != 1 {
            return Err(Error::Graph(openmps_graph::Error::Shape {
                operator: "strided_copy",
                what: "input",
                got: x.shape(),
                expected: format!("{dims:?}"),
            }));
        }
        from.strides = to.shape.iter().map(|_| 0).collect();
    }
    copy(context, "strided_copy", &from, &to)
}

/// Copies between two views of one shape.
pub(super) fn copy(context: &Context, operation: &'static str, from: &View, to: &View) -> Result<()> {
    if from.address == to.address && from.strides == to.strides {
        return Ok(());
    }
    context.queue().library(operation, || {
        let (size, dims) = (to.dtype.size(), to.shape.as_slice());
        // SAFETY: both views are of tensors that live while the kernel runs, and their layouts are those that Paddle keeps for them.
        unsafe {
            library::copy(size, dims, Memory::new(to.address, &to.strides), Memory::new(from.address, &from.strides))
        };
        Ok(())
    })?;
    Ok(())
}

/// Fills a dense tensor with one element's bytes.
pub(super) fn fill(
    context: &Context,
    operation: &'static str,
    element: &[u8],
    address: usize,
    dims: &[usize],
) -> Result<()> {
    let strides = dense_strides(dims);
    context.queue().library(operation, || {
        // SAFETY: the tensor was allocated for this kernel with elements of this size.
        unsafe { library::fill(element.len(), dims, Memory::new(address, &strides), element.as_ptr() as usize) };
        Ok(())
    })?;
    Ok(())
}
