//! What index tensors name in a tensor, for every operator that reads or writes by index on a GPU: the dimensions that are walked, and how far
//! each of them moves in the tensor, in the index tensors and in what is on the other side.

mod read;
mod write;

pub(super) use read::read;
pub(super) use write::{fill, put, takes};

use crate::error::Result;
use crate::layout::call;
use crate::queue::Queue;
use crate::tiles::within;
use crate::vendor::try_vendor;
use crate::view::View;
use crate::walk::{Dimension, Walk};
use openmps_runtime::vendor::VendorCall;
use openmps_tile::{Builder, Cast, Compare, DType, Scalar, Type, Value};

/// The elements that index tensors name.
pub(super) struct Named {
    /// The tensor's element that index zero everywhere means.
    pub address: usize,
    /// The result's dimensions: as many elements as indices select.
    pub dims: Vec<usize>,
    /// How far each of these dimensions moves in the tensor besides its indices: zero where index tensors extend.
    pub strides: Vec<isize>,
    /// One for each indexed axis.
    pub axes: Vec<Axis>,
}

/// An indexed axis and its indices.
pub(super) struct Axis {
    /// Its size, which bounds the indices.
    pub size: usize,
    /// Its stride in the tensor.
    pub stride: isize,
    /// The first index.
    pub address: usize,
    /// Whether indices have 64 bits rather than 32.
    pub wide: bool,
    /// How far each dimension of the selection moves in the indices.
    pub strides: Vec<isize>,
}

/// The tensor on the other side: how far each dimension of the selection moves in it.
pub(super) struct Other {
    pub address: usize,
    pub dtype: DType,
    pub strides: Vec<isize>,
}

impl Other {
    /// A tensor of the selection's shape.
    pub fn of(view: &View) -> Other {
        Other { address: view.address, dtype: view.dtype, strides: view.strides.to_vec() }
    }
}

impl Axis {
    fn new(x: &View, axis: usize, index: &View, strides: Vec<isize>) -> Axis {
        let (size, stride) = (x.shape[axis], x.strides[axis]);
        Axis { size, stride, address: index.address, wide: index.dtype == DType::I64, strides }
    }
}

impl Named {
    /// Slices along an axis: `x[.., index, ..]`.
    pub fn slices(x: &View, axis: usize, index: &View) -> Named {
        let none = |count: usize| vec![0_isize; count];
        let after = x.rank() - axis - 1;
        Named {
            address: x.address,
            dims: [&x.shape[..axis], &index.shape, &x.shape[axis + 1..]].concat(),
            strides: [&x.strides[..axis], &none(index.rank()), &x.strides[axis + 1..]].concat(),
            axes: vec![Axis::new(x, axis, index, [&none(axis), &index.strides[..], &none(after)].concat())],
        }
    }

    /// One element for each index along an axis.
    pub fn elements(x: &View, axis: usize, index: &View) -> Named {
        let mut strides = x.strides.to_vec();
        strides[axis] = 0;
        let axes = vec![Axis::new(x, axis, index, index.strides.to_vec())];
        Named { address: x.address, dims: index.shape.to_vec(), strides, axes }
    }

    /// Slices for tuples of indices along the last axis.
    pub fn tuples(x: &View, index: &View) -> Named {
        let leading = index.rank() - 1;
        let width = index.shape[leading];
        let axis = |d: usize| {
            let index = index.narrowed(leading, d, 1, 1);
            Axis::new(x, d, &index, [&index.strides[..leading], &vec![0; x.rank() - width]].concat())
        };
        Named {
            address: x.address,
            dims: [&index.shape[..leading], &x.shape[width..]].concat(),
            strides: [&vec![0; leading], &x.strides[width..]].concat(),
            axes: (0..width).map(axis).collect(),
        }
    }

    /// The dimensions with their strides in the tensor, in the indices, and in the tensor on the other side if there is one.
    fn dimensions(&self, other: Option<&[isize]>) -> impl Iterator<Item = Dimension> {
        (0..self.dims.len()).map(move |d| {
            let indices = self.axes.iter().map(|axis| axis.strides[d]);
            (self.dims[d], [self.strides[d]].into_iter().chain(indices).chain(other.map(|other| other[d])).collect())
        })
    }

