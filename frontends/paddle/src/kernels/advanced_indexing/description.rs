//! An indexing as Paddle describes it, in the strides of the tensor that is read or written.

use crate::context::Temporary;
use crate::error::{Error, Result};
use crate::{Context, Tensor};
use openmps_graph::operators::advanced_index::{Axis, Selection, broadcast_shape};
use openmps_graph::operators::nonzero::{count_nonzero, nonzero};
use openmps_graph::view::{dense_strides, shape_of};
use openmps_graph::{DType, Shape, Strides, View};

/// An indexing as Paddle describes it: the selection's shape and strides in elements; the sizes of the indexed axes, of which the
/// list goes on after -1 with the shape of the indices; the strides of the indexed axes and the start in bytes.
pub(super) struct Described {
    pub selection: Selection,
    pub indices: Vec<View>,
    /// Holds indices that a mask was turned into, and copies.
    pub memory: Vec<Temporary>,
}

/// Strides of the tensor that was indexed as those of a tensor of another layout: a gradient is not laid out as its tensor.
struct Layouts {
    indexed: Strides,
    to: Strides,
    sizes: Shape,
    unused: Vec<usize>,
}

impl Layouts {
    fn new(x: &Tensor, to: &[isize]) -> Layouts {
        let (sizes, unused) = (x.shape(), (0..to.len()).collect());
        // Without elements strides say nothing.
        let indexed = if sizes.contains(&0) { dense_strides(&sizes) } else { x.strides() };
        Layouts { indexed, to: to.iter().copied().collect(), sizes, unused }
    }

    /// The same axis' stride, or that of the same steps along it. An axis is known by its stride, of which one that is sliced has a multiple;
    /// index tensors extend along axes of stride zero.
    fn stride(&mut self, size: usize, stride: isize) -> Result<isize> {
        if self.indexed == self.to || stride == 0 && !self.repeats() {
            return Ok(stride);
        }
        if self.repeats() {
            return Err(self.refuse());
        }
        if size <= 1 {
            return Ok(0);
        }
        let steps = |axis: usize| match self.indexed[axis] {
            own if own != 0 && stride % own == 0 => Some(stride / own),
            _ => None,
        };
        let fits = |axis| steps(axis).is_some_and(|steps| steps.unsigned_abs() * (size - 1) < self.sizes[axis]);
        let candidates = (0..self.unused.len()).filter(|&at| fits(self.unused[at]));
        let found = candidates.max_by_key(|&at| self.indexed[self.unused[at]].abs()).ok_or_else(|| self.refuse())?;
        let axis = self.unused.remove(found);
        Ok(stride / self.indexed[axis] * self.to[axis])
    }

    /// The same element's offset: what it is made of by the strides, largest first, each times an index within its axis.
    fn start(&self, start: isize) -> Result<isize> {
        if self.indexed == self.to || start == 0 {
            return Ok(start);
        }
        let mut axes: Vec<usize> = (0..self.sizes.len()).filter(|&axis| self.sizes[axis] > 1).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(self.indexed[axis].abs()));
        let last = |axis: usize| self.sizes[axis] as isize - 1;
        // Along an axis that runs backwards indices are counted from its end.
        let backwards = |axis: &&usize| self.indexed[**axis] < 0;
        let mut rest =
            start - axes.iter().filter(backwards).map(|&axis| last(axis) * self.indexed[axis]).sum::<isize>();
        let mut found = 0;
        for &axis in &axes {
            let stride = self.indexed[axis];
            let steps = if stride == 0 { 0 } else { (rest / stride.abs()).clamp(0, last(axis)) };
            rest -= steps * stride.abs();
            found += self.to[axis] * if stride < 0 { last(axis) - steps } else { steps };
        }
        if rest == 0 { Ok(found) } else { Err(self.refuse()) }
    }

    fn refuse(&self) -> Error {
        let expected = "a view that repeats no element and whose selection Paddle describes in its own strides; of other views select in \
                        a contiguous copy";
        let (got, expected) = (format!("{:?}", self.indexed), expected.to_owned());
        Error::Attribute { attribute: "strides", got, expected }
    }

    fn repeats(&self) -> bool {
        self.indexed.iter().zip(&self.sizes).any(|(&stride, &size)| stride == 0 && size > 1)
    }
}

