//! Every operator's forward pass on an external GPU, its kernels' text executed on this CPU, against the pass on the host: the path of
//! `metal_fwd` but for Candle's own objects.

mod gpu;

use super::{Given, forward};
use crate::forward::{Forward, on_host};
use candle_core::{CpuStorage, DType, Device, Result, Storage, Tensor};
use gpu::{EmulatedGpu, SCHEDULES};
use openmps::runtime::external::ExternalDevice;
use openmps_metal::emulated::EmulatedBuffer;

/// An operator under test, with the shapes of its operands.
struct Case {
    name: &'static str,
    op: Box<dyn Forward>,
    shapes: &'static [&'static [usize]],
}

impl Case {
    /// Its operands in float32, each with a seed of its own, counted from this one.
    fn operands(&self, first_seed: usize) -> Result<Vec<Tensor>> {
        let seeds = self.shapes.iter().zip(first_seed..);
        let mut operands = seeds.map(|(dims, seed)| numbers(dims, seed)).collect::<Result<Vec<_>>>()?;
        if self.name == "log-softmax-gradient" {
            // Logarithms of probabilities, as its formula expects: of others the powers, near 1, make the rounding of a long row's sum, in whichever order
            // a CPU adds it up, as large as what is allowed.
            operands[0] = (&operands[0] - (operands[0].elem_count() as f64).ln())?;
        }
        Ok(operands)
    }
}

fn numbers(dims: &[usize], seed: usize) -> Result<Tensor> {
    let count = dims.iter().product();
    let value = |i: usize| ((i * 2_654_435_761 + seed * 40_503 + 12_345) % 100_003) as f32 / 50_000.0 - 1.0;
    Tensor::from_vec((0..count).map(value).collect::<Vec<f32>>(), dims, &Device::Cpu)
}

/// The same elements: dense, with swapped dimensions in memory, inside of a larger tensor.
fn layouts(x: &Tensor) -> Result<[Tensor; 3]> {
    let rank = x.rank();
    let swapped = if rank < 2 {
        x.clone()
    } else {
        x.transpose(rank - 2, rank - 1)?.contiguous()?.transpose(rank - 2, rank - 1)?
    };
    let mut inner = x.clone();
    for axis in 0..rank {
        inner = inner.pad_with_zeros(axis, 1, 2)?;
    }
    for axis in 0..rank {
        inner = inner.narrow(axis, 1, x.dim(axis)?)?;
    }
    Ok([x.clone(), swapped, inner])
}

fn bytes(storage: &CpuStorage) -> Vec<u8> {
    fn raw<T: Copy>(values: &[T]) -> Vec<u8> {
        // SAFETY: numbers without padding, as many bytes as they take.
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
    }
    match storage {
        CpuStorage::F16(values) => raw(values),
        CpuStorage::BF16(values) => raw(values),
        CpuStorage::F32(values) => raw(values),
        other => panic!("a test has no {other:?}"),
    }
}

/// The whole storage of a tensor in the GPU's memory, so that strides and offset mean the same there.
fn upload(gpu: &EmulatedGpu, x: &Tensor) -> EmulatedBuffer {
    let (storage, _) = x.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else { panic!("a test's tensor is on the CPU") };
    gpu.buffer(&bytes(storage))
}

