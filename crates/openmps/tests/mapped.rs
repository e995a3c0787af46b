//! Mapped slices against commands, other threads and freeing; command buffers as futures.

use openmps::{Access, Buffer, CommandBuffer, DataType, Device, Error, Matrix, MatrixDescriptor, MatrixSoftMax};
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

fn device() -> Device {
    Device::get(0).expect("a device")
}

fn softmax(input: &Matrix, result: &Matrix) -> CommandBuffer {
    let command_buffer = device().queue().command_buffer();
    MatrixSoftMax::new(&device()).encode(&command_buffer, input, result).expect("a legal call");
    command_buffer
}

fn matrices() -> (Matrix, Matrix) {
    let input = Matrix::from_slice(&device(), 2, 2, &[1.0f32; 4]).expect("a matrix");
    let result = Matrix::zeros(&device(), input.descriptor()).expect("a matrix");
    (input, result)
}

#[test]
fn readers_go_together_and_a_writer_goes_alone() {
    let buffer = Buffer::from_slice(&device(), &[1i32, 2, 3]).expect("a buffer");
    let (one, two) = (buffer.map::<i32>(..2).expect("free"), buffer.map::<u8>(4..5).expect("read together"));
    assert_eq!((&one[..], &two[..]), (&[1, 2][..], &[2][..]));
    assert_eq!(buffer.read::<i32>(0, 3).expect("readers go together"), [1, 2, 3]);
    assert!(matches!(buffer.map_mut::<i32>(..), Err(Error::Mapped { operation: "map_mut", .. })));
    drop(one);
    assert!(matches!(buffer.write(0, &[1u8]), Err(Error::Mapped { operation: "write", .. })), "one is left");
    drop(two);
    let mut all = buffer.map_mut::<i32>(..).expect("free");
    all[1] = 7;
    assert!(matches!(buffer.read::<i32>(0, 1), Err(Error::Mapped { .. })));
    assert!(matches!(buffer.map::<i32>(0..0), Err(Error::Mapped { .. })));
    drop(all);
    assert_eq!(buffer.read::<i32>(0, 3).expect("free"), [1, 7, 3]);
}

#[test]
fn a_command_of_this_thread_is_refused_and_one_of_another_waits() {
    let (input, result) = matrices();
    let mapped = result.data().map::<f32>(..).expect("free");
    let encoded = device().queue().command_buffer();
    let refused = MatrixSoftMax::new(&device()).encode(&encoded, &input, &result);
    assert!(matches!(refused, Err(Error::Mapped { operation: "MatrixSoftMax", .. })), "it would write what is mapped");
    drop(mapped);
    // Encoded before it is mapped: then it is the command buffer's error.
    let command_buffer = softmax(&input, &result);
    let mapped = result.data().map::<f32>(..).expect("free");
    command_buffer.commit().expect("committed");
    assert!(command_buffer.wait_until_completed().is_err_and(|error| error.to_string().contains("mapped")));
    let _ = device().queue().synchronize();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let command_buffer = softmax(&input, &result);
            command_buffer.commit().expect("committed");
            command_buffer.wait_until_completed().expect("it waited");
            done.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!done.load(Ordering::SeqCst), "the slice is still held");
        assert_eq!(mapped[..], [0.0; 4], "and nobody writes it");
        drop(mapped);
    });
    assert_eq!(result.read::<f32>().expect("free"), [0.5; 4]);
}

/// Says when it goes.
struct Owner(Vec<f32>, mpsc::Sender<()>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.1.send(()).expect("somebody listens");
    }
}

#[test]
fn what_is_freed_while_it_is_mapped_goes_with_the_slice() {
    let (sender, gone) = mpsc::channel();
    let owner = Owner(vec![5.0; 4], sender);
    let address = owner.0.as_ptr() as usize;
    // SAFETY: the vector is the owner's.
    let buffer =
        unsafe { Buffer::no_copy(&device(), address, 16, Access::Write, owner) }.expect("memory of the process");
    let mapped = buffer.map::<f32>(..).expect("free");
    buffer.free();
    assert!(buffer.is_freed() && gone.try_recv().is_err(), "the slice keeps it");
    assert!(matches!(buffer.map::<f32>(..), Err(Error::Freed { .. })));
    assert!(matches!(
        Matrix::new(&buffer, &MatrixDescriptor::dense(2, 2, DataType::F32).expect("sizes"))
            .and_then(|matrix| matrix.read::<f32>()),
        Err(Error::Freed { .. })
    ));
    assert_eq!(mapped[..], [5.0; 4]);
    drop(mapped);
    gone.try_recv().expect("it went with the slice");
}

