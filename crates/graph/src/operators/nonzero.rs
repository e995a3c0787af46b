//! Operators whose result's size depends on the values: nonzero, masked_select and its gradient.
//!
//! Who has the tensors at hand asks for the size first, makes the output, and runs the function. A graph, whose shapes are known before
//! it runs, has [`Nonzero`], with room for every element and their number beside.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, call, check, expect_dense, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
use crate::reference::{Array, for_each_index};
use crate::view::{View, shape_of};
use openmps_host::by_type;
use openmps_host::native::memory::slice_mut;
use openmps_host::native::nonzero as native;
use openmps_tile::{DType, dtype};

/// The coordinates of each element that is not zero, in row-major order, as rows of an int64 [elements, rank], and how many there are.
/// The rows after these are zero.
#[derive(Clone, Copy, Debug)]
pub struct Nonzero;

impl Operator for Nonzero {
    fn name(&self) -> &'static str {
        "nonzero"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let shape = &inputs[0].shape;
        let meta = |dims: &[usize]| Ok(Meta { dtype: DType::I64, shape: shape_of(dims)? });
        Ok(vec![meta(&[shape.iter().product(), shape.len()])?, meta(&[1])?])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        outputs.iter().try_for_each(|output| expect_dense(self.name(), output))?;
        call(queue, self.name(), || {
            let (x, shape) = (Dense::of(&inputs[0]), &inputs[0].shape);
            // SAFETY: dense tensors of the checked shapes and types; the queue's owner vouches for them.
            unsafe {
                let found = by_type!(inputs[0].dtype, T => native::count::<T>(x.address, inputs[0].len()));
                slice_mut::<i64>(outputs[0].address, outputs[0].len())[found * shape.len()..].fill(0);
                slice_mut::<i64>(outputs[1].address, 1)[0] = found as i64;
                by_type!(inputs[0].dtype, T => native::coordinates::<T>(x.address, shape, outputs[0].address, found));
            }
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        Ok(b.nothing())
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let mut places = Vec::new();
        for_each_index(&x.shape, |index| {
            if x.at(index) != 0.0 {
                places.push(index.to_vec());
            }
        });
        let found = places.len() as f64;
        let mut rows: Vec<f64> = places.into_iter().flatten().map(|place| place as f64).collect();
        rows.resize(x.data.len() * x.shape.len(), 0.0);
        let rows = Array::new(&[x.data.len(), x.shape.len()], rows, DType::I64);
        vec![rows, Array::new(&[1], vec![found], DType::I64)]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "nonzero",
    summary: "The coordinates of each element that is not zero, and how many there are.",
    dtypes: dtype::ALL,
    cases: || {
        let case = |input| Case::new(Nonzero, vec![input]);
        vec![
            case(Input::of(&[3, 5, 2], Values::Given(vec![0.0, 1.0, 0.0, 0.0, 3.0]))),
            case(Input::of(&[40], Values::Special)),
            case(Input::of(&[4, 4], Values::Given(vec![0.0]))),
            case(Input::of(&[], Values::Given(vec![1.0]))),
            case(Input::new(&[2, 0])),
        ]
    },
    tolerance: 0.0,
};

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
