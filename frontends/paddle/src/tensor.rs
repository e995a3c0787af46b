//! Paddle's tensors as kernels see them: inputs, and outputs that a kernel shapes and allocates.
//!
//! These are borrowed from Paddle for the duration of one kernel: a kernel must not keep them.

use crate::abi::symbols::symbols;
use crate::abi::tensor_layout::{self, RANK_OFFSET};
use crate::abi::types::{PdDeviceContext, PdTensor};
use crate::dtype::DataType;
use crate::error::{Error, Result};
use openmps_graph::view::{MAX_RANK, dense_strides, elements};
use openmps_graph::{DType, Shape, Strides, View};
use std::ptr::NonNull;

/// An input.
#[derive(Clone, Copy)]
pub struct Tensor(NonNull<PdTensor>);

/// A result: allocate it with [`crate::Context::allocate`] before writing to it.
#[derive(Clone, Copy)]
pub struct Output(Tensor);

impl Tensor {
    /// # Safety
    /// `raw` is null or a tensor that lives while the kernel runs.
    #[inline]
    pub(crate) unsafe fn new(raw: *const PdTensor) -> Option<Tensor> {
        NonNull::new(raw.cast_mut()).map(Tensor)
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut PdTensor {
        self.0.as_ptr()
    }

    /// The type of its elements, as Paddle numbers it.
    #[inline]
    pub fn data_type(&self) -> DataType {
        match tensor_layout::layout() {
            // SAFETY: the layout was probed on a tensor of this library, and the tensor is alive.
            Some(layout) => DataType(unsafe { self.field::<i32>(layout.dtype).read() }),
            // SAFETY: the tensor is alive.
            None => DataType::from_c(unsafe { (symbols().tensor_get_data_type)(self.raw(), &mut 0) }),
        }
    }

    /// The type of its elements, or an error where device mps does not compute in it.
    #[inline]
    pub fn dtype(&self) -> Result<DType> {
        self.data_type().dtype()
    }

    /// Its dimensions.
    #[inline(always)]
    pub fn shape(&self) -> Shape {
        let mut shape = Shape::new();
        match tensor_layout::layout() {
            // SAFETY: as in `data_type`.
            Some(layout) => shape.extend(unsafe { self.numbers(layout.dims) }.iter().map(|&size| size.max(0) as usize)),
            None => {
                // SAFETY: the tensor is alive, and the dimensions asked for are those that it says it has.
                let get = |index| unsafe { (symbols().tensor_get_dim)(self.raw(), index, &mut 0) };
                // SAFETY: as above.
                let rank = unsafe { (symbols().tensor_get_num_dims)(self.raw(), &mut 0) };
                shape.extend((0..rank.clamp(0, MAX_RANK as i64) as usize).map(|index| get(index).max(0) as usize));
            }
        }
        shape
    }

    /// Its strides, in elements.
    #[inline(always)]
    pub fn strides(&self) -> Strides {
        let mut strides = Strides::new();
        match tensor_layout::layout() {
            Some(layout) => {
                // SAFETY: as in `data_type`.
                let numbers = unsafe { self.numbers(layout.strides) };
                strides.extend(numbers.iter().map(|&stride| stride as isize));
            }
            None => {
                // SAFETY: the tensor is alive, and the strides asked for are those that it says it has.
                let get = |index| unsafe { (symbols().tensor_get_stride)(self.raw(), index, &mut 0) };
                // SAFETY: as above.
                let rank = unsafe { (symbols().tensor_get_num_strides)(self.raw(), &mut 0) };
                strides.extend((0..rank.clamp(0, MAX_RANK as i64) as usize).map(|index| get(index) as isize));
            }
        }
        strides
    }

    /// Whether it has these strides. A new output has none yet, which is not the same as the none of a tensor without dimensions.
    #[inline(always)]
    fn has_strides(&self, wanted: &[isize]) -> bool {
        let rank = match tensor_layout::layout() {
            // SAFETY: as in `data_type`.
            Some(layout) => i64::from(unsafe { self.field::<i32>(layout.strides + RANK_OFFSET).read() }),
            // SAFETY: the tensor is alive.
            None => unsafe { (symbols().tensor_get_num_strides)(self.raw(), &mut 0) },
        };
        rank == wanted.len() as i64 && self.strides().as_slice() == wanted
    }

    /// Address, type, shape and strides: what operators take.
    #[inline(always)]
    pub fn view(&self) -> Result<View> {
        self.view_of(self.dtype()?)
    }

    /// The same as integers of the same width, for kernels that only move bytes: serves every type. Numbers of 16 bytes get a last
    /// dimension of two numbers of 8 bytes.
    pub fn bytes_view(&self) -> Result<View> {
        let (dtype, twice) = integer_of(self.data_type())?;
        let mut view = self.view_of(dtype)?;
        if twice {
            double(&mut view)?;
        }
        Ok(view)
    }

    /// Its dimensions, or an error where one is negative (what Paddle calls unknown, or computed wrongly) or they name more elements than there may be.
    #[inline(always)]
    fn checked_shape(&self) -> Result<Shape> {
        let shape = self.shape();
        // The product of the sizes is a number that every later product fits in.
        elements(&shape)?;
        // A negative size was read as zero, so that only empty shapes need a second look.
        if shape.contains(&0) { self.refuse_negative(shape) } else { Ok(shape) }
    }

    #[cold]
    fn refuse_negative(&self, shape: Shape) -> Result<Shape> {
        // SAFETY: the tensor is alive, and the dimensions asked for are those that it has.
        let sizes: Vec<i64> =
            (0..shape.len()).map(|index| unsafe { (symbols().tensor_get_dim)(self.raw(), index, &mut 0) }).collect();
        if sizes.iter().all(|&size| size >= 0) {
            return Ok(shape);
        }
        Err(Error::NegativeSize(sizes))
    }

    #[inline(always)]
    fn view_of(&self, dtype: DType) -> Result<View> {
        let shape = self.checked_shape()?;
        if shape.contains(&0) {
            // Without elements there may be no memory, and the strides say nothing.
            let strides = dense_strides(&shape);
            return Ok(View { address: 0, dtype, shape, strides });
        }
        let mut strides = self.strides();
        if strides.len() != shape.len() {
            strides = dense_strides(&shape);
        }
        // SAFETY: the tensor is alive. Where it has no memory Paddle throws its own exception, which passes through the kernel.
        let address = unsafe { (symbols().tensor_get_data_pointer)(self.raw(), &mut 0) as usize };
        Ok(View { address, dtype, shape, strides })
    }

    #[inline(always)]
    fn field<T>(&self, offset: usize) -> *const T {
        // SAFETY: offsets come from the probed layout and lie within a tensor.
        unsafe { self.raw().cast::<u8>().add(offset).cast() }
    }

    /// The numbers of the `DDim` at `offset`.
    ///
    /// # Safety
    /// `offset` is one of the probed layout.
    #[inline(always)]
    unsafe fn numbers(&self, offset: usize) -> &[i64] {
        // SAFETY: the caller's promise: nine numbers and a rank, which is -1 while nothing is set.
        unsafe {
            let rank = self.field::<i32>(offset + RANK_OFFSET).read();
            std::slice::from_raw_parts(self.field(offset), rank.clamp(0, tensor_layout::MAX_RANK as i32) as usize)
        }
    }
}

impl Tensor {
    /// Writes the `DDim` at `offset`: numbers and rank.
    ///
    /// # Safety
    /// `offset` is one of the probed layout, there are at most nine numbers, and nobody else uses the tensor now.
    #[inline]
    unsafe fn write_numbers(&self, offset: usize, numbers: impl ExactSizeIterator<Item = i64>) {
        let rank = numbers.len();
        // SAFETY: the caller's promise.
        unsafe {
            let place = self.field::<i64>(offset).cast_mut();
            for (index, number) in numbers.enumerate() {
                place.add(index).write(number);
            }
            self.field::<i32>(offset + RANK_OFFSET).cast_mut().write(rank as i32);
        }
    }
}

impl Output {
    /// # Safety
    /// As for [`Tensor::new`].
    #[inline]
    pub(crate) unsafe fn new(raw: *mut PdTensor) -> Option<Output> {
        // SAFETY: the caller's promise.
        unsafe { Tensor::new(raw) }.map(Output)
    }