#[test]
fn elements_begin_where_their_type_may() {
    let values = vec![0u8; 64];
    let odd = (values.as_ptr() as usize).next_multiple_of(8) + 2;
    // SAFETY: the vector is the owner.
    let odd = unsafe { Buffer::no_copy(&device(), odd, 32, Access::Write, values) }.expect("memory of the process");
    assert!(matches!(odd.read::<f32>(1, 1), Err(Error::Offset { offset: 4, size: 4 })));
    assert!(matches!(odd.write(0, &[1i64]), Err(Error::Offset { offset: 0, size: 8 })));
    assert!(matches!(odd.map::<f32>(..).map(|_| ()), Err(Error::Offset { .. })));
    assert!(odd.write(1, &[7i16]).is_ok() && odd.read::<i16>(0, 2).is_ok_and(|read| read == [0, 7]));
}

#[test]
fn what_is_lent_ends_with_the_call() {
    let values = [1.0f32, 2.0, 3.0, 4.0];
    let address = values.as_ptr() as usize;
    let mut kept = None;
    let work = |buffer: &Buffer| {
        assert!(matches!(buffer.map::<f32>(..), Err(Error::Lent { .. })));
        kept = Some(buffer.clone());
        buffer.read::<f32>(1, 2)
    };
    // SAFETY: the values outlive the call.
    let read = unsafe { Buffer::lend(&device(), address, 16, Access::Read, work) }.expect("memory of the process");
    assert_eq!(read.expect("readable"), [2.0, 3.0]);
    assert!(matches!(kept.expect("it was kept").read::<f32>(0, 1), Err(Error::Freed { .. })));
    // SAFETY: as above.
    let panicked = std::panic::catch_unwind(|| unsafe {
        Buffer::lend(&device(), address, 16, Access::Read, |_| panic!("on purpose"))
    });
    assert!(panicked.is_err());
}

#[test]
fn freeing_waits_for_slices_of_other_threads() {
    let buffer = Buffer::from_slice(&device(), &[1u8; 16]).expect("a buffer");
    let (mapped, goes_on) = mpsc::channel();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let slice = buffer.map::<u8>(..).expect("free");
            mapped.send(()).expect("somebody listens");
            thread::sleep(Duration::from_millis(50));
            assert_eq!(slice[..], [1; 16]);
            done.store(true, Ordering::SeqCst);
        });
        goes_on.recv().expect("it is mapped");
        buffer.free();
        assert!(done.load(Ordering::SeqCst), "the slice was gone first");
    });
}

#[test]
fn slices_and_commands_of_many_threads_never_overlap() {
    let buffer = Buffer::from_slice(&device(), &[0u64; 64]).expect("a buffer");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500 {
                    if round % 3 == 0 {
                        let all = buffer.map::<u64>(..).expect("free");
                        assert!(all.iter().all(|x| *x == all[0]), "a reader saw a writer's half");
                    } else {
                        buffer.map_mut::<u64>(..).expect("free").iter_mut().for_each(|x| *x += 1);
                    }
                }
            });
        }
    });
    assert_eq!(buffer.read::<u64>(0, 64).expect("free"), [4 * 333; 64]);
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), Arc::new(Parked(thread::current())).into());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn a_command_buffer_is_a_future() {
    let (input, result) = matrices();
    let command_buffer = softmax(&input, &result);
    command_buffer.commit().expect("committed");
    block_on(async { command_buffer.await }).expect("it ran");
    assert_eq!(result.read::<f32>().expect("free"), [0.5; 4]);
    let never = device().queue().command_buffer();
    assert!(block_on(never.into_future()).is_err(), "nobody committed it");
    input.data().free();
    let (other, _) = matrices();
    let command_buffer = softmax(&other, &result);
    other.data().free();
    command_buffer.commit().expect("committed");
    assert!(block_on(command_buffer.into_future()).is_err_and(|error| error.to_string().contains("freed")));
    let _ = device().queue().synchronize();
}

#[test]
fn a_future_waits_for_buffers_that_come_before() {
    let queue = device().new_queue();
    let (first, second) = (queue.command_buffer(), queue.command_buffer());
    first.enqueue().expect("a place");
    second.commit().expect("committed");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            first.commit().expect("committed");
        });
        block_on(second.into_future()).expect("it ran after the first");
    });
}
