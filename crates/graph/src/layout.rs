//! What operators on layouts share: axes, views of views, dense copies of strided inputs, native kernels of the host.

use crate::error::{Error, Result};
use crate::operator::{Meta, Operator};
use crate::queue::Queue;
pub(crate) use crate::view::expect_dense;
use crate::view::{Shape, Strides, View, dense_strides};
use openmps_host::native::copy;
use openmps_host::native::lines::Lines;
use openmps_host::native::memory::Memory;
use openmps_runtime::Backend;
use openmps_tile::{DType, Number};

/// An axis counted from the end when it is negative, checked against the rank.
pub fn axis_of(operator: &'static str, axis: i64, rank: usize) -> Result<usize> {
    let bound = rank as i64;
    if (-bound..bound).contains(&axis) {
        return Ok(if axis < 0 { axis + bound } else { axis } as usize);
    }
    let expected = format!("-{rank} to {} for rank {rank}", bound - 1);
    Err(Error::Attribute { operator, attribute: "axis", got: axis.to_string(), expected })
}

/// Refuses a number of inputs that is not `expected`.
pub(crate) fn expect_inputs(operator: &'static str, inputs: &[Meta], expected: usize) -> Result<()> {
    if inputs.len() == expected {
        return Ok(());
    }
    let got = inputs.len().to_string();
    Err(Error::Attribute { operator, attribute: "number of inputs", got, expected: expected.to_string() })
}

/// Refuses a shape that is not `expected`.
pub(crate) fn expect_shape(
    operator: &'static str,
    what: &'static str,
    got: &[usize],
    expected: &[usize],
) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::Shape { operator, what, got: got.iter().copied().collect(), expected: format!("{expected:?}") })
}

/// Refuses an element type that is not `expected`.
pub(crate) fn expect_dtype(operator: &'static str, what: &'static str, got: DType, expected: &[DType]) -> Result<()> {
    if expected.contains(&got) {
        return Ok(());
    }
    let names: Vec<&str> = expected.iter().map(|dtype| dtype.name()).collect();
    Err(Error::DType { operator, what, got, expected: names.join(" or ") })
}

/// Refuses an element type without fractions.
pub(crate) fn expect_float(operator: &'static str, what: &'static str, got: DType) -> Result<()> {
    if got.is_float() {
        return Ok(());
    }
    Err(Error::DType { operator, what, got, expected: "a float type".into() })
}

/// Checks the views of a call against the operator's rule; outputs must be as inferred.
pub(crate) fn check(operator: &dyn Operator, inputs: &[View], outputs: &[View]) -> Result<()> {
    let metas = inputs.iter().map(|view| Meta { dtype: view.dtype, shape: view.shape.clone() });
    // Most operators have few inputs, and most calls of those are short: no memory is allocated for them.
    if inputs.len() <= 4 {
        check_metas(operator, &metas.collect::<arrayvec::ArrayVec<Meta, 4>>(), outputs)
    } else {
        check_metas(operator, &metas.collect::<Vec<Meta>>(), outputs)
    }
}

fn check_metas(operator: &dyn Operator, inputs: &[Meta], outputs: &[View]) -> Result<()> {
    expect_computed(operator, inputs)?;
    check_outputs(operator.name(), &operator.infer(inputs)?, outputs)
}

/// Refuses types that are only moved, of an operator that computes.
pub fn expect_computed(operator: &dyn Operator, inputs: &[Meta]) -> Result<()> {
    match inputs.iter().find(|input| input.dtype.is_only_moved()) {
        Some(input) if !operator.moves() => {
            let expected = "a type that operators compute in: convert it first".to_owned();
            Err(Error::DType { operator: operator.name(), what: "an input", got: input.dtype, expected })
        }
        _ => Ok(()),
    }
}

fn check_outputs(operator: &'static str, expected: &[Meta], outputs: &[View]) -> Result<()> {
    if expected.len() != outputs.len() {
        let (got, expected) = (outputs.len().to_string(), expected.len().to_string());
        return Err(Error::Attribute { operator, attribute: "number of outputs", got, expected });
    }
    for (meta, view) in expected.iter().zip(outputs) {
        expect_shape(operator, "output", &view.shape, &meta.shape)?;
        expect_dtype(operator, "output", view.dtype, &[meta.dtype])?;
    }
    Ok(())
}

/// As `check`; and the one output is dense.
pub(crate) fn check_dense(operator: &dyn Operator, inputs: &[View], outputs: &[View]) -> Result<()> {
    check(operator, inputs, outputs)?;
    expect_dense(operator.name(), &outputs[0])
}

/// Runs a native kernel of the host device.
pub(crate) fn call(
    queue: &Queue,
    operator: &'static str,
    work: impl FnOnce() -> std::result::Result<(), openmps_host::Error>,
) -> Result<()> {
    queue.run_native(operator, work).map_err(|source| Error::of_device(operator, source))
}