fn numbers_of(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let pair = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    match dtype {
        DType::F16 => bytes.chunks_exact(2).map(|b| half::f16::from_bits(pair(b)).to_f32()).collect(),
        DType::BF16 => bytes.chunks_exact(2).map(|b| half::bf16::from_bits(pair(b)).to_f32()).collect(),
        _ => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// Runs the case on tensors of one layout; compares with the host.
fn check(device: &ExternalDevice<EmulatedGpu>, case: &Case, inputs: &[Tensor], tolerance: f32) -> Result<()> {
    let gpu = device.gpu();
    let dtype = inputs[0].dtype();
    let held: Vec<Tensor> = case.op.held().into_iter().cloned().collect();
    let all: Vec<&Tensor> = inputs.iter().chain(&held).collect();
    let given: Vec<Given<EmulatedBuffer>> = all
        .iter()
        .map(|x| {
            let buffer = upload(gpu, x);
            Given { bytes: gpu.contents(&buffer).len(), buffer, dtype, layout: x.layout() }
        })
        .collect();
    let before: Vec<Vec<u8>> = given.iter().map(|input| gpu.contents(&input.buffer)).collect();
    gpu.begin();
    let made = forward(device, &*case.op, &given, |count, dtype| Ok(gpu.fresh_twice(count * dtype.size_in_bytes())))?;
    gpu.end();
    for ((input, before), x) in given.iter().zip(&before).zip(&all) {
        let is_bound = gpu.bound(&input.buffer) || x.elem_count() == 0;
        assert!(is_bound, "{}: an operand's own buffer was bound", case.name);
        assert_eq!(&gpu.contents(&input.buffer), before, "{}: an operand was written", case.name);
    }
    let borrowed: Vec<_> = inputs.iter().map(Tensor::storage_and_layout).collect();
    let operands = borrowed.iter().map(|(storage, layout)| match &**storage {
        Storage::Cpu(storage) => (storage, *layout),
        _ => panic!("a test's tensor is on the CPU"),
    });
    let (expected, shape) = on_host(&*case.op, &operands.collect::<Vec<_>>())?;
    assert_eq!((&made.shape, made.dtype, made.count), (&shape, dtype, shape.elem_count()), "{}", case.name);
    let (got, expected) = (numbers_of(&gpu.contents(&made.handle), dtype), numbers_of(&bytes(&expected), dtype));
    for (place, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let same = (got - expected).abs() <= tolerance * expected.abs().max(1.0) || got == expected;
        assert!(same, "{} ({dtype:?}): element {place} is {got}, on the host {expected}", case.name);
    }
    Ok(())
}

fn cases(dtype: DType) -> Result<Vec<Case>> {
    let held = |dims: &[usize], seed| numbers(dims, seed)?.to_dtype(dtype);
    let mut cases = Vec::new();
    let mut add = |name, op: Box<dyn Forward>, shapes| cases.push(Case { name, op, shapes });
    crate::softmax::cases(&mut add);
    crate::norm::cases(&mut add);
    crate::activation::cases(&mut add);
    crate::rope::cases(&mut add);
    crate::matmul::cases(&mut add);
    crate::attention::cases(&mut add, &held)?;
    crate::linear::cases(&mut add, &held)?;
    crate::lora::cases(&mut add, &held)?;
    Ok(cases)
}

#[test]
fn every_operator_on_a_lent_encoder_is_as_on_the_host() -> Result<()> {
    let [ascending, descending, shuffled] = SCHEDULES;
    let runs = [
        (ascending, DType::F32, 1e-5),
        (descending, DType::F32, 1e-5),
        (shuffled, DType::F32, 1e-5),
        (shuffled, DType::F16, 8e-3),
        (descending, DType::BF16, 6e-2),
    ];
    for (number, (schedule, dtype, tolerance)) in runs.into_iter().enumerate() {
        let device = openmps::runtime::Device::external(number, EmulatedGpu::new(schedule));
        for case in cases(dtype)? {
            let operands = case.operands(1)?.into_iter();
            let tensors: Vec<[Tensor; 3]> = operands.map(|x| layouts(&x.to_dtype(dtype)?)).collect::<Result<_>>()?;
            for layout in 0..3 {
                let inputs: Vec<Tensor> = tensors.iter().map(|tensor| tensor[layout].clone()).collect();
                check(&device, &case, &inputs, tolerance)?;
            }
        }
    }
    Ok(())
}

#[test]
fn dense_operands_need_no_memory_beside_them() -> Result<()> {
    let device = openmps::runtime::Device::external(7, EmulatedGpu::new(SCHEDULES[0]));
    // LoRA has its hidden rows, dropout its mask.
    let has_own = |case: &&Case| ["lora", "dropout"].contains(&case.name);
    // One buffer is bound for all operands without elements.
    let mut for_nothing = 0;
    for case in cases(DType::F32)?.iter().filter(|case| !has_own(case)) {
        let inputs = case.operands(0)?;
        check(&device, case, &inputs, 1e-5)?;
        for_nothing |= usize::from(inputs.iter().any(|x| x.elem_count() == 0));
        assert_eq!(device.gpu().allocations(), for_nothing, "{}", case.name);
    }
    Ok(())
}

#[test]
fn what_has_no_kernel_is_refused_and_says_so() -> Result<()> {
    use crate::forward::Plain;
    use openmps::operators::operators::sequence::Linspace;
    let device = openmps::runtime::Device::external(8, EmulatedGpu::new(SCHEDULES[0]));
    let x = numbers(&[3, 3], 1)?;
    let buffer = upload(device.gpu(), &x);
    let given = Given { bytes: 36, buffer, dtype: DType::F32, layout: x.layout() };
    let op = Plain(Linspace { start: 0.0, stop: 1.0, len: 9, dtype: openmps::DataType::F32 });
    let made = forward(&device, &op, &[given], |count, _| Ok(device.gpu().fresh_twice(count * 4)));
    let error = made.err().expect("a native kernel cannot run there").to_string();
    assert!(error.contains("is not supported by the external GPU"), "{error}");
    // float64: Apple's GPUs have none.
    let wide = x.to_dtype(DType::F64)?;
    let buffer = device.gpu().fresh(72);
    let given = Given { bytes: 72, buffer, dtype: DType::F64, layout: wide.layout() };
    let gelu = Plain(openmps::operators::operators::elementwise::Call::new(
        openmps::operators::operators::elementwise::Elementwise::Activation(
            openmps::operators::operators::elementwise::Activation::Gelu,
        ),
    ));
    let made = forward(&device, &gelu, &[given], |count, _| Ok(device.gpu().fresh_twice(count * 8)));
    let error = made.err().expect("no float64").to_string();
    assert!(error.contains("float64"), "{error}");
    Ok(())
}