    /// The tensor, to read its shape and type as Paddle's rules have set them.
    #[inline]
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }

    /// Its dimensions, as set by Paddle's rules or by [`Output::set_dims`].
    #[inline]
    pub fn shape(&self) -> Shape {
        self.0.shape()
    }

    /// The element type that Paddle's rules have set.
    #[inline]
    pub fn data_type(&self) -> DataType {
        self.0.data_type()
    }

    /// The element type that Paddle's rules have set, as openmps' type.
    #[inline]
    pub fn dtype(&self) -> Result<DType> {
        self.0.dtype()
    }

    /// Sets the dimensions, and with them dense strides. Needed only where the shape depends on values.
    pub fn set_dims(&self, dims: &[usize]) {
        let unknown = self.replace_unknown_dims(dims);
        if unknown || !self.is_unset() && self.0.shape().as_slice() == dims {
            return self.make_dense();
        }
        let dims: arrayvec::ArrayVec<i64, MAX_RANK> = dims.iter().map(|&size| size as i64).collect();
        // Paddle refuses to resize what is not dense.
        self.make_dense();
        // SAFETY: the tensor is alive and belongs to this kernel as its output; the array outlives the call.
        unsafe { (symbols().tensor_set_dims)(self.0.raw(), dims.len() as i64, dims.as_ptr(), &mut 0) };
        self.make_dense();
    }

