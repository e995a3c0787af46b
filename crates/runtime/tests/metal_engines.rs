//! What goes to MPS and MPSGraph, over the recorder: which calls are taken, that their memory and their errors are kept as any command's, and
//! what runs on the host instead.

#[path = "harness/addresses.rs"]
mod addresses;
mod harness;

use addresses::ByAddress;
use harness::{ADD, settle};
use openmps_metal::interface::Properties;
use openmps_metal::recorder::Said;
use openmps_metal::{Error, Recorder};
use openmps_runtime::vendor::graph::{Builder, Operation};
use openmps_runtime::vendor::{Engine, Family, Matrices, Tensor, VendorCall};
use openmps_runtime::{Buffer, CommandKind, Device, Pipeline};
use openmps_tile::{Builder as Kernel, DType, Scalar, Type, parse};

const SIDE: usize = 256;

fn device(engine: Option<Engine>) -> (Device, Recorder) {
    let recorder = Recorder::default();
    (Device::over_with_engine(0, recorder.clone(), engine), recorder)
}

fn matrices(buffer: &Buffer, dtype: DType, side: usize) -> Matrices {
    let (address, matrices, rows, columns) = (buffer.address(), 1, side, side);
    Matrices { address, dtype, matrices, rows, columns, row_step: side, matrix_step: side * side }
}

/// Three square matrices.
fn buffers(device: &Device) -> [Buffer; 3] {
    [0, 1, 2].map(|_| device.allocate(SIDE * SIDE * 4).unwrap())
}

fn product([left, right, out]: &[Buffer; 3], dtype: DType, side: usize) -> VendorCall {
    let [left, right, out] = [left, right, out].map(|buffer| matrices(buffer, dtype, side));
    VendorCall::Product { left, right, out, transposed: [false, true], factors: [1.0, 0.0] }
}

fn try_vendor(device: &Device, call: VendorCall) -> bool {
    // SAFETY: nothing runs on the recorder.
    unsafe { device.queue().try_vendor("product", || Some(call)) }.unwrap()
}

fn relu(x: &Buffer, out: &Buffer, length: usize) -> VendorCall {
    let mut b = Builder::new();
    let node = b.input(DType::F32, &[length]).unwrap();
    let y = b.add(Operation::Relu, &[node]).unwrap();
    let tensor = |buffer: &Buffer| Tensor { address: buffer.address(), dtype: DType::F32, shape: vec![length] };
    let (inputs, outputs) = (vec![tensor(x)], vec![tensor(out)]);
    let graph = b.finish(&[y]).unwrap();
    VendorCall::Graph { family: Family::Elementwise, work: length as u64, columns: length, graph, inputs, outputs }
}

#[test]
fn the_table_chooses_and_what_no_engine_can_is_left() {
    let (device, recorder) = device(None);
    let memory = buffers(&device);
    assert!(try_vendor(&device, product(&memory, DType::F32, SIDE)));
    assert!(!try_vendor(&device, product(&memory, DType::BF16, SIDE)), "a graph that has not come before");
    device.synchronize().unwrap();
    assert!(try_vendor(&device, product(&memory, DType::BF16, SIDE)));
    assert!(!try_vendor(&device, product(&memory, DType::F32, 8)), "too small to be worth it");
    assert!(!try_vendor(&device, product(&memory, DType::I32, SIDE)), "no type of MPS");
    assert!(!try_vendor(&device, relu(&memory[0], &memory[1], 64)), "own kernels are faster");
    // The result in the place of an operand, an address of nobody's, rows that overlap.
    let [x, y, _] = &memory;
    let place = |buffer| matrices(buffer, DType::F32, SIDE);
    let call = |left: Matrices, out| {
        let (right, transposed, factors) = (place(y), [false; 2], [1.0, 0.0]);
        VendorCall::Product { left, right, out, transposed, factors }
    };
    assert!(!try_vendor(&device, call(place(x), place(x))));
    assert!(!try_vendor(&device, call(Matrices { address: 4096, ..place(x) }, place(&memory[2]))));
    assert!(!try_vendor(&device, call(Matrices { row_step: SIDE - 1, ..place(x) }, place(&memory[2]))));
    assert_eq!(device.queue().counts().of(CommandKind::Vendor), 2);
    device.synchronize().unwrap();
    let said = recorder.said();
    assert!(said.contains(&Said::Matrix("MPSMatrixMultiplication")), "{said:?}");
    assert!(said.iter().any(|said| matches!(said, Said::Graph { inputs, .. } if inputs.len() == 2)), "{said:?}");
    drop(memory);
    settle(device, &recorder);
}

/// A call that Apple's libraries are known to compute wrongly on a machine is left to own kernels there, engine forced or not.
#[test]
fn what_a_machine_is_known_to_compute_wrongly_is_not_taken() {
    for engine in [None, Some(Engine::Mps), Some(Engine::MpsGraph)] {
        for (family, taken) in [(7, false), (8, false), (9, true)] {
            let properties = Properties { family, ..openmps_metal::recorder::properties() };
            let recorder = Recorder::new(properties);
            let device = Device::over_with_engine(0, recorder.clone(), engine);
            let [left, right, out] = [(16, 40_000), (40_000, 16), (16, 16)].map(|(rows, columns)| {
                let buffer = device.allocate(rows * columns * 4).unwrap();
                let (address, dtype) = (buffer.address(), DType::F32);
                let (row_step, matrix_step) = (columns, rows * columns);
                (buffer, Matrices { address, dtype, matrices: 1, rows, columns, row_step, matrix_step })
            });
            let factors = [1.0, 0.0];
            let call =
                VendorCall::Product { left: left.1, right: right.1, out: out.1, transposed: [false; 2], factors };
            assert_eq!(try_vendor(&device, call), taken, "family {family}, {engine:?}");
            drop([left.0, right.0, out.0]);
            settle(device, &recorder);
        }
    }
}

