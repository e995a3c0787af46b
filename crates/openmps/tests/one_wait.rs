//! Objects in a command buffer, over the recorder of a Metal device: the CPU waits once for all of them, and whose error is whose.

use openmps::runtime::metal::recorder::Said;
use openmps::runtime::metal::{Error, Recorder};
use openmps::{
    CommandBuffer, CommandBufferStatus, DataType, Device, Matrix, MatrixDescriptor, MatrixMultiplication, MatrixSoftMax,
};

struct Bench {
    recorder: Recorder,
    device: Device,
    side: usize,
    matrices: [Matrix; 3],
}

impl Bench {
    /// With matrices of `side` rows and columns.
    fn new(side: usize) -> Bench {
        let recorder = Recorder::default();
        let device = Device::over(0, recorder.clone());
        let matrices = [0; 3].map(|_| {
            let descriptor = MatrixDescriptor::dense(side, side, DataType::F32).expect("a layout");
            Matrix::zeros(&device, &descriptor).expect("a matrix")
        });
        Bench { recorder, device, side, matrices }
    }

    fn multiply(&self, commands: &CommandBuffer) {
        let side = self.side;
        let kernel = MatrixMultiplication::builder(side, side, side).build(&self.device).expect("a kernel");
        let [left, right, result] = &self.matrices;
        kernel.encode(commands, left, right, result).expect("encoded");
        MatrixSoftMax::new(&self.device).encode(commands, result, left).expect("encoded");
    }

    /// Lets the command buffer of Metal's that comes next fail.
    fn fail_next(&self) {
        let made = self.recorder.said().iter().filter(|said| matches!(said, Said::CommandBuffer(_))).count();
        let (label, message) = ("it".to_owned(), "too long".to_owned());
        self.recorder.fail_command_buffer(made as u64, Error::CommandBuffer { label, kind: "timeout", message });
    }
}

#[test]
fn two_hundred_products_in_one_command_buffer_wait_once() {
    // Own kernels multiply the first, MPS the others.
    for side in [8, 64, 256] {
        let bench = Bench::new(side);
        let commands = bench.device.queue().command_buffer();
        (0..200).for_each(|_| bench.multiply(&commands));
        let before = bench.recorder.said().len();
        commands.commit().expect("committed");
        commands.wait_until_completed().expect("fine");
        let said = &bench.recorder.said()[before..];
        let is_work = |said: &&Said| matches!(said, Said::Dispatch { .. } | Said::Matrix(_));
        let work = said.iter().filter(is_work).count();
        assert!(work >= 400, "{side}: {work}");
        assert_eq!(side > 8, said.iter().any(|said| matches!(said, Said::Matrix(_))), "{side}");
        // The recorder ends command buffers only when somebody waits.
        let first_wait = said.iter().position(|said| matches!(said, Said::Ended(_))).expect("they have ended");
        assert_eq!(
            said[first_wait..].iter().filter(is_work).count(),
            0,
            "{side}: somebody waited before the last product"
        );
        assert_eq!(bench.recorder.violations(), Vec::<String>::new(), "{side}");
    }
}

#[test]
fn a_command_buffer_that_failed_leaves_the_later_ones_alone() {
    let bench = Bench::new(8);
    let queue = bench.device.queue();
    let memory = bench.device.runtime().allocate(64).expect("memory");
    let run = || {
        let commands = queue.command_buffer();
        bench.multiply(&commands);
        commands.commit().expect("committed");
        commands.wait_until_completed()
    };
    bench.fail_next();
    assert!(run().expect_err("its own").to_string().contains("timeout"));
    run().expect("not its own");
    assert!(queue.synchronize().expect_err("kept for this").to_string().contains("timeout"));
    // Commands that lock nothing, and that nobody waits for before the end.
    bench.fail_next();
    let commands = queue.command_buffer();
    // SAFETY: nobody else has the memory.
    unsafe { commands.runtime().fill(memory.address(), 0, 64) }.expect("encoded");
    commands.commit().expect("committed");
    let error = commands.wait_until_completed().expect_err("its own");
    assert!(error.to_string().contains("timeout"), "{error}");
    assert_eq!(commands.status(), CommandBufferStatus::Error);
    run().expect("not its own");
    assert!(queue.synchronize().expect_err("kept for this, too").to_string().contains("timeout"));
    // What failed outside of every command buffer is nobody's, and told by the synchronisation only.
    bench.fail_next();
    // SAFETY: nobody else has the memory.
    unsafe { queue.runtime().fill(memory.address(), 0, 64) }.expect("encoded");
    run().expect("not its own either");
    assert!(queue.synchronize().expect_err("of the fill").to_string().contains("timeout"));
    queue.synchronize().expect("told once");
}
