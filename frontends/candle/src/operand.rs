//! Between Candle's tensors and openmps's: views of storages with their strides and offsets, results in fresh storages.

use candle_core::{CpuStorage, DType, Error, Layout, Result, Shape, Tensor};
use openmps::DataType;
use openmps::operators::{Meta, Operator, View};
use openmps::runtime::{Device, Queue};
use std::sync::OnceLock;

/// A storage with its layout, as Candle hands it to a custom operator.
pub(crate) type Operand<'a> = (&'a CpuStorage, &'a Layout);

/// The queue of the host device, where Candle's CPU tensors are computed with whatever `OPENMPS_DEVICE` names.
pub(crate) fn queue() -> Result<&'static Queue> {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    if let Some(queue) = QUEUE.get() {
        return Ok(queue);
    }
    let queue = Device::host(0).map_err(Error::wrap)?.queue();
    Ok(QUEUE.get_or_init(|| queue))
}

/// The element type that openmps has for Candle's.
pub(crate) fn data_type(dtype: DType) -> Option<DataType> {
    Some(match dtype {
        DType::U8 => DataType::U8,
        DType::I16 => DataType::I16,
        DType::I32 => DataType::I32,
        DType::I64 => DataType::I64,
        DType::BF16 => DataType::BF16,
        DType::F16 => DataType::F16,
        DType::F32 => DataType::F32,
        DType::F64 => DataType::F64,
        _ => return None,
    })
}

/// Candle's element type for ours.
#[cfg(any(feature = "metal", test))]
pub(crate) fn candle_type(dtype: DataType) -> Result<DType> {
    Ok(match dtype {
        DataType::U8 => DType::U8,
        DataType::I16 => DType::I16,
        DataType::I32 => DType::I32,
        DataType::I64 => DType::I64,
        DataType::BF16 => DType::BF16,
        DataType::F16 => DType::F16,
        DataType::F32 => DType::F32,
        DataType::F64 => DType::F64,
        other => candle_core::bail!("Candle has no element type for {other}"),
    })
}

/// The tensor as openmps sees it. Valid while the storage is borrowed.
pub(crate) fn view((storage, layout): Operand) -> Result<View> {
    let (start, dtype) = match storage {
        CpuStorage::U8(data) => (data.as_ptr() as usize, DataType::U8),
        CpuStorage::I16(data) => (data.as_ptr() as usize, DataType::I16),
        CpuStorage::I32(data) => (data.as_ptr() as usize, DataType::I32),
        CpuStorage::I64(data) => (data.as_ptr() as usize, DataType::I64),
        CpuStorage::BF16(data) => (data.as_ptr() as usize, DataType::BF16),
        CpuStorage::F16(data) => (data.as_ptr() as usize, DataType::F16),
        CpuStorage::F32(data) => (data.as_ptr() as usize, DataType::F32),
        CpuStorage::F64(data) => (data.as_ptr() as usize, DataType::F64),
        other => {
            use candle_core::backend::BackendStorage;
            candle_core::bail!("openmps has no element type for {:?}", other.dtype())
        }
    };
    let strides: Vec<isize> = layout.stride().iter().map(|&stride| stride as isize).collect();
    let address = start + layout.start_offset() * dtype.size();
    View::strided(address, dtype, layout.dims(), &strides).map_err(Error::wrap)
}

/// A fresh storage of this type and shape that `fill` writes in full.
pub(crate) fn produce(
    dtype: DataType,
    dims: &[usize],
    fill: impl FnOnce(&View) -> Result<()>,
) -> Result<(CpuStorage, Shape)> {
    let count = openmps::operators::view::elements(dims).map_err(Error::wrap)?;
    macro_rules! storage {
        ($($variant:ident: $type:ty),*) => {
            match dtype {
                $(DataType::$variant => {
                    let mut data: Vec<$type> = Vec::with_capacity(count);
                    fill(&View::dense(data.as_mut_ptr() as usize, dtype, dims).map_err(Error::wrap)?)?;
                    // SAFETY: every element was written: operators fill their outputs or return an error.
                    unsafe { data.set_len(count) };
                    CpuStorage::$variant(data)
                })*
                other => candle_core::bail!("Candle has no element type for {other}"),
            }
        };
    }
    let storage = storage!(
        U8: u8, I16: i16, I32: i32, I64: i64, BF16: half::bf16, F16: half::f16, F32: f32, F64: f64
    );
    Ok((storage, Shape::from_dims(dims)))
}

/// Candle's own exponentials of integers are not written, and end the thread.
pub(crate) fn expect_floats(operation: &str, x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    candle_core::bail!("{operation} of {:?}: it takes floats", x.dtype())
}

/// The one result of an operator, or what its rule says against the inputs.
pub(crate) fn infer(operator: &dyn Operator, inputs: &[View]) -> Result<Meta> {
    let metas: Vec<Meta> = inputs.iter().map(|view| Meta { dtype: view.dtype, shape: view.shape.clone() }).collect();
    Ok(operator.infer(&metas).map_err(Error::wrap)?.swap_remove(0))
}