/// Half products of rank 3 are wrong on the M5; one product is one of rank 2.
#[test]
fn one_half_product_is_of_rank_2_and_taken_on_the_m5() {
    let recorder = Recorder::new(Properties { family: 10, ..openmps_metal::recorder::properties() });
    let device = Device::over_with_engine(0, recorder.clone(), Some(Engine::MpsGraph));
    let memory = buffers(&device);
    assert!(try_vendor(&device, product(&memory, DType::F16, SIDE)));
    let [left, right, out] =
        [0, 1, 2].map(|index| Matrices { matrices: 2, ..matrices(&memory[index], DType::F16, SIDE) });
    let two = VendorCall::Product { left, right, out, transposed: [false, true], factors: [1.0, 0.0] };
    assert!(!try_vendor(&device, two));
    drop(memory);
    settle(device, &recorder);
}

/// Attention over keys that grow by one a token, text of another width in each line: nothing is compiled for a shape that does not come again.
#[test]
fn a_graph_is_compiled_when_its_shape_comes_in_a_second_run() {
    let (device, recorder) = device(None);
    let memory = buffers(&device);
    for (side, again) in [(192, false), (200, false), (208, false), (192, true)] {
        // Three layers of one shape are one run.
        let taken = [0; 3].map(|_| try_vendor(&device, product(&memory, DType::BF16, side)));
        assert_eq!(taken, [again; 3], "{side}");
        device.synchronize().unwrap();
    }
    assert_eq!(recorder.executables(), 1);
    drop(memory);
    settle(device, &recorder);
}

#[test]
fn own_kernels_are_forced_too() {
    let (device, recorder) = device(Some(Engine::Kernels));
    let memory = buffers(&device);
    assert!(!try_vendor(&device, product(&memory, DType::F32, SIDE)));
    drop(memory);
    settle(device, &recorder);
}

#[test]
fn a_graph_is_compiled_once_and_its_memory_outlives_it() {
    let (device, recorder) = device(Some(Engine::MpsGraph));
    let memory = buffers(&device);
    for length in [64, 64, 32] {
        assert!(try_vendor(&device, relu(&memory[0], &memory[1], length)));
    }
    assert!(!try_vendor(&device, relu(&memory[0], &memory[0], 64)), "in place");
    assert_eq!(recorder.executables(), 2);
    // Freed while the commands are on their way: the recorder sees whether a heap goes before its commands have ended.
    drop(memory);
    device.empty_cache();
    device.synchronize().unwrap();
    assert_eq!(recorder.said().iter().filter(|said| matches!(said, Said::Graph { .. })).count(), 3);
    settle(device, &recorder);
}

#[test]
fn an_error_of_an_engine_is_delivered_at_the_next_synchronisation() {
    let (device, recorder) = device(None);
    let memory = buffers(&device);
    let error = Error::CommandBuffer { label: "it".into(), kind: "page fault", message: "out of range".into() };
    recorder.fail_command_buffer(0, error);
    assert!(try_vendor(&device, product(&memory, DType::F32, SIDE)));
    let error = device.synchronize().unwrap_err().to_string();
    assert!(error.contains("page fault") && error.contains("out of range"), "{error}");
    device.synchronize().unwrap();
    drop(memory);
    settle(device, &recorder);
}

#[test]
fn kernels_on_different_buffers_of_one_heap_may_overlap() {
    let (device, recorder) = device(None);
    let pipeline = Pipeline::new(parse(ADD).unwrap()).unwrap();
    let memory: Vec<Buffer> = (0..5).map(|_| device.allocate(4096).unwrap()).collect();
    let add = |x: usize, y: usize, out: usize| {
        let [x, y, out] = [x, y, out].map(|place| memory[place].address() as u64);
        // SAFETY: nothing runs on the recorder.
        unsafe { device.queue().dispatch("add", &pipeline, [1, 1, 1], &[x, y, out, 1000]) }.unwrap();
    };
    let barriers = || recorder.said().iter().filter(|said| **said == Said::Barrier).count();
    add(0, 1, 2);
    add(0, 1, 3);
    assert_eq!(barriers(), 0, "both only read what they share");
    add(2, 3, 4);
    assert_eq!(barriers(), 1, "this one reads what they wrote");
    drop(memory);
    settle(device, &recorder);
}

#[test]
fn a_kernel_with_float64_runs_on_the_host() {
    let (device, recorder) = device(None);
    let mut b = Kernel::new("twice");
    let x = b.parameter("x", Type::pointer(Scalar::F64));
    let value = b.load(x, None, None);
    let sum = b.add(value, value);
    b.store(x, sum, None);
    let pipeline = Pipeline::new(b.finish()).unwrap();
    let memory = device.allocate(8).unwrap();
    let queue = device.queue();
    queue.write_at(memory.address(), &1.25_f64.to_ne_bytes()).unwrap();
    // SAFETY: the kernel reads and writes the buffer's one element.
    unsafe { queue.dispatch("twice", &pipeline, [1, 1, 1], &[memory.address() as u64]) }.unwrap();
    let mut result = [0; 8];
    queue.read_at(&mut result, memory.address()).unwrap();
    assert_eq!(f64::from_ne_bytes(result), 2.5);
    assert!(recorder.pipelines().is_empty());
    drop(memory);
    settle(device, &recorder);
}
