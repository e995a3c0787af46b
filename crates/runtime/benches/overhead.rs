//! What the runtime costs around the work: allocation, a native kernel, an event, a trace. Prints nanoseconds a call.

use openmps_runtime::{Device, Event, trace};
use std::hint::black_box;
use std::time::Instant;

/// The best of several rounds, so that another process's turn does not count.
fn measure(name: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 100_000;
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / CALLS as f64
    };
    let best = (0..15).map(|_| round(&mut call)).fold(f64::INFINITY, f64::min);
    println!("{name:<44} {best:8.1} ns");
}

fn main() {
    let device = Device::get(0).expect("the host");
    let queue = device.queue();
    println!("{}", device.properties().name);
    for bytes in [256, 1 << 20, 100 << 20] {
        let name = format!("allocate_address + free_address, {bytes} bytes");
        measure(&name, || {
            let address = device.allocate_address(black_box(bytes)).expect("memory");
            // SAFETY: allocated above.
            unsafe { device.free_address(address).expect("live") };
        });
    }
    measure("allocate + drop a Buffer, 4096 bytes", || drop(black_box(device.allocate(4096).expect("memory"))));
    let mut live: Vec<usize> = (0..10_000).map(|i| device.allocate_address(256 + i % 5000).expect("memory")).collect();
    let mut turn = 0;
    measure("the same among 10000 live ones", || {
        turn = (turn + 7919) % live.len();
        // SAFETY: allocated above, and replaced below.
        unsafe { device.free_address(live[turn]).expect("live") };
        live[turn] = device.allocate_address(256 + turn % 5000).expect("memory");
    });
    measure("resolve among 10000 live ones", || {
        turn = (turn + 7919) % live.len();
        black_box(device.resolve(live[turn] + 100, 8).expect("live"));
    });
    measure("native kernel", || queue.run_native("nothing", || black_box(Ok(()))).expect("done"));
    measure("a plain call, for comparison", || black_box(Ok::<(), ()>(())).expect("done"));
    let address = live[0];
    measure("fill 256 bytes", || {
        // SAFETY: the benchmark's own buffer.
        unsafe { queue.fill(address, 1, 256).expect("done") }
    });
    let event = Event::new();
    measure("record", || queue.record(&event).expect("done"));
    measure("synchronize the queue", || queue.synchronize().expect("done"));
    measure("device.queue()", || drop(black_box(device.queue())));
    measure("command buffer with one call", || {
        let commands = queue.command_buffer();
        commands.run_native("nothing", || Ok(())).expect("encoded");
        commands.commit().expect("committed");
    });
    let path = std::env::temp_dir().join(format!("openmps-overhead-{}.json", std::process::id()));
    trace::start(&path).expect("a trace");
    measure("native kernel, traced", || queue.run_native("nothing", || black_box(Ok(()))).expect("done"));
    std::fs::remove_file(trace::stop().expect("written")).expect("removed");
}
