//! Ranks that are processes with a GPU of NVIDIA's each, over NVIDIA's library: `OPENMPS_DEVICE=cuda gpus RANKS`. Every operation, element type and
//! reduction on the GPUs' streams, against what it must give; what a large all-reduce takes; and a rank that ends, or hangs, when another has begun.

#[path = "../tests/support/numbers.rs"]
mod numbers;

use openmps_collective::{
    Communicator, ElementType, Error, Message, Options, Part, Reduction, Request, TransportKind, UniqueId,
};
use openmps_runtime::{Buffer, Device, Queue};
use std::net::TcpListener;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

type Anything = Box<dyn std::error::Error>;

const COUNTS: [usize; 5] = [0, 1, 3, 4_099, 300_001];
const LARGE: usize = 16 << 20;

fn main() -> Result<ExitCode, Anything> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["rank", address, rank, ranks, fate] => {
            let (rank, ranks) = (rank.parse()?, ranks.parse()?);
            let options =
                Options { transport: TransportKind::Nccl, limit: Duration::from_secs(5), ..Options::from_settings()? };
            let device = Device::get(rank)?;
            let mut communicator =
                Communicator::new(&UniqueId::agreed(address.parse()?, "words"), rank, ranks, &options)?;
            // The context of the handle's GPU is current from now on.
            let queue = device.queue();
            queue.handle().ok_or("the device has no streams: OPENMPS_DEVICE=cuda")?;
            communicator.join_gpus()?;
            let gpu = Gpu { communicator, queue };
            gpu.everything()?;
            gpu.measure()?;
            gpu.lose_a_rank(fate)?;
            Ok(ExitCode::SUCCESS)
        }
        [ranks] => Ok(ExitCode::from(job(ranks, "exits")? + job(ranks, "stops")?)),
        _ => Err("gpus RANKS".into()),
    }
}

/// How many ranks failed. The last one is lost, as its fate has it.
fn job(ranks: &str, fate: &str) -> Result<u8, Anything> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let start = |rank: usize| {
        Command::new(std::env::current_exe()?).args(["rank", &address, &rank.to_string(), ranks, fate]).spawn()
    };
    let mut children = (0..ranks.parse()?).map(start).collect::<std::io::Result<Vec<_>>>()?;
    let (mut failed, mut lost) = (0, children.pop().ok_or("no ranks")?);
    for child in &mut children {
        failed += u8::from(!child.wait()?.success());
    }
    lost.kill()?;
    lost.wait()?;
    println!("a rank {fate}: {failed} of the others failed");
    Ok(failed)
}

struct Gpu {
    communicator: Communicator,
    queue: Queue,
}

impl Gpu {
    fn buffer(&self, bytes: &[u8]) -> Result<Buffer, Anything> {
        let buffer = self.queue.allocate(bytes.len().max(1))?;
        self.queue.finish()?;
        // SAFETY: memory that host and GPU share, of which the GPU uses nothing now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.contents(), bytes.len()) };
        Ok(buffer)
    }