    /// Whether Paddle's rule has given it no elements. A size that it has left open, -1, says nothing.
    pub fn is_empty(&self) -> bool {
        let shape = self.0.shape();
        shape.contains(&0) && self.0.refuse_negative(shape).is_ok()
    }

    /// Whether Paddle's rules have left a size open, as those of bounds that are tensors in a program.
    pub fn has_unknown_dims(&self) -> bool {
        self.0.refuse_negative(self.0.shape()).is_err()
    }

    /// What it holds already: an output of a program that is an input too, or of an earlier run. Nothing where it has no memory yet.
    pub fn held(&self) -> Option<&Tensor> {
        // SAFETY: the tensor is alive.
        unsafe { (symbols().tensor_is_initialized)(self.0.raw(), &mut 0) }.then_some(&self.0)
    }

    /// Whether nothing has given it dimensions yet, none neither.
    fn is_unset(&self) -> bool {
        // SAFETY: the layout was probed on a tensor of this library, and the tensor is alive.
        let rank =
            tensor_layout::layout().map(|layout| unsafe { self.0.field::<i32>(layout.dims + RANK_OFFSET).read() });
        rank.is_some_and(|rank| rank < 0)
    }

    /// Overwrites dimensions that Paddle's rules have left open as -1: Paddle refuses to resize such a tensor.
    fn replace_unknown_dims(&self, dims: &[usize]) -> bool {
        let Some(layout) = tensor_layout::layout() else { return false };
        // SAFETY: the layout was probed on a tensor of this library, and the tensor is alive.
        if unsafe { self.0.numbers(layout.dims) }.iter().all(|&size| size >= 0) {
            return false;
        }
        let dims = dims[..dims.len().min(tensor_layout::MAX_RANK)].iter();
        // SAFETY: as above, and this kernel owns its output.
        unsafe { self.0.write_numbers(layout.dims, dims.map(|&size| size as i64)) };
        true
    }

    /// Sets the strides, in elements: for results that share memory with an input.
    pub fn set_strides(&self, strides: &[isize]) {
        if let Some(layout) = tensor_layout::layout()
            && strides.len() <= tensor_layout::MAX_RANK
        {
            // SAFETY: the layout was probed, and a `DDim` there has room for this many numbers; the tensor is this kernel's output.
            return unsafe { self.0.write_numbers(layout.strides, strides.iter().map(|&stride| stride as i64)) };
        }
        let strides: arrayvec::ArrayVec<i64, MAX_RANK> = strides.iter().map(|&stride| stride as i64).collect();
        // SAFETY: as in `set_dims`.
        unsafe { (symbols().tensor_set_strides)(self.0.raw(), strides.len() as i64, strides.as_ptr(), &mut 0) };
    }

    /// Sets the strides of a dense tensor, where they are not already.
    #[inline]
    pub fn make_dense(&self) {
        self.make_dense_as(&self.0.shape());
    }

