//! Python's indexing by several index tensors at once, reading, writing and adding: `x[:, i, j]`.
//!
//! The caller describes which elements are meant; tests are in `tests/movement.rs`.

use super::indexed::{self, Named, Other};
use crate::error::{Error, Result};
use crate::layout::{Dense, call, expect_dtype, expect_shape};
use crate::queue::Queue;
use crate::view::{Shape, Strides, View};
use openmps_host::by_type;
use openmps_host::native::copy;
use openmps_host::native::memory::{Memory, Truth};
use openmps_host::native::scatter::{self, Reduce};
use openmps_tile::DType;

/// One indexed axis of the tensor.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its size, which bounds its indices.
    pub size: usize,
    /// Its stride in elements.
    pub stride: isize,
}

/// Which elements of a tensor an indexing means.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The shape of what is selected.
    pub shape: Shape,
    /// How far each axis of the selection moves in the tensor besides its indices: zero where index tensors extend.
    pub strides: Strides,
    /// The tensor's element that index zero everywhere means, counted from its first.
    pub start: isize,
    /// The indexed axes, one for each index tensor.
    pub axes: Vec<Axis>,
}

/// A selection with its indices looked up: blocks of the selection that move alike.
struct Blocks {
    /// Offset in the tensor and offset in the dense selection of each block, in elements.
    offsets: Vec<(isize, isize)>,
    /// Dimensions of a block, with strides in the tensor and in the dense selection.
    dims: Vec<usize>,
    strides: Vec<isize>,
    dense: Vec<isize>,
}

const NAME: &str = "index";

impl Selection {
    /// `out = x[selection]`, dense.
    pub fn get(&self, queue: &Queue, x: &View, indices: &[View], out: &View) -> Result<()> {
        expect_shape(NAME, "output", &out.shape, &self.shape)?;
        expect_dtype(NAME, "output", out.dtype, &[x.dtype])?;
        crate::layout::expect_dense(NAME, out)?;
        if let Some(named) = self.on_device(queue, x, indices)? {
            return indexed::read(queue, NAME, &named, None, out);
        }
        let blocks = self.looked_up(queue, indices, &out.strides)?;
        let size = x.dtype.size();
        call(queue, NAME, || {
            for &(from, to) in &blocks.offsets {
                let (from, to) = (at(x.address, from, size), at(out.address, to, size));
                let (from, to) = (Memory::new(from, &blocks.strides), Memory::new(to, &blocks.dense));
                // SAFETY: indices were checked against the axes' sizes; the caller describes its own tensor.
                unsafe { copy::copy(size, &blocks.dims, to, from) }
            }
            Ok(())
        })
    }

    /// `x[selection] = value`, where the value is broadcast; of duplicates the last stays.
    pub fn put(&self, queue: &Queue, x: &View, indices: &[View], value: &View) -> Result<()> {
        let value = self.broadcast(value, x.dtype)?;
        if let Some(named) = self.on_device(queue, x, indices)?
            && indexed::takes(queue, &named, x.dtype, Reduce::Assign)
        {
            return indexed::put(queue, NAME, &named, Reduce::Assign, &Other::of(&value));
        }
        let blocks = self.looked_up(queue, indices, &value.strides)?;
        let size = x.dtype.size();
        call(queue, NAME, || {
            for &(to, from) in &blocks.offsets {
                let (from, to) = (at(value.address, from, size), at(x.address, to, size));
                let (from, to) = (Memory::new(from, &blocks.dense), Memory::new(to, &blocks.strides));
                // SAFETY: as in `get`.
                unsafe { copy::copy(size, &blocks.dims, to, from) }
            }
            Ok(())
        })
    }

    /// `x[selection] += value`, where the value is broadcast; duplicates add up in order, and a sum of booleans says whether one is true.
    pub fn add(&self, queue: &Queue, x: &View, indices: &[View], value: &View) -> Result<()> {
        let value = self.broadcast(value, x.dtype)?;
        if let Some(named) = self.on_device(queue, x, indices)?
            && indexed::takes(queue, &named, x.dtype, Reduce::Add)
        {
            return indexed::put(queue, NAME, &named, Reduce::Add, &Other::of(&value));
        }
        let blocks = self.looked_up(queue, indices, &value.strides)?;
        call(queue, NAME, || {
            let (offsets, dims) = (&blocks.offsets[..], &blocks.dims[..]);
            let blocks = scatter::Blocks { offsets, dims, strides: &blocks.strides, values: &blocks.dense };
            // SAFETY: as in `get`; the caller's tensor has no element twice.
            unsafe {
                match x.dtype {
                    DType::Bool => scatter::add_blocks::<Truth>(blocks, x.address, value.address),
                    dtype => by_type!(dtype, T => scatter::add_blocks::<T>(blocks, x.address, value.address)),
                }
            }
            Ok(())
        })
    }

    /// What is selected, for kernels; the indices are checked as the host does. None on the host.
    fn on_device(&self, queue: &Queue, x: &View, indices: &[View]) -> Result<Option<Named>> {
        if queue.is_host() {
            return Ok(None);
        }
        let together = broadcast_shape(indices, self.shape.len())?;
        let axis = |(axis, index): (&Axis, &View)| {
            expect_dtype(NAME, "index", index.dtype, &[DType::I32, DType::I64])?;
            let wrong = || Error::Broadcast { operator: NAME, left: self.shape.clone(), right: index.shape.clone() };
            let strides = index.broadcast_to(&self.shape).ok_or_else(wrong)?.strides.to_vec();
            let (address, wide) = (index.address, index.dtype == DType::I64);
            let extended = index.broadcast_to(&together).ok_or_else(wrong)?;
            indexed::check(queue, NAME, || check_axis(&extended, axis.size))?;
            Ok(indexed::Axis { size: axis.size, stride: axis.stride, address, wide, strides })
        };
        let axes = self.axes.iter().zip(indices).map(axis).collect::<Result<_>>()?;
        let address = at(x.address, self.start, x.dtype.size());
        Ok(Some(Named { address, dims: self.shape.to_vec(), strides: self.strides.to_vec(), axes }))
    }

