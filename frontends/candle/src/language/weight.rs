//! A weight in blocks of few bits: a product with gradients to its input, and rows by number.

use crate::operand::{Operand, produce, queue, view};
use candle_core::{CpuStorage, CustomOp1, Error, Layout, Result, Shape, Tensor};
use memmap2::Mmap;
use openmps::DataType;
use openmps::operators::operators::quantized::{BlockFormat, Dequantize, Product, QuantizedLinear};
use openmps::operators::view::View;
use openmps::operators::{Meta, Operator, Queue};
use std::sync::Arc;

/// A weight [outputs, inputs] in GGUF's blocks, in a file's mapped memory or in a vector. It is frozen; no copy of it in another type is made.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use openmps::operators::operators::quantized::BlockFormat;
/// // A scale of 0.5 (float16), then 32 bytes.
/// let block: Vec<u8> = [0x00, 0x38].into_iter().chain([2; 32]).collect();
/// let weight = openmps_candle::QuantizedWeight::new(BlockFormat::Q8_0, block, [1, 32])?;
/// let y = weight.forward(&Tensor::ones((1, 32), candle_core::DType::F32, &Device::Cpu)?)?;
/// // What is multiplied is rounded to 8 bits, whose scale is a float16.
/// assert!((y.to_vec2::<f32>()?[0][0] - 32.0).abs() <= 32.0 / 2048.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct QuantizedWeight {
    format: BlockFormat,
    rows: usize,
    columns: usize,
    bytes: Bytes,
    /// Where the first block begins.
    offset: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Mapped(Arc<Mmap>),
    Owned(Arc<Vec<u8>>),
}

impl QuantizedWeight {
    /// A weight of these blocks.
    ///
    /// ```
    /// use openmps::operators::operators::quantized::BlockFormat;
    /// let wrong = openmps_candle::QuantizedWeight::new(BlockFormat::Q4_0, vec![0; 17], [1, 32]);
    /// assert!(wrong.unwrap_err().to_string().contains("18 bytes"));
    /// ```
    pub fn new(format: BlockFormat, bytes: Vec<u8>, shape: [usize; 2]) -> Result<QuantizedWeight> {
        QuantizedWeight::at(format, Bytes::Owned(Arc::new(bytes)), 0, shape)
    }

    /// A weight of the blocks that begin at a byte.
    pub(super) fn at(
        format: BlockFormat,
        bytes: Bytes,
        offset: usize,
        [rows, columns]: [usize; 2],
    ) -> Result<QuantizedWeight> {
        let size = (columns % format.elements() == 0).then(|| format.row_bytes(columns).checked_mul(rows)).flatten();
        let there = bytes.get().len().saturating_sub(offset);
        match size {
            Some(size) if size <= there => Ok(QuantizedWeight { format, rows, columns, bytes, offset }),
            Some(size) => {
                candle_core::bail!("a weight [{rows}, {columns}] of {} has {size} bytes, not {there}", format.name())
            }
            None => candle_core::bail!("rows of {columns} are no whole blocks of {}", format.name()),
        }
    }

    /// Outputs and inputs.
    ///
    /// ```
    /// use openmps::operators::operators::quantized::BlockFormat;
    /// let weight = openmps_candle::QuantizedWeight::new(BlockFormat::Q4_0, vec![0; 36], [2, 32])?;
    /// assert_eq!(weight.dims(), [2, 32]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// `x weight^T`: x is [.., inputs]. A gradient flows to x.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use openmps::operators::operators::quantized::BlockFormat;
    /// let weight = openmps_candle::QuantizedWeight::new(BlockFormat::Q4_0, vec![0; 36], [2, 32])?;
    /// assert_eq!(weight.forward(&Tensor::ones((3, 5, 32), DType::F32, &Device::Cpu)?)?.dims(), [3, 5, 2]);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.apply_op1(Layer { weight: self.clone(), product: Product::Forward })
    }

    /// These rows as float32: an embedding.
    ///
    /// ```
    /// use openmps::operators::operators::quantized::BlockFormat;
    /// let weight = openmps_candle::QuantizedWeight::new(BlockFormat::Q4_0, vec![0; 36], [2, 32])?;
    /// assert_eq!(weight.embed(&[1, 0, 1])?.dims(), [3, 32]);
    /// assert!(weight.embed(&[2]).is_err());
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn embed(&self, rows: &[u32]) -> Result<Tensor> {
        if let Some(row) = rows.iter().find(|&&row| row as usize >= self.rows) {
            candle_core::bail!("row {row} of a weight of {} rows", self.rows);
        }
        let operator = Dequantize { format: self.format };
        let (storage, shape) = produce(DataType::F32, &[rows.len(), self.columns], |out| {
            let whole = self.view()?;
            for (i, &row) in rows.iter().enumerate() {
                let (from, to) = (whole.narrowed(0, row as usize, 1, 1), out.narrowed(0, i, 1, 1));
                // SAFETY: the weight lives as long as `self`, the result until it is handed back; the host computes in `run`.
                let queue = unsafe { Queue::vouched(queue()?) };
                operator.run(queue, &[from], &[to]).map_err(Error::wrap)?;
            }
            Ok(())
        })?;
        let none = candle_core::op::BackpropOp::none();
        Ok(Tensor::from_storage(candle_core::Storage::Cpu(storage), shape, none, false))
    }

    fn view(&self) -> Result<View> {
        let address = self.bytes.get().as_ptr() as usize + self.offset;
        View::dense(address, DataType::U8, &[self.rows, self.format.row_bytes(self.columns)]).map_err(Error::wrap)
    }
}

impl Bytes {
    pub fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped(file) => file,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// One of both products.
struct Layer {
    weight: QuantizedWeight,
    product: Product,
}

impl CustomOp1 for Layer {
    fn name(&self) -> &'static str {
        "openmps-quantized-linear"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x: Operand = (storage, layout);
        let inputs = [view(x)?, self.weight.view()?];
        let operator = QuantizedLinear { format: self.weight.format, product: self.product };
        let Meta { dtype, shape } = crate::operand::infer(&operator, &inputs)?;
        produce(dtype, &shape, |out| {
            // SAFETY: x's storage is borrowed, the weight lives as long as `self`, and the host computes in `run`.
            let queue = unsafe { Queue::vouched(queue()?) };
            operator.run(queue, &inputs, std::slice::from_ref(out)).map_err(Error::wrap)
        })
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let product = match self.product {
            Product::Forward => Product::Backward,
            Product::Backward => Product::Forward,
        };
        gradient.apply_op1_no_bwd(&Layer { weight: self.weight.clone(), product }).map(Some)
    }
}
