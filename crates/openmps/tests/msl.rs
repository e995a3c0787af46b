//! Kernels in Metal's own language, on the emulated Apple GPU: typed arguments, results, and every refusal.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use openmps::runtime::metal::emulated::Emulated;
use openmps::{Argument, Buffer, DataType, Device, Error, FunctionConstant, Grid, Kernel, Parameter};

const TEXT: &str = "
#include <metal_stdlib>
using namespace metal;
kernel void scale(constant uint& count [[buffer(0)]], device const float* x [[buffer(1)]],
                  device half* y [[buffer(2)]], constant float& by [[buffer(3)]], constant half& plus [[buffer(4)]],
                  uint i [[thread_position_in_grid]]) {
    if (i < count) { y[i] = half(x[i] * by) + plus; }
}
kernel void wild(device float* x [[buffer(0)]]) { x[1ul << 44] = 1.0f; }
";

const PARAMETERS: [Parameter; 5] = [
    Parameter::Number(DataType::I32),
    Parameter::Buffer,
    Parameter::Buffer,
    Parameter::Number(DataType::F32),
    Parameter::Number(DataType::F16),
];

fn gpu() -> Device {
    Device::over(0, Emulated::of_environment())
}

fn scale(device: &Device) -> Kernel {
    Kernel::from_msl(device, TEXT, "scale", [64, 1, 1], &PARAMETERS).expect("it compiles")
}