    /// The bytes, when the queue's commands have ended.
    fn bytes(&self, buffer: &Buffer, count: usize) -> Result<Vec<u8>, Anything> {
        self.queue.finish()?;
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts(buffer.contents(), count) }.to_vec())
    }

    /// Puts an operation on the stream, or does it on the CPU; whether the stream has it.
    fn run(&self, request: &Request<'_>) -> Result<bool, Anything> {
        let stream = self.queue.handle().ok_or("a queue without a stream")?;
        // SAFETY: buffers of the queue, with as many elements as the request says, which live until it has finished.
        unsafe {
            if self.communicator.submit(request, stream)?.is_some() {
                return Ok(true);
            }
            self.queue.finish()?;
            self.communicator.perform(request)?;
        }
        Ok(false)
    }

    fn everything(&self) -> Result<(), Anything> {
        let mut on_stream = [0; 2];
        for count in COUNTS {
            for element in ElementType::ALL {
                for reduction in Reduction::ALL.into_iter().filter(|&it| numbers::has(element, it)) {
                    for went in self.reductions(count, element, reduction)? {
                        on_stream[usize::from(went)] += 1;
                    }
                }
                for went in self.movements(count, element)? {
                    on_stream[usize::from(went)] += 1;
                }
            }
        }
        let [by_cpu, by_gpu] = on_stream;
        println!("{:?}: {by_gpu} operations on the stream, {by_cpu} on the CPU, all right", self.communicator);
        Ok(())
    }

    fn reductions(&self, count: usize, element: ElementType, reduction: Reduction) -> Result<[bool; 3], Anything> {
        let (rank, ranks) = (self.communicator.rank(), self.communicator.ranks());
        let right = |name: &str, found: &[u8], begin: usize| {
            let expected = numbers::reduced(ranks, begin, count, element, reduction);
            assert!(numbers::same(found, &expected, element), "rank {rank}: {name} of {count} {element}, {reduction}");
        };
        let bytes = count * element.size();
        let from = self.buffer(&numbers::input(rank, 0, count, element))?;
        let to = self.buffer(&vec![0xEE; bytes])?;
        let (input, output) = (from.contents().cast_const(), to.contents());
        let first = self.run(&Request::AllReduce { input, output, count, element, reduction })?;
        right("all_reduce", &self.bytes(&to, bytes)?, 0);
        let root = ranks - 1;
        let second = self.run(&Request::Reduce { input, output: from.contents(), count, element, reduction, root })?;
        let found = self.bytes(&from, bytes)?;
        if rank == root {
            right("reduce", &found, 0);
        }
        let all = self.buffer(&numbers::input(rank, 0, count * ranks, element))?;
        let input = all.contents().cast_const();
        let third = self.run(&Request::ReduceScatter { input, output, count, element, reduction })?;
        right("reduce_scatter", &self.bytes(&to, bytes)?, rank * count);
        Ok([first, second, third])
    }

    fn movements(&self, count: usize, element: ElementType) -> Result<[bool; 4], Anything> {
        let (rank, ranks) = (self.communicator.rank(), self.communicator.ranks());
        let bytes = count * element.size();
        let input = |rank| numbers::input(rank, 0, count, element);
        let right = |name: &str, found: &[u8], expected: &[u8]| {
            assert_eq!(found, expected, "rank {rank}: {name} of {count} {element}");
        };
        let one = self.buffer(&input(rank))?;
        let all = self.buffer(&vec![0xEE; bytes * ranks])?;
        let every: Vec<u8> = (0..ranks).flat_map(input).collect();
        let (memory, output) = (one.contents(), all.contents());
        let first = self.run(&Request::AllGather { input: memory, output, count, element })?;
        right("all_gather", &self.bytes(&all, bytes * ranks)?, &every);
        // Everyone gets what everyone had: rank r's part of all of them.
        let back = self.buffer(&vec![0xEE; bytes * ranks])?;
        let part = |buffer: &Buffer, rank: usize| Part {
            address: buffer.contents().wrapping_add(rank * bytes),
            count,
            element,
        };
        let [sends, receives] =
            [&all, &back].map(|buffer| (0..ranks).map(|rank| part(buffer, rank)).collect::<Vec<_>>());
        let second = self.run(&Request::AllToAll { sends: &sends, receives: &receives })?;
        let expected: Vec<u8> = (0..ranks).flat_map(|_| input(rank)).collect();
        right("all_to_all", &self.bytes(&back, bytes * ranks)?, &expected);
        let third = self.run(&Request::Broadcast { memory, count, element, root: 1 % ranks })?;
        right("broadcast", &self.bytes(&one, bytes)?, &input(1 % ranks));
        // To the next rank, and to itself.
        let mine = self.buffer(&input(rank))?;
        let messages = [
            Message::Send { to: (rank + 1) % ranks, part: part(&mine, 0) },
            Message::Send { to: rank, part: part(&mine, 0) },
            Message::Receive { from: (rank + ranks - 1) % ranks, part: part(&back, 0) },
            Message::Receive { from: rank, part: part(&back, 1 % ranks) },
        ];
        let fourth = ranks > 1 && self.run(&Request::Messages(&messages))?;
        if ranks > 1 {
            let expected = [input((rank + ranks - 1) % ranks), input(rank)].concat();
            right("messages", &self.bytes(&back, 2 * bytes)?, &expected);
        }
        Ok([first, second, third, fourth])
    }

    fn measure(&self) -> Result<(), Anything> {
        let memory = self.buffer(&vec![0; 4 * LARGE])?;
        let request = sum_of(&memory, LARGE);
        self.measure_each("on the stream", 20, || self.run(&request).map(|_| ()))?;
        self.measure_each("on the CPU", 3, || {
            self.queue.finish()?;
            // SAFETY: as in `run`.
            Ok(unsafe { self.communicator.perform(&request) }?)
        })
    }

    /// The mean time of an operation, after one that is not counted.
    fn measure_each(
        &self,
        way: &str,
        times: u32,
        operation: impl Fn() -> Result<(), Anything>,
    ) -> Result<(), Anything> {
        operation()?;
        self.queue.finish()?;
        let begin = Instant::now();
        (0..times).try_for_each(|_| operation())?;
        self.queue.finish()?;
        println!("all_reduce of 64 MiB {way}: {:.3?}", begin.elapsed() / times);
        Ok(())
    }

    /// The last rank is lost before the operation: the others' streams must come to an end, and their next call must name it.
    fn lose_a_rank(&self, fate: &str) -> Result<(), Anything> {
        self.communicator.barrier()?;
        let lost = self.communicator.ranks() - 1;
        if self.communicator.rank() == lost {
            if fate == "exits" {
                std::process::exit(0);
            }
            Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status()?;
        }
        let memory = self.buffer(&[0; 1 << 20])?;
        let request = sum_of(&memory, 1 << 18);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(30) {
            let ended = self.run(&request).and_then(|_| Ok(self.queue.finish()?));
            let Err(error) = ended else { continue };
            println!("after {:.1?}: {error}", begin.elapsed());
            let rank = error.downcast_ref::<Error>().and_then(Error::rank);
            assert_eq!(rank, Some(lost));
            return Ok(());
        }
        Err("nobody has said that a rank is lost".into())
    }
}

/// The sum over all ranks of `count` float32 elements, in place.
fn sum_of(memory: &Buffer, count: usize) -> Request<'static> {
    let (input, output) = (memory.contents().cast_const(), memory.contents());
    Request::AllReduce { input, output, count, element: ElementType::F32, reduction: Reduction::Sum }
}
