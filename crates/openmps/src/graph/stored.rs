//! Constants that lie elsewhere, in a file say, and are read when something needs them.

use super::TensorData;
use crate::buffer::{Buffer, WeakBuffer};
use crate::device::Device;
use crate::error::{Error, Result};
use openmps_graph::Meta;
use openmps_graph::view::shape_of;
use openmps_tile::DType;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Gives the tensor's bytes, the same ones each time.
type Read = dyn Fn() -> std::result::Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> + Send + Sync;

/// A tensor whose bytes are read when something needs them, for [`Graph::stored`](super::Graph::stored). The device has a copy as long as a compiled
/// graph reads the tensor as it is; a weight that kernels read in an order of their own is copied into that order and not kept beside. Clones are the same tensor.
///
/// ```
/// use openmps::graph::StoredTensor;
/// use openmps::{DataType, Device, Graph};
/// let (device, mut graph) = (Device::get(0)?, Graph::new());
/// let weight = StoredTensor::new(&device, &[2], DataType::U8, || Ok(vec![2, 3]))?;
/// let x = graph.stored(&weight);
/// let y = graph.add(x, x)?;
/// assert_eq!(graph.compile(&device, &[y])?.run(&device.queue(), &[])?[0].read::<u8>()?, [4, 6]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone)]
pub struct StoredTensor {
    shared: Arc<Shared>,
}

struct Shared {
    device: Device,
    meta: Meta,
    read: Box<Read>,
    /// The copy on the device that compiled graphs read, while there is one.
    copy: Mutex<WeakBuffer>,
}

impl StoredTensor {
    /// A dense tensor for this device, whose bytes in row-major order `read` gives.
    ///
    /// ```
    /// use openmps::graph::StoredTensor;
    /// use openmps::{DataType, Device};
    /// let short = StoredTensor::new(&Device::get(0)?, &[3], DataType::F32, || Ok(vec![0; 8]))?;
    /// assert!(short.tensor().is_err(), "8 bytes are no three numbers");
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(
        device: &Device,
        shape: &[usize],
        data_type: DType,
        read: impl Fn() -> std::result::Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Result<StoredTensor> {
        let meta = Meta { dtype: data_type, shape: shape_of(shape)? };
        let copy = Mutex::new(WeakBuffer::default());
        Ok(StoredTensor { shared: Arc::new(Shared { device: device.clone(), meta, read: Box::new(read), copy }) })
    }

    /// The dimensions.
    ///
    /// ```
    /// # use openmps::{DataType, Device, graph::StoredTensor};
    /// assert_eq!(StoredTensor::new(&Device::get(0)?, &[2, 1], DataType::U8, || Ok(vec![1, 2]))?.shape(), [2, 1]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn shape(&self) -> &[usize] {
        &self.shared.meta.shape
    }

    /// The element type.
    ///
    /// ```
    /// # use openmps::{DataType, Device, graph::StoredTensor};
    /// assert_eq!(StoredTensor::new(&Device::get(0)?, &[1], DataType::U8, || Ok(vec![1]))?.data_type(), DataType::U8);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn data_type(&self) -> DType {
        self.shared.meta.dtype
    }

    /// The tensor on the device, a copy for the caller alone.
    ///
    /// ```
    /// # use openmps::{DataType, Device, graph::StoredTensor};
    /// let stored = StoredTensor::new(&Device::get(0)?, &[2], DataType::U8, || Ok(vec![1, 2]))?;
    /// assert_eq!(stored.tensor()?.read::<u8>()?, [1, 2]);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn tensor(&self) -> Result<TensorData> {
        let Shared { device, meta, .. } = &*self.shared;
        Ok(TensorData { buffer: Buffer::from_slice(device, &self.bytes()?)?, offset: 0, meta: meta.clone() })
    }

    /// The tensor on the device: one copy for all compiled graphs that have it at the same time. It is handed to nobody else, and so never written.
    pub(super) fn shared(&self) -> Result<TensorData> {
        let Shared { device, meta, copy, .. } = &*self.shared;
        let mut copy = copy.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = match copy.upgrade() {
            Some(buffer) => buffer,
            None => {
                let buffer = Buffer::from_slice(device, &self.bytes()?)?;
                *copy = buffer.downgrade();
                buffer
            }
        };
        Ok(TensorData { buffer, offset: 0, meta: meta.clone() })
    }

    pub(super) fn meta(&self) -> &Meta {
        &self.shared.meta
    }

    /// The tensor's bytes, read anew.
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        let Shared { meta, read, .. } = &*self.shared;
        let bytes =
            read().map_err(|source| Error::Stored { shape: meta.shape.to_vec(), data_type: meta.dtype, source })?;
        if bytes.len() != meta.bytes()? {
            let (got, expected) = (format!("{} bytes", bytes.len()), format!("{} bytes", meta.bytes()?));
            return Err(Error::Shape { operation: "StoredTensor", what: "what was read", got, expected });
        }
        Ok(bytes)
    }

    /// What tells it from every other one that is alive.
    pub(super) fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }
}

impl fmt::Debug for StoredTensor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "StoredTensor({:?})", self.shared.meta)
    }
}