#[test]
fn a_kernel_of_metals_language_computes_with_typed_arguments() {
    let device = gpu();
    let kernel = scale(&device);
    assert_eq!(kernel.name(), "scale");
    let x = Buffer::from_slice(&device, &(0..200).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let y = Buffer::new(&device, 400).unwrap();
    let command_buffer = device.queue().command_buffer();
    let arguments = [
        Argument::Integer(190),
        Argument::Read(&x, 16),
        Argument::Write(&y, 0),
        Argument::Float(0.5),
        Argument::Float(0.25),
    ];
    // SAFETY: 190 elements are loaded from element 4 of 200 on, and as many of 200 stored.
    unsafe { kernel.encode_unchecked(&command_buffer, [4, 1, 1], &arguments) }.unwrap();
    command_buffer.commit().unwrap();
    command_buffer.wait_until_completed().unwrap();
    let result = y.read::<openmps::f16>(0, 200).unwrap();
    assert!(result[..190].iter().enumerate().all(|(i, y)| y.to_f32() == 0.5 * (i as f32 + 4.0) + 0.25), "{result:?}");
    assert!(result[190..].iter().all(|y| y.to_f32() == 0.0), "beyond the count nothing is stored");
}

#[test]
fn a_grid_of_threads_cuts_the_last_threadgroups_off() {
    let text = "#include <metal_stdlib>\nusing namespace metal;\nkernel void count(device uint* x [[buffer(0)]], \
                uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_grid]], uint2 own [[threads_per_threadgroup]]) \
                { x[at.y * size.x + at.x] += own.x * 100 + own.y; }";
    let device = gpu();
    let kernel = Kernel::from_msl(&device, text, "count", [4, 4, 1], &[Parameter::Buffer]).unwrap();
    let x = Buffer::from_slice(&device, &[0u32; 36]).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: 7 x 5 threads write an element each.
    unsafe { kernel.encode_unchecked(&command_buffer, Grid::Threads([7, 5, 1]), &[Argument::Write(&x, 0)]) }.unwrap();
    command_buffer.commit().unwrap();
    command_buffer.wait_until_completed().unwrap();
    let width = |column| if column < 4 { 400 } else { 300 };
    let expected = (0..35).map(|i| width(i % 7) + if i / 7 < 4 { 4 } else { 1 });
    assert_eq!(x.read::<u32>(0, 36).unwrap(), expected.chain([0]).collect::<Vec<u32>>());
    let tiles = Kernel::from_tiles(&device, "nothing", |_| {}).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: it is refused.
    let refused = unsafe { tiles.encode_unchecked(&command_buffer, Grid::Threads([7, 5, 1]), &[]) }.unwrap_err();
    assert_eq!(refused.to_string(), "Kernel: grid is Threads([7, 5, 1]), expected programs, for a kernel of tiles");
}

#[test]
fn a_threadgroup_has_the_memory_that_it_is_given() {
    let text = "#include <metal_stdlib>\nusing namespace metal;\nkernel void sums(device const float* x [[buffer(0)]], \
                device float* y [[buffer(1)]], threadgroup float* own [[threadgroup(0)]], \
                uint i [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]], \
                uint n [[threads_per_threadgroup]]) { own[i] = x[g * n + i]; \
                threadgroup_barrier(mem_flags::mem_threadgroup); \
                if (i == 0) { float sum = 0; for (uint j = 0; j < n; j++) sum += own[j]; y[g] = sum; } }";
    let device = gpu();
    let kernel = Kernel::from_msl(&device, text, "sums", [64, 1, 1], &[Parameter::Buffer; 2]).unwrap();
    assert!(matches!(kernel.with_threadgroup_memory(&[250]), Err(Error::Attribute { .. })), "no multiple of 16");
    let kernel = kernel.with_threadgroup_memory(&[256]).unwrap();
    let x = Buffer::from_slice(&device, &(0..128).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let y = Buffer::from_slice(&device, &[0.0f32; 2]).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: two threadgroups of 64 read 128 elements and write two.
    unsafe { kernel.encode_unchecked(&command_buffer, [2, 1, 1], &[Argument::Read(&x, 0), Argument::Write(&y, 0)]) }
        .unwrap();
    command_buffer.commit().unwrap();
    command_buffer.wait_until_completed().unwrap();
    assert_eq!(y.read::<f32>(0, 2).unwrap(), [2016.0, 6112.0]);
}

#[test]
fn each_threadgroup_argument_and_each_function_constant_has_its_value() {
    let text = "#include <metal_stdlib>\nusing namespace metal;\nconstant uint pace [[function_constant(0)]];\n\
                constant bool negate [[function_constant(2)]];\nconstant half plus [[function_constant(5)]];\n\
                kernel void turn(device float* x [[buffer(0)]], threadgroup float* one [[threadgroup(0)]], \
                threadgroup float* two [[threadgroup(1)]], uint i [[thread_position_in_threadgroup]], \
                uint n [[threads_per_threadgroup]]) { one[i] = x[i]; two[i] = float(i); \
                threadgroup_barrier(mem_flags::mem_threadgroup); uint at = (i + pace) % n; \
                x[i] = (negate ? -one[at] : one[at]) + 100.0f * two[at] + float(plus); }";
    let device = gpu();
    let constants = [
        FunctionConstant::new(0, 3u32),
        FunctionConstant::flag(2, true),
        FunctionConstant::new(5, openmps::f16::from_f32(0.25)),
    ];
    let make = |constants: &[FunctionConstant]| {
        Kernel::from_msl_with(&device, text, "turn", [32, 1, 1], &[Parameter::Buffer], constants)
    };
    let kernel = make(&constants).unwrap().with_threadgroup_memory(&[128, 128]).unwrap();
    let x = Buffer::from_slice(&device, &(0..32).map(|i| i as f32 / 2.0).collect::<Vec<_>>()).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: 32 threads read and write an element each.
    unsafe { kernel.encode_unchecked(&command_buffer, [1, 1, 1], &[Argument::Write(&x, 0)]) }.unwrap();
    command_buffer.commit().unwrap();
    command_buffer.wait_until_completed().unwrap();
    let expected: Vec<f32> = (0..32).map(|i| (i + 3) % 32).map(|at| 99.5 * at as f32 + 0.25).collect();
    assert_eq!(x.read::<f32>(0, 32).unwrap(), expected);
    assert!(matches!(make(&constants[..2]), Err(Error::Msl { kernel, .. }) if kernel == "turn"), "one has no value");
    assert!(matches!(make(&[FunctionConstant::new(0, 1.0f64)]), Err(Error::DataType { .. })));
    let huge = kernel.with_threadgroup_memory(&[1 << 20, 16]).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: as above; it is refused before it runs.
    unsafe { huge.encode_unchecked(&command_buffer, [1, 1, 1], &[Argument::Write(&x, 0)]) }.unwrap();
    command_buffer.commit().unwrap();
    assert!(command_buffer.wait_until_completed().is_err(), "more than a threadgroup has");
}

#[test]
fn devices_that_are_not_metals_refuse_the_text() {
    let host = Device::all().iter().find(|device| device.properties().backend == openmps::runtime::Backend::Host);
    let (recorder, _) = Device::recorder();
    for device in host.into_iter().chain([&recorder]) {
        match Kernel::from_msl(device, TEXT, "scale", [64, 1, 1], &PARAMETERS) {
            Err(Error::NotMetal { kernel, device }) => assert!(kernel == "scale" && device.starts_with("Device(0")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn wrong_texts_names_and_threads_are_typed_errors() {
    let device = gpu();
    let make = |text: &str, name: &str, threads| Kernel::from_msl(&device, text, name, threads, &PARAMETERS);
    assert!(
        matches!(make("kernel void k() { double x; }", "k", [1, 1, 1]), Err(Error::Msl { kernel, .. }) if kernel == "k")
    );
    assert!(matches!(make(TEXT, "missing", [1, 1, 1]), Err(Error::Msl { kernel, .. }) if kernel == "missing"));
    assert!(matches!(make(TEXT, "scale", [0, 1, 1]), Err(Error::Attribute { attribute: "threads", .. })));
}

#[test]
fn wrong_arguments_are_typed_errors() {
    let device = gpu();
    let kernel = scale(&device);
    let buffer = Buffer::new(&device, 64).unwrap();
    let command_buffer = device.queue().command_buffer();
    let encode = |arguments: &[Argument]| {
        // SAFETY: refused before anything runs.
        unsafe { kernel.encode_unchecked(&command_buffer, [1, 1, 1], arguments) }
    };
    let good = [
        Argument::Integer(1),
        Argument::Read(&buffer, 0),
        Argument::Write(&buffer, 32),
        Argument::Float(1.0),
        Argument::Float(1.0),
    ];
    assert!(matches!(encode(&good[..4]), Err(Error::Argument { index: 4, .. })));
    let with = |place: usize, argument| {
        let mut arguments = good;
        arguments[place] = argument;
        arguments
    };
    assert!(matches!(encode(&with(0, Argument::Float(1.0))), Err(Error::Argument { index: 0, .. })));
    assert!(matches!(encode(&with(3, Argument::Integer(1))), Err(Error::Argument { index: 3, .. })));
    assert!(matches!(encode(&with(1, Argument::Integer(1))), Err(Error::Argument { index: 1, .. })));
    assert!(matches!(encode(&with(3, Argument::Read(&buffer, 0))), Err(Error::Argument { index: 3, .. })));
    assert!(matches!(encode(&with(1, Argument::Read(&buffer, 65))), Err(Error::Argument { index: 1, .. })));
    assert!(matches!(kernel.encode(&command_buffer, [1, 1, 1], &good), Err(Error::Unchecked { .. })));
    let elsewhere = Buffer::new(&gpu(), 64).unwrap();
    assert!(matches!(encode(&with(1, Argument::Read(&elsewhere, 0))), Err(Error::Device { .. })));
    buffer.free();
    assert!(matches!(encode(&good), Err(Error::Freed { .. })));
}

#[test]
fn a_fault_of_the_gpu_is_the_command_buffers_error() {
    let device = gpu();
    let kernel = Kernel::from_msl(&device, TEXT, "wild", [1, 1, 1], &[Parameter::Buffer]).unwrap();
    let x = Buffer::new(&device, 16).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: the emulator catches the access, which is what this test is about.
    unsafe { kernel.encode_unchecked(&command_buffer, [1, 1, 1], &[Argument::Write(&x, 0)]) }.unwrap();
    command_buffer.commit().unwrap();
    let error = command_buffer.wait_until_completed().unwrap_err().to_string();
    assert!(error.contains("fault") && error.contains("wild"), "{error}");
    assert!(device.queue().synchronize().is_err(), "nobody had waited for the queue");
}

#[test]
fn kernels_of_tiles_run_on_the_gpu_too() {
    use openmps::tile::{Scalar, Type};
    let device = gpu();
    let fill = Kernel::from_tiles(&device, "fill", |b| {
        let pointer = b.parameter("x", Type::pointer(Scalar::I32));
        let value = b.parameter("value", Type::scalar(Scalar::I32));
        let places = b.range(8);
        let pointers = b.add_pointer(pointer, places);
        let values = b.splat(value, &[8]);
        b.store(pointers, values, None);
    })
    .unwrap();
    let buffer = Buffer::new(&device, 32).unwrap();
    let command_buffer = device.queue().command_buffer();
    // SAFETY: eight elements are stored, and the buffer has eight.
    unsafe { fill.encode_unchecked(&command_buffer, [1, 1, 1], &[Argument::Write(&buffer, 0), Argument::Integer(-7)]) }
        .unwrap();
    command_buffer.commit().unwrap();
    command_buffer.wait_until_completed().unwrap();
    assert_eq!(buffer.read::<i32>(0, 8).unwrap(), [-7; 8]);
}
