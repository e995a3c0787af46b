//! Indexing by tensors on the emulated GPU, where kernels of tiles do it: reading, replacing, adding, and indices that do not fit.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use openmps_emulator::Schedule;
use openmps_graph::operators::advanced_index::{Axis, Selection};
use openmps_graph::operators::gather::Gather;
use openmps_graph::view::shape_of;
use openmps_graph::{DType, Operator, Queue, View};
use openmps_metal::emulated::Emulated;
use openmps_runtime::vendor::Engine;
use openmps_runtime::{Buffer, CommandKind, Device};

/// A dense tensor of the device.
struct Tensor {
    view: View,
    buffer: Buffer,
}

/// The queue for calls of operators.
fn vouched(queue: &openmps_runtime::Queue) -> &Queue {
    // SAFETY: views in these tests are of tensors of their own, which live until the device was waited for.
    unsafe { Queue::vouched(queue) }
}

fn device() -> Device {
    Device::over_with_engine(0, Emulated::with_schedule(Schedule::Descending), Some(Engine::Kernels))
}

fn floats(device: &Device, dims: &[usize], values: &[f32]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    tensor(device, DType::F32, dims, &bytes)
}

fn indices(device: &Device, dims: &[usize], values: &[i64]) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    tensor(device, DType::I64, dims, &bytes)
}

fn tensor(device: &Device, dtype: DType, dims: &[usize], bytes: &[u8]) -> Tensor {
    let buffer = device.allocate(bytes.len()).unwrap();
    let view = View::dense(buffer.address(), dtype, dims).unwrap();
    vouched(&device.queue()).write(&view, bytes).unwrap();
    Tensor { view, buffer }
}

impl Tensor {
    fn read(&self) -> Vec<f32> {
        let mut bytes = vec![0; self.view.len() * 4];
        vouched(&self.buffer.device().queue()).read(&self.view, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|element| f32::from_ne_bytes(element.try_into().unwrap())).collect()
    }
}

/// `x[1:, j]` of a tensor of shape [4, 6].
fn selection() -> Selection {
    Selection {
        shape: shape_of(&[3, 3]).unwrap(),
        strides: [6, 0].into_iter().collect(),
        start: 6,
        axes: vec![Axis { size: 6, stride: 1 }],
    }
}

#[test]
fn reading_replacing_and_adding() {
    let device = device();
    let queue = &device.queue();
    let queue = vouched(queue);
    let counting: Vec<f32> = (0_u8..24).map(f32::from).collect();
    let (x, out) = (floats(&device, &[4, 6], &counting), floats(&device, &[3, 3], &[0.0; 9]));
    let places = indices(&device, &[1, 3], &[1, 0, -1]);
    let index = std::slice::from_ref(&places.view);
    selection().get(queue, &x.view, index, &out.view).unwrap();
    assert_eq!(out.read(), [7.0, 6.0, 11.0, 13.0, 12.0, 17.0, 19.0, 18.0, 23.0]);
    selection().add(queue, &x.view, index, &out.view).unwrap();
    let mut expected = counting.clone();
    out.read().iter().for_each(|&value| expected[value as usize] += value);
    assert_eq!(x.read(), expected);
    let value = floats(&device, &[3], &[-1.0, -2.0, -3.0]);
    selection().put(queue, &x.view, index, &value.view).unwrap();
    assert_eq!(x.read()[6..12], [-2.0, -1.0, 8.0, 9.0, 10.0, -3.0]);
    assert!(queue.counts().of(CommandKind::Dispatch) >= 3, "kernels do it");
}

#[test]
fn of_duplicates_the_last_stays_and_sums_are_in_order() {
    let device = device();
    let queue = &device.queue();
    let queue = vouched(queue);
    let (x, index) = (floats(&device, &[4, 6], &[0.0; 24]), indices(&device, &[1, 3], &[2, 2, 2]));
    let value = floats(&device, &[3], &[1e8, 1.0, -1e8]);
    selection().put(queue, &x.view, std::slice::from_ref(&index.view), &value.view).unwrap();
    assert_eq!(x.read()[8], -1e8);
    selection().add(queue, &x.view, std::slice::from_ref(&index.view), &value.view).unwrap();
    assert_eq!(x.read()[8], ((-1e8_f32 + 1e8) + 1.0) - 1e8);
}

#[test]
fn indices_that_do_not_fit_are_refused_as_on_the_host() {
    let device = device();
    let queue = &device.queue();
    let queue = vouched(queue);
    let (x, out) = (floats(&device, &[4, 6], &[0.0; 24]), floats(&device, &[3, 3], &[0.0; 9]));
    let index = indices(&device, &[1, 3], &[1, 6, 0]);
    let error = selection().get(queue, &x.view, std::slice::from_ref(&index.view), &out.view).unwrap_err();
    assert_eq!(error.to_string(), "index: index 6 at position 1 is outside -6..6");
    let index = indices(&device, &[3], &[0, 1, -7]);
    let out = floats(&device, &[4, 3], &[0.0; 12]);
    let gather = Gather { axis: 1 };
    let error = gather.run(queue, &[x.view.clone(), index.view.clone()], std::slice::from_ref(&out.view)).unwrap_err();
    assert!(error.to_string().contains("index -7 at position 2 is outside -6..6"), "{error}");
}
