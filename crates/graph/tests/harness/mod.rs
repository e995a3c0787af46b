//! Tensors for tests: made in every element type and layout, read back, compared with float64.

pub mod suite;

use openmps_graph::entry::{Input, Values};
use openmps_graph::view::{dense_strides, shape_of};
use openmps_graph::{Array, DType, Meta, Queue, View};
use openmps_runtime::{Buffer, Device};
use openmps_tile::{bf16, f16};

/// The queue for calls of operators.
pub fn vouched(queue: &openmps_runtime::Queue) -> &Queue {
    // SAFETY: views in these tests are of tensors of their own, which live until the device was waited for.
    unsafe { Queue::vouched(queue) }
}

/// How an input lies in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Row-major, from the start of its buffer.
    Dense,
    /// The first dimension innermost.
    Transposed,
    /// Every second element of a larger tensor, from an odd offset.
    Spaced,
}

impl Layout {
    pub const ALL: &'static [Layout] = &[Layout::Dense, Layout::Transposed, Layout::Spaced];
}

/// A tensor on a device and the same in float64.
pub struct Tensor {
    pub view: View,
    pub array: Array,
    #[allow(dead_code, reason = "keeps the memory alive")]
    buffer: Buffer,
}

impl Tensor {
    pub fn make(device: &Device, input: &Input, dtype: DType, layout: Layout, seed: u64) -> Tensor {
        let count: usize = input.dims.iter().product();
        let data: Vec<f64> = (0..count).map(|i| round_to(value(&input.values, i, seed, dtype), dtype)).collect();
        let array = Array::new(&input.dims, data, dtype);
        let (strides, offset, span) = place(&input.dims, layout);
        let buffer = device.allocate((span * dtype.size()).max(1)).expect("test memory");
        let mut bytes = vec![0xA5; span * dtype.size()];
        let mut at = 0;
        openmps_graph::reference::for_each_index(&input.dims, |index| {
            let element: isize = index.iter().zip(&strides).map(|(&i, &stride)| i as isize * stride).sum();
            encode(array.data[at], dtype, &mut bytes[(offset + element as usize) * dtype.size()..]);
            at += 1;
        });
        let address = buffer.address() + offset * dtype.size();
        let view = View::strided(address, dtype, &input.dims, &strides).expect("test shapes");
        let whole = View::dense(buffer.address(), DType::U8, &[bytes.len()]).expect("test shapes");
        vouched(&device.queue()).write(&whole, &bytes).expect("test memory");
        Tensor { view, array, buffer }
    }

    pub fn empty(device: &Device, meta: &Meta) -> Tensor {
        let count: usize = meta.shape.iter().product();
        let bytes = meta.bytes().expect("test shapes");
        let buffer = device.allocate(bytes.max(1)).expect("test memory");
        // A pattern that no result has, so that an element that is not written is seen.
        let view = View::dense(buffer.address(), meta.dtype, &meta.shape).expect("test shapes");
        vouched(&device.queue()).fill(&view, 0xA5).expect("test memory");
        let array = Array::new(&meta.shape, vec![0.0; count], meta.dtype);
        Tensor { view, array, buffer }
    }

    /// The tensor, known by what a device has written there.
    #[allow(dead_code, reason = "only gradients go on from results")]
    pub fn with_what_is_there(mut self) -> Tensor {
        self.array.data = self.read();
        self
    }

    pub fn meta(&self) -> Meta {
        Meta { dtype: self.view.dtype, shape: self.view.shape.clone() }
    }

    pub fn read(&self) -> Vec<f64> {
        let size = self.view.dtype.size();
        let mut bytes = vec![0; self.view.len() * size];
        vouched(&self.buffer.device().queue()).read(&self.view, &mut bytes).expect("test memory");
        bytes.chunks_exact(size).map(|element| decode(element, self.view.dtype)).collect()
    }

    /// Compares what the device computed with the reference, rounded to the output's type.
    pub fn compare(&self, expected: &Array, tolerance: f64, relative_to_largest: bool) -> Result<(), String> {
        if expected.shape != self.view.shape {
            return Err(format!("shape {:?}, the reference has {:?}", self.view.shape, expected.shape));
        }
        let dtype = self.view.dtype;
        let finite = expected.data.iter().filter(|value| value.is_finite());
        let largest = finite.fold(0.0_f64, |largest, value| largest.max(value.abs()));
        for (place, (&expected, got)) in expected.data.iter().zip(self.read()).enumerate() {
            let rounded = round_to(expected, dtype);
            let scale = if relative_to_largest { largest } else { rounded.abs() };
            let allowed =
                tolerance.max(if dtype.is_float() { 0.5 } else { 0.0 }) * epsilon(dtype) * scale + tiny(dtype);
            let same = got == rounded || (got.is_nan() && rounded.is_nan()) || (got - rounded).abs() <= allowed;
            if !same {
                return Err(format!("element {place}: got {got:e}, expected {rounded:e} (allowed error {allowed:e})"));
            }
        }
        Ok(())
    }
}

