//! Somebody between two ranks who changes what they say, and strangers who say anything: what must not harm either rank.

use openmps_collective::{Communicator, Options, Reduction, TransportKind, UniqueId};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How long ranks of a round wait for anything.
const LIMIT: Duration = Duration::from_millis(500);

/// How many ranks of a round ended without an error, and with one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub fine: usize,
    pub failed: usize,
}

/// One job of two ranks whose conversation is changed at random. Panics where a rank does, or where it takes far too long.
pub fn round(seed: u64) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    proxy.set_nonblocking(true).expect("a socket");
    let real = UniqueId::agreed(free(), "words");
    let changed = UniqueId::agreed(proxy.local_addr().expect("an address"), "words");
    let (begin, done) = (Instant::now(), AtomicBool::new(false));
    let results = std::thread::scope(|scope| {
        let ranks = [(0, &real), (1, &changed)].map(|(rank, id)| scope.spawn(move || work(id, rank)));
        scope.spawn(|| listen(scope, &proxy, real.address(), &mut random, &done));
        let results = ranks.map(|rank| rank.join());
        done.store(true, Ordering::Relaxed);
        results
    });
    assert!(begin.elapsed() < LIMIT * 40, "seed {seed} took {:?}", begin.elapsed());
    let fine = results.into_iter().filter(|it| *it.as_ref().unwrap_or_else(|_| panic!("seed {seed}"))).count();
    Outcome { fine, failed: 2 - fine }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

/// What a rank does; whether it succeeds.
fn work(id: &UniqueId, rank: usize) -> bool {
    let options = Options { transport: TransportKind::Tcp, limit: LIMIT, ..Options::default() };
    let all = || {
        let communicator = Communicator::new(id, rank, 2, &options)?;
        for count in [1, 1_000, 100_000] {
            communicator.all_reduce(&mut vec![1.0_f32; count], Reduction::Sum)?;
            communicator.broadcast(&mut vec![1_u8; count], 1)?;
        }
        communicator.barrier()
    };
    all().is_ok()
}

/// Passes every connection on, with changes, and connects on its own. What passes on ends with the round, so that nothing of a round is left.
fn listen<'scope>(
    scope: &'scope Scope<'scope, '_>,
    proxy: &TcpListener,
    target: SocketAddr,
    random: &mut fastrand::Rng,
    done: &AtomicBool,
) {
    while !done.load(Ordering::Relaxed) {
        if random.u8(..) < 8 {
            let noise: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
            let _ = TcpStream::connect(target).and_then(|mut stream| stream.write_all(&noise));
        }
        let Ok((stream, _)) = proxy.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Ok(onward) = TcpStream::connect(target) else { continue };
        let _ = (stream.set_nonblocking(false), stream.set_nodelay(true), onward.set_nodelay(true));
        // Some connections are left alone, so that what comes after the first words is changed too.
        let harm = if random.bool() { 0 } else { random.u32(1..4) };
        for (from, to) in [(&stream, &onward), (&onward, &stream)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            let mut random = random.fork();
            scope.spawn(move || pass_on(from, to, harm, &mut random));
        }
    }
}

/// Passes bytes on; one time in so many changes, drops, repeats or makes up some, or ends the connection.
fn pass_on(mut from: TcpStream, mut to: TcpStream, harm: u32, random: &mut fastrand::Rng) {
    let mut buffer = vec![0; 64 << 10];
    let _ = from.set_read_timeout(Some(LIMIT * 40));
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..count].to_vec();
        if harm > 0 && random.u32(..1 << (2 * harm)) == 0 {
            let at = random.usize(..count);
            match random.u8(..6) {
                0 => bytes[at] ^= 1 << random.u8(..8),
                1 => bytes.truncate(at),
                2 => bytes.extend_from_within(at..),
                3 => bytes.extend((0..random.usize(..600)).map(|_| random.u8(..))),
                4 => bytes[at..].fill(u8::MAX),
                _ => break,
            }
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