    /// What the kernel of this selection depends on: the width of its indices.
    fn key(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| usize::from(axis.wide)).collect()
    }

    /// The tensor, then the first index, size and stride of each axis.
    fn arguments(&self) -> Vec<u64> {
        let axes = self.axes.iter().flat_map(|axis| [axis.address as u64, axis.size as u64, axis.stride as u64]);
        [self.address as u64].into_iter().chain(axes).collect()
    }
}

/// Checks indices as the host does, with its errors, where the CPU sees them; whether it does.
///
/// An index that does not fit is an error of this call, so the queue has to be finished first. The memory of an external GPU nobody reads: there
/// an index outside reads zeros and writes nothing.
pub(super) fn check(
    queue: &Queue,
    operator: &'static str,
    check: impl FnOnce() -> std::result::Result<(), openmps_host::Error>,
) -> Result<bool> {
    let visible = queue.device().properties().unified_memory;
    if visible {
        call(queue, operator, check)?;
    }
    Ok(visible)
}

/// Reads on a device other than the host, zeros where an index is `padding`: by the vendor's library where the CPU has seen that all indices fit, else by
/// a kernel.
pub(super) fn read_on_device(
    queue: &Queue,
    operator: &'static str,
    (named, padding): (impl FnOnce() -> Named, Option<i64>),
    check: impl FnOnce() -> std::result::Result<(), openmps_host::Error>,
    vendor: impl FnOnce() -> Option<VendorCall>,
    out: &View,
) -> Result<()> {
    if self::check(queue, operator, check)? && try_vendor(queue, operator, vendor)? {
        return Ok(());
    }
    read(queue, operator, &named(), padding, out)
}

/// The parameters of [`Named::arguments`].
struct Parameters {
    x: Value,
    /// First index, size and stride of each axis.
    axes: Vec<[Value; 3]>,
}

impl Parameters {
    fn new(b: &mut Builder, scalar: Scalar, key: &[usize]) -> Parameters {
        let x = b.parameter("x", Type::pointer(scalar));
        let axis = |(number, &wide): (usize, &usize)| {
            let index = Type::pointer(if wide == 1 { Scalar::I64 } else { Scalar::I32 });
            let first = b.parameter(format!("index{number}"), index);
            let [size, stride] =
                ["size", "stride"].map(|name| b.parameter(format!("{name}{number}"), Type::scalar(Scalar::I64)));
            [first, size, stride]
        };
        let axes = key.iter().enumerate().map(axis).collect();
        Parameters { x, axes }
    }

    /// The index of an axis at an offset as it stands there; 0 where `inside` is false.
    fn index(&self, b: &mut Builder, axis: usize, offset: Value, inside: Option<Value>) -> Value {
        let pointer = b.add_pointer(self.axes[axis][0], offset);
        let other = inside.map(|inside| {
            let ty = b.type_of(inside).with_scalar(b.scalar_of(pointer));
            b.constant(0.0, &ty)
        });
        let index = b.load(pointer, inside, other);
        b.cast(Cast::Signed, index, Scalar::I64)
    }

    /// How far an index moves in the tensor, counted from the end when it is negative, and whether it is one of the axis.
    fn step(&self, b: &mut Builder, axis: usize, index: Value) -> (Value, Value) {
        let [size, stride] = [1, 2].map(|part| b.splat_like(self.axes[axis][part], index));
        let zero = b.constant_like(0.0, index);
        let (negative, from_end) = (b.compare(Compare::Less, index, zero), b.add(index, size));
        let index = b.select(negative, from_end, index);
        (b.multiply(index, stride), within(b, index, size))
    }

    /// How far the element at these places of the selection lies from the tensor's first, and whether there is one: where all indices are
    /// of their axes and none is `padding`.
    fn element(
        &self,
        b: &mut Builder,
        walk: &Walk,
        places: &[Value],
        inside: Value,
        padding: Option<Value>,
    ) -> (Value, Value) {
        let (mut offset, mut mask) = (walk.offset(b, places, 0), inside);
        for axis in 0..self.axes.len() {
            let of_index = walk.offset(b, places, 1 + axis);
            let index = self.index(b, axis, of_index, Some(inside));
            let (step, fits) = self.step(b, axis, index);
            offset = b.add(offset, step);
            mask = b.and(mask, fits);
            if let Some(padding) = padding {
                let padding = b.splat_like(padding, index);
                let counts = b.compare(Compare::NotEqual, index, padding);
                mask = b.and(mask, counts);
            }
        }
        (offset, mask)
    }
}