/// Strides, offset of the first element, and the elements spanned.
fn place(dims: &[usize], layout: Layout) -> (Vec<isize>, usize, usize) {
    let count: usize = dims.iter().product();
    let dense = dense_strides(&shape_of(dims).expect("test shapes"));
    match layout {
        Layout::Dense => (dense.to_vec(), 0, count),
        Layout::Transposed => {
            let strides = (0..dims.len()).map(|d| dims[..d].iter().product::<usize>() as isize).collect();
            (strides, 0, count)
        }
        Layout::Spaced => (dense.iter().map(|stride| stride * 2).collect(), 3, count * 2 + 3),
    }
}

fn value(values: &Values, place: usize, seed: u64, dtype: DType) -> f64 {
    const SPECIAL: [f64; 16] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        3.4e38,
        -3.4e38,
        1.2e-38,
        1e-44,
        88.0,
        -104.0,
        100000.0,
    ];
    let number = match values {
        Values::Special => return SPECIAL[(place + seed as usize * 5) % SPECIAL.len()],
        Values::Counting => place as f64,
        Values::Given(list) => list[place % list.len()],
        Values::Uniform(low, high) => {
            let mut state =
                (place as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.wrapping_mul(0xD1B5_4A32_D192_ED03);
            state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let unit = ((state ^ (state >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
            let (low, high) = if dtype == DType::U8 && *low < 0.0 { (0.0, 7.0) } else { (*low, *high) };
            low + unit * (high - low)
        }
    };
    if dtype.is_float() { number } else { number.round() }
}

fn round_to(value: f64, dtype: DType) -> f64 {
    let mut bytes = [0; 8];
    encode(value, dtype, &mut bytes);
    decode(&bytes, dtype)
}

fn encode(value: f64, dtype: DType, bytes: &mut [u8]) {
    let encoded = match dtype {
        DType::Bool => vec![u8::from(value != 0.0)],
        DType::U8 => vec![value as i64 as u8],
        DType::I8 => vec![value as i64 as u8],
        DType::U16 => (value as i64 as u16).to_le_bytes().to_vec(),
        DType::U32 => (value as i64 as u32).to_le_bytes().to_vec(),
        // Beyond int64 and below 0 at once.
        DType::U64 if value < 0.0 => (value as i64).to_le_bytes().to_vec(),
        DType::U64 => (value as u64).to_le_bytes().to_vec(),
        DType::I16 => (value as i64 as i16).to_le_bytes().to_vec(),
        DType::I32 => (value as i64 as i32).to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::F16 => f16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
    };
    bytes[..encoded.len()].copy_from_slice(&encoded);
}

fn decode(bytes: &[u8], dtype: DType) -> f64 {
    let mut wide = [0; 8];
    wide[..dtype.size()].copy_from_slice(&bytes[..dtype.size()]);
    let low = u64::from_le_bytes(wide);
    match dtype {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => low as f64,
        DType::I8 => f64::from(low as i8),
        DType::I16 => f64::from(low as i16),
        DType::I32 => f64::from(low as i32),
        DType::I64 => low as i64 as f64,
        DType::F16 => f16::from_bits(low as u16).to_f64(),
        DType::BF16 => bf16::from_bits(low as u16).to_f64(),
        DType::F32 => f64::from(f32::from_bits(low as u32)),
        DType::F64 => f64::from_bits(low),
    }
}

fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2.0_f64.powi(-10),
        DType::BF16 => 2.0_f64.powi(-7),
        DType::F32 => f64::from(f32::EPSILON),
        DType::F64 => f64::EPSILON,
        _ => 0.0,
    }
}

/// An error that no relative measure catches: the spacing of subnormal numbers.
fn tiny(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 6e-8,
        DType::BF16 => 1e-38,
        DType::F32 => 3e-45,
        DType::F64 => 1e-320,
        _ => 0.0,
    }
}