    /// Sets the strides of a dense tensor of this shape, which the tensor has, and returns them.
    #[inline(always)]
    fn make_dense_as(&self, shape: &Shape) -> Strides {
        let dense = dense_strides(shape);
        if !self.0.has_strides(&dense) {
            self.set_dense(shape, &dense);
        }
        dense
    }

    fn set_dense(&self, shape: &Shape, dense: &Strides) {
        if !shape.contains(&0) {
            return self.set_strides(dense);
        }
        // What Paddle takes for the strides of a dense tensor without elements.
        let sizes: Strides = shape.iter().map(|&size| size as isize).collect();
        if !self.0.has_strides(&sizes) {
            self.set_strides(&sizes);
        }
    }

    /// Makes the output a view of the memory that it has: dimensions, strides in elements, offset in bytes.
    pub fn set_view(&self, dims: &[usize], strides: &[isize], offset: i64) {
        self.set_dims(dims);
        self.set_strides(strides);
        // SAFETY: the tensor is alive and belongs to this kernel as its output.
        unsafe { (symbols().tensor_set_offset)(self.0.raw(), offset, &mut 0) };
    }

    /// Changes the element type, where there are no elements.
    pub fn set_data_type(&self, data_type: DataType) {
        // SAFETY: the tensor is alive and belongs to this kernel as its output.
        unsafe { (symbols().tensor_set_data_type)(self.0.raw(), data_type.c_number(), &mut 0) };
    }

    /// Makes the output share the memory of `source`, dimensions and strides included.
    pub fn share(&self, source: &Tensor) {
        // SAFETY: both tensors are alive.
        unsafe { (symbols().tensor_share_data_with)(self.0.raw(), source.raw(), &mut 0) };
    }

    /// Makes a dense result of `data_type` in the CPU's memory.
    ///
    /// # Safety
    /// `context` is the live device context of the running kernel; the elements are as many as the output's dimensions say.
    pub(crate) unsafe fn write_on_host(&self, context: *const PdDeviceContext, data_type: DataType, elements: &[u8]) {
        // SAFETY: the caller's promise; the memory is as large as the output's dimensions say.
        unsafe {
            let to = (symbols().device_context_host_allocate)(context, self.0.raw(), data_type.0, 0, false);
            elements.as_ptr().copy_to_nonoverlapping(to.cast(), elements.len());
        }
    }

    /// Allocates memory for a dense result of `data_type` and shows it as elements of `dtype`, which are as wide.
    ///
    /// # Safety
    /// `context` is the live device context of the running kernel.
    #[inline(always)]
    pub(crate) unsafe fn allocate(
        &self,
        context: *const PdDeviceContext,
        data_type: DataType,
        dtype: DType,
    ) -> Result<View> {
        // What no rule has given a shape gets no memory from Paddle either: it has no elements.
        if self.is_unset() {
            self.set_dims(&[0]);
        }
        let shape = self.0.checked_shape()?;
        let strides = self.make_dense_as(&shape);
        // SAFETY: the caller's promise. When memory is out Paddle throws, and the exception passes through the kernel.
        let address = unsafe {
            (symbols().device_context_allocate_tensor)(context, self.0.raw(), 0, data_type.c_number(), &mut 0) as usize
        };
        Ok(View { address, dtype, shape, strides })
    }
}

/// The integer type as wide as `data_type`, and whether two of them make one element.
pub(crate) fn integer_of(data_type: DataType) -> Result<(DType, bool)> {
    Ok(match data_type.size() {
        1 => (DType::U8, false),
        2 => (DType::I16, false),
        4 => (DType::I32, false),
        8 => (DType::I64, false),
        16 => (DType::I64, true),
        _ => return Err(Error::ElementType(data_type)),
    })
}

/// Turns elements of 16 bytes into pairs of elements of 8 bytes.
pub(crate) fn double(view: &mut View) -> Result<()> {
    view.strides.iter_mut().for_each(|stride| *stride *= 2);
    view.shape
        .try_push(2)
        .and_then(|()| view.strides.try_push(1).map_err(|_| arrayvec::CapacityError::new(0)))
        .map_err(|_| Error::Graph(openmps_graph::Error::Rank(view.shape.len() + 1)))
}