/// The indexing of a tensor with the strides `to`, which need not be those of the tensor that was indexed.
pub(super) fn described(
    context: &Context,
    x: &Tensor,
    to: &[isize],
    indices: &[Tensor],
    (dims, strides): (&[i64], &[i64]),
    (sizes, axis_strides): (&[i64], &[i64]),
    start: i64,
) -> Result<Described> {
    let element = x.dtype()?.size() as isize;
    let shape = shape_of(&dims.iter().map(|&size| size.max(0) as usize).collect::<Vec<_>>())?;
    let mut layouts = Layouts::new(x, to);
    let axis = |(&size, &stride): (&i64, &i64)| -> Result<Axis> {
        let size = size.max(0) as usize;
        Ok(Axis { size, stride: layouts.stride(size, stride as isize / element)? })
    };
    let start = Layouts::new(x, to).start(start as isize / element)?;
    let axes = sizes.iter().take_while(|&&size| size != -1).zip(axis_strides).map(axis).collect::<Result<_>>()?;
    let mut views = indices.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    if let [mask] = &views[..]
        && mask.dtype == DType::Bool
    {
        let mut layouts = Layouts::new(x, to);
        let own = shape.iter().zip(strides).map(|(&size, &stride)| layouts.stride(size, stride as isize));
        return masked(context, &mask.clone(), shape.clone(), &own.collect::<Result<Strides>>()?, start);
    }
    let own = shape.iter().zip(strides).map(|(&size, &stride)| layouts.stride(size, stride as isize));
    let strides = own.collect::<Result<Strides>>()?;
    // The indices come in their own shape; the selection's axes that they extend along are told after -1.
    let extended: Vec<usize> =
        sizes.split(|&size| size == -1).nth(1).unwrap_or(&[]).iter().map(|&size| size.max(0) as usize).collect();
    let mut memory = Vec::new();
    for view in &mut views {
        if extended.is_empty() || view.len() != extended.iter().product() {
            continue;
        }
        if !view.is_dense() {
            let copy = context.copy(view)?;
            *view = copy.view.clone();
            memory.push(copy);
        }
        *view = View::dense(view.address, view.dtype, &extended)?;
    }
    let selection = Selection { shape, strides, start, axes };
    Ok(Described { selection, indices: views, memory })
}

/// A selection by a mask: the elements where it is true, one after the other.
fn masked(context: &Context, mask: &View, shape: Shape, strides: &[isize], start: isize) -> Result<Described> {
    let rank = mask.rank().min(strides.len());
    let found = count_nonzero(context.queue(), mask)?;
    let memory = context.temporary(DType::I64, &[found, mask.rank()])?;
    let rows = &memory.view;
    nonzero(context.queue(), mask, rows)?;
    let axes = (0..rank).map(|d| Axis { size: shape[d], stride: strides[d] }).collect();
    let rest = shape.len() - rank;
    let indices = (0..rank).map(|d| column(rows, d, rest)).collect::<Result<Vec<View>>>()?;
    let dims = [&[found], &shape[rank..]].concat();
    let strides = std::iter::once(0).chain(strides[rank..].iter().copied()).collect();
    Ok(Described {
        selection: Selection { shape: shape_of(&dims)?, strides, start, axes },
        indices,
        memory: vec![memory],
    })
}

/// One coordinate of rows of coordinates, with axes of size 1 for those that are not indexed.
fn column(rows: &View, d: usize, rest: usize) -> Result<View> {
    let mut column = rows.narrowed(1, d, 1, 1).without_axis(1);
    column.shape.extend(std::iter::repeat_n(1, rest));
    column.strides.extend(std::iter::repeat_n(0, rest));
    Ok(column)
}

/// index_put's indexing: the first axes are indexed, one by each tensor; a mask indexes as many axes as it has.
pub(super) fn leading(context: &Context, x: &Tensor, indices: &[Tensor]) -> Result<Described> {
    let shape = x.shape();
    let strides = dense_strides(&shape);
    let (mut views, mut memory) = (Vec::new(), Vec::new());
    for index in indices {
        let view = index.view()?;
        if view.dtype != DType::Bool {
            views.push(view);
            continue;
        }
        let found = count_nonzero(context.queue(), &view)?;
        let rows = context.temporary(DType::I64, &[found, view.rank()])?;
        nonzero(context.queue(), &view, &rows.view)?;
        for d in 0..view.rank() {
            views.push(column(&rows.view, d, 0)?);
        }
        memory.push(rows);
    }
    if views.len() > shape.len() {
        let (got, expected) = (format!("{} indexed axes", views.len()), format!("at most {}", shape.len()));
        return Err(Error::Attribute { attribute: "indices", got, expected });
    }
    let extended = broadcast_shape(&views, openmps_graph::view::MAX_RANK)?;
    let rest = views.len();
    let axes = (0..rest).map(|d| Axis { size: shape[d], stride: strides[d] }).collect();
    let dims = [&extended[..], &shape[rest..]].concat();
    let own = std::iter::repeat_n(0, extended.len()).chain(strides[rest..].iter().copied()).collect();
    for view in &mut views {
        let ones = shape.len() - rest;
        view.shape.extend(std::iter::repeat_n(1, ones));
        view.strides.extend(std::iter::repeat_n(0, ones));
    }
    let selection = Selection { shape: shape_of(&dims)?, strides: own, start: 0, axes };
    Ok(Described { selection, indices: views, memory })
}