/// Whether native kernels of dense float32 take the call.
pub(crate) fn takes_singles(queue: &Queue, inputs: &[View], outputs: &[View]) -> bool {
    queue.is_host() && inputs.iter().chain(outputs).all(|view| view.dtype == DType::F32 && view.is_dense())
}

/// Whether a native kernel computes this: on the CPU always, on a GPU only what no kernel of tiles does, in memory that the CPU sees.
pub(crate) fn takes_native(queue: &Queue, tiles: bool) -> bool {
    queue.is_host() || !tiles && queue.device().properties().unified_memory
}

/// Whether the device's kernels compute with this float type: GPUs of Apple's have no float64.
pub(crate) fn computes(queue: &Queue, dtype: DType) -> bool {
    dtype.is_float() && (dtype != DType::F64 || queue.device().properties().backend != Backend::Metal)
}

/// Copies between two views of one shape and element size.
pub(crate) fn copy_view(from: &View, to: &View) {
    debug_assert_eq!(from.shape, to.shape);
    let (to, dims, size) = (Memory::new(to.address, &to.strides), &to.shape, to.dtype.size());
    // SAFETY: views name live memory of their shape and strides; `run`'s callers keep it so and pass distinct outputs.
    unsafe { copy::copy(size, dims, to, Memory::new(from.address, &from.strides)) }
}

/// Sets every element of a view.
pub(crate) fn fill_view(to: &View, value: Number) {
    let element = value.element(to.dtype);
    let memory = Memory::new(to.address, &to.strides);
    // SAFETY: a view names live memory; the element has at least the type's size.
    unsafe { copy::fill(to.dtype.size(), &to.shape, memory, element.as_ptr() as usize) }
}

/// A dense form of an input: the input itself, or a copy that lives as long as this.
pub(crate) struct Dense {
    /// Where the elements are.
    pub address: usize,
    _copy: Option<Vec<u64>>,
}

impl Dense {
    /// The input itself where it is dense.
    pub fn of(view: &View) -> Dense {
        if view.is_dense() || view.is_empty() {
            return Dense { address: view.address, _copy: None };
        }
        // In words, so that every element type is aligned.
        let mut copy = vec![0_u64; (view.len() * view.dtype.size()).div_ceil(8)];
        let address = copy.as_mut_ptr() as usize;
        let strides = dense_strides(&view.shape);
        copy_view(view, &View { address, dtype: view.dtype, shape: view.shape.clone(), strides });
        Dense { address, _copy: Some(copy) }
    }
}

/// A dense shape seen as lines along an axis.
pub(crate) fn lines(shape: &[usize], axis: usize) -> Lines {
    let product = |dims: &[usize]| dims.iter().product();
    Lines { outer: product(&shape[..axis]), size: shape[axis], inner: product(&shape[axis + 1..]) }
}

impl View {
    /// Every `step`-th element of one axis, `count` of them from `start` on.
    pub fn narrowed(&self, axis: usize, start: usize, step: isize, count: usize) -> View {
        let mut view = self.clone();
        let skip = (start as isize).wrapping_mul(self.strides[axis]).wrapping_mul(self.dtype.size() as isize);
        view.address = self.address.wrapping_add_signed(skip);
        view.shape[axis] = count;
        // With a single element the distance means nothing, and may be anything.
        view.strides[axis] = self.strides[axis].wrapping_mul(step);
        view
    }

    /// The dimensions in another order.
    pub fn permuted(&self, axes: &[usize]) -> View {
        let mut view = self.clone();
        view.shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        view.strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        view
    }

    /// Two dimensions in each other's place.
    pub fn swapped(&self, one: usize, other: usize) -> View {
        let mut view = self.clone();
        view.shape.swap(one, other);
        view.strides.swap(one, other);
        view
    }

    /// Without one axis of size 1.
    pub fn without_axis(&self, axis: usize) -> View {
        let mut view = self.clone();
        view.shape.remove(axis);
        view.strides.remove(axis);
        view
    }

    /// Repeated along missing dimensions and those of size 1; `None` where the shapes do not fit.
    pub fn broadcast_to(&self, dims: &[usize]) -> Option<View> {
        let missing = dims.len().checked_sub(self.rank())?;
        let mut strides = Strides::new();
        for (d, &size) in dims.iter().enumerate() {
            let own = d.checked_sub(missing).map_or(1, |d| self.shape[d]);
            match own {
                _ if own == size && d >= missing => strides.push(self.strides[d - missing]),
                1 => strides.push(0),
                _ => return None,
            }
        }
        let shape: Shape = dims.iter().copied().collect();
        Some(View { address: self.address, dtype: self.dtype, shape, strides })
    }
}