    fn broadcast(&self, value: &View, dtype: DType) -> Result<View> {
        expect_dtype(NAME, "value", value.dtype, &[dtype])?;
        let mismatch = || Error::Broadcast { operator: NAME, left: self.shape.clone(), right: value.shape.clone() };
        value.broadcast_to(&self.shape).ok_or_else(mismatch)
    }

    /// The blocks, looked up by the CPU when what writes the indices is done, or refused where it does not see the memory.
    fn looked_up(&self, queue: &Queue, indices: &[View], other: &[isize]) -> Result<Blocks> {
        let mut blocks = None;
        call(queue, NAME, || {
            blocks = Some(self.blocks(indices, other));
            Ok(())
        })?;
        blocks.expect("the native kernel has called the function")
    }

    /// Looks the indices up. `other` are the strides of the tensor on the other side.
    fn blocks(&self, indices: &[View], other: &[isize]) -> Result<Blocks> {
        let shape = broadcast_shape(indices, self.shape.len())?;
        // An axis of the selection belongs to the blocks unless index tensors extend along it.
        let varies = |d: usize| (d + shape.len()).checked_sub(self.shape.len()).is_some_and(|own| shape[own] != 1);
        let (mut dims, mut strides, mut dense) = (Vec::new(), Vec::new(), Vec::new());
        let (mut looped, mut own, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (d, &stride) in other.iter().enumerate() {
            let (a, b, c) =
                if varies(d) { (&mut looped, &mut own, &mut others) } else { (&mut dims, &mut strides, &mut dense) };
            a.push(self.shape[d]);
            b.push(self.strides[d]);
            c.push(stride);
        }
        let mut offsets = vec![(self.start, 0); looped.iter().product()];
        add_multiples(&mut offsets, &looped, &own, &others);
        for (axis, index) in self.axes.iter().zip(indices) {
            self.add_indices(&mut offsets, *axis, index, &looped, &varies)?;
        }
        Ok(Blocks { offsets, dims, strides, dense })
    }

    /// Adds one index tensor's share to the offset of every block.
    fn add_indices(
        &self,
        offsets: &mut [(isize, isize)],
        axis: Axis,
        index: &View,
        looped: &[usize],
        varies: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        expect_dtype(NAME, "index", index.dtype, &[DType::I32, DType::I64])?;
        let mut extended = index.clone();
        // Drops the axes that are of size 1 for all index tensors.
        let missing = self.shape.len().saturating_sub(index.rank());
        for own in (0..index.rank()).rev().filter(|own| !varies(missing + own)) {
            extended = extended.without_axis(own);
        }
        let wrong = || Error::Broadcast { operator: NAME, left: self.shape.clone(), right: index.shape.clone() };
        let dense = Dense::of(&extended.broadcast_to(looped).ok_or_else(wrong)?);
        // SAFETY: a dense index tensor of that many elements.
        let list = unsafe {
            openmps_host::native::gather::Indices::at(dense.address, offsets.len(), index.dtype == DType::I64)
        };
        for (position, (offset, _)) in offsets.iter_mut().enumerate() {
            let value = list.get(position);
            if !(-(axis.size as i64)..axis.size as i64).contains(&value) {
                let lowest = -(axis.size as i64);
                return Err(Error::Index { operator: NAME, index: value, position, lowest, size: axis.size });
            }
            *offset += list.wrapped(position, axis.size) as isize * axis.stride;
        }
        Ok(())
    }
}

/// Refuses the first index outside of an axis.
fn check_axis(index: &View, size: usize) -> std::result::Result<(), openmps_host::Error> {
    super::gather::indices(&Dense::of(index), index).check(size)
}

/// The address of an element.
fn at(address: usize, element: isize, size: usize) -> usize {
    address.wrapping_add_signed(element * size as isize)
}

/// Adds each index times its strides, in row-major order.
fn add_multiples(offsets: &mut [(isize, isize)], dims: &[usize], first: &[isize], second: &[isize]) {
    let mut all = offsets.iter_mut();
    crate::reference::for_each_index(dims, |index| {
        let along = |strides: &[isize]| -> isize { index.iter().zip(strides).map(|(&i, s)| i as isize * s).sum() };
        if let Some(offset) = all.next() {
            offset.0 += along(first);
            offset.1 += along(second);
        }
    });
}

/// The shape that index tensors extend to together, of a selection of this rank.
pub fn broadcast_shape(indices: &[View], rank: usize) -> Result<Shape> {
    let longest = indices.iter().map(View::rank).max().unwrap_or(0);
    if longest > rank {
        let (got, expected) = (longest.to_string(), format!("at most {rank}"));
        return Err(Error::Attribute { operator: NAME, attribute: "rank of the indices", got, expected });
    }
    let mut shape: Shape = std::iter::repeat_n(1, longest).collect();
    for index in indices {
        let missing = longest - index.rank();
        for (d, &size) in index.shape.iter().enumerate() {
            let known = &mut shape[missing + d];
            if *known == 1 {
                *known = size;
            } else if size != 1 && size != *known {
                return Err(Error::Broadcast { operator: NAME, left: shape, right: index.shape.clone() });
            }
        }
    }
    Ok(shape)
}
