//! What the other ranks hear when one dies, hangs, does something else, or is none of the job.

mod support;

use openmps_collective::{Communicator, ElementType, Error, Options, Reduction, Request, TransportKind, UniqueId};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{all, on_ranks};

const LIMIT: Duration = Duration::from_secs(2);

fn impatient(transport: TransportKind) -> Options {
    Options { transport, limit: LIMIT, ..Options::default() }
}

/// An address that is free now, and the words of a job.
fn agreed() -> (SocketAddr, UniqueId) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    (address, UniqueId::agreed(address, "the words of this job"))
}

/// This program again, as a rank of its own process: see `rank_of_the_parent`.
fn process(address: SocketAddr, rank: usize, ranks: usize, transport: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "rank_of_the_parent", "--ignored", "--nocapture"]).stdout(Stdio::null());
    command.env("RANK_OF_TEST", format!("{address} {rank} {ranks} {transport}")).spawn().unwrap()
}

#[test]
#[ignore = "the child of the other tests"]
fn rank_of_the_parent() {
    let words = std::env::var("RANK_OF_TEST").unwrap_or_default();
    let [address, rank, ranks, transport] = &words.split(' ').collect::<Vec<_>>()[..] else { return };
    let id = UniqueId::agreed(address.parse().unwrap(), "the words of this job");
    let options = Options { transport: TransportKind::from_name(transport).unwrap(), ..Options::default() };
    let communicator = Communicator::new(&id, rank.parse().unwrap(), ranks.parse().unwrap(), &options).unwrap();
    loop {
        communicator.all_reduce(&mut vec![1_f32; 100_000], Reduction::Sum).unwrap();
    }
}

/// The error of each of the first ranks, which are threads here, when the last, a process, gets a signal.
fn after_signal(signal: &str, transport: TransportKind, name: &str, limit: Duration) -> Vec<(Error, Duration)> {
    let (address, id) = agreed();
    let mut child = process(address, 2, 3, name);
    let pid = child.id().to_string();
    let errors = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (id, pid) = (&id, &pid);
                scope.spawn(move || {
                    let options = Options { limit, ..impatient(transport) };
                    let communicator = Communicator::new(id, number, 3, &options).unwrap();
                    for round in 0.. {
                        if number == 0 && round == 20 {
                            Command::new("kill").args([signal, pid]).status().unwrap();
                        }
                        let begin = Instant::now();
                        let mut values = vec![1_f32; 100_000];
                        if let Err(error) = communicator.all_reduce(&mut values, Reduction::Sum) {
                            // Again, and at once.
                            assert_eq!(communicator.barrier(), Err(error.clone()));
                            return (error, begin.elapsed());
                        }
                    }
                    unreachable!()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    errors
}

#[test]
fn a_killed_rank_is_named_at_once() {
    for (transport, name) in [(TransportKind::Shared, "shared"), (TransportKind::Tcp, "tcp")] {
        for (error, took) in after_signal("-KILL", transport, name, Duration::from_secs(30)) {
            assert_eq!(error.rank(), Some(2), "{error}");
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }
}

#[test]
fn a_stopped_rank_is_named_after_the_limit() {
    for (error, took) in after_signal("-STOP", TransportKind::Automatic, "auto", Duration::from_secs(5)) {
        assert_eq!(error.rank(), Some(2), "{error}");
        assert!(error.to_string().contains("silent"), "{error}");
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(15), "{took:?}");
    }
}

/// Rank 2 does not come to the operation, so rank 0 and 1 wait; both name it, though the ring has each wait for its neighbour.
#[test]
fn a_rank_that_does_not_join_is_named_by_all() {
    for transport in [TransportKind::Shared, TransportKind::Tcp] {
        let options = Options { algorithm: Some(openmps_collective::Algorithm::Ring), ..impatient(transport) };
        let errors = all(4, &options, |communicator| {
            communicator.barrier().unwrap();
            if communicator.rank() == 2 {
                std::thread::sleep(LIMIT * 2);
                return None;
            }
            Some(communicator.all_reduce(&mut vec![1.0_f32; 1_000_000], Reduction::Sum).unwrap_err())
        });
        for error in errors.into_iter().flatten() {
            assert_eq!(error.rank(), Some(2), "{error}");
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named() {
    let options = impatient(TransportKind::Automatic);
    let results = all(3, &options, |communicator| {
        (communicator.rank() < 2).then(|| communicator.all_reduce(&mut [1], Reduction::Sum).unwrap_err())
    });
    for error in results.into_iter().flatten() {
        assert_eq!(error.rank(), Some(2), "{error}");
    }
}

#[test]
fn a_rank_that_does_something_else_is_named() {
    type Call = fn(&Communicator) -> Result<(), Error>;
    let calls: [(Call, &str); 5] = [
        (|it| it.all_reduce(&mut [1.0_f32; 5], Reduction::Sum), "all_reduce of 5 float32, sum (operation 2)"),
        (|it| it.all_reduce(&mut [1.0_f64; 4], Reduction::Sum), "all_reduce of 4 float64, sum (operation 2)"),
        (|it| it.all_reduce(&mut [1.0_f32; 4], Reduction::Maximum), "all_reduce of 4 float32, maximum (operation 2)"),
        (|it| it.broadcast(&mut [1.0_f32; 4], 1), "broadcast of 4 float32, root 1 (operation 2)"),
        (|it| it.send(&[1.0_f32; 4], 0), "send and receive of 4 float32"),
    ];
    for (call, described) in calls {
        let errors = all(2, &impatient(TransportKind::Automatic), |communicator| {
            communicator.barrier().unwrap();
            if communicator.rank() == 1 {
                // Who only sends may be done with it; it stays until the other has seen it.
                let result = call(communicator);
                std::thread::sleep(Duration::from_millis(300));
                return result.err();
            }
            communicator.all_reduce(&mut [1.0_f32; 4], Reduction::Sum).err()
        });
        // Either of the two sees it first, and says both sides to the other.
        let error = errors[0].clone().expect("the two differ");
        let text = error.to_string();
        assert!(text.contains(described) && error.rank() == Some(1), "{text}, expected {described}");
        assert!(text.contains("all_reduce of 4 float32, sum (operation 2)"), "{text}");
    }
}

#[test]
fn who_is_missing_at_the_start_is_named() {
    let (_, id) = agreed();
    let options = impatient(TransportKind::Automatic);
    let errors: Vec<Error> = std::thread::scope(|scope| {
        let threads: Vec<_> = [0, 1]
            .map(|rank| {
                scope.spawn({
                    let (id, options) = (&id, &options);
                    move || Communicator::new(id, rank, 3, options).unwrap_err()
                })
            })
            .into();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors {
        assert!(error.rank() == Some(2) && error.to_string().contains("[2]"), "{error}");
    }
}

/// A rank of a job with another number of ranks: it and all others hear of it.
#[test]
fn another_number_of_ranks_is_refused() {
    let (_, id) = agreed();
    let errors: Vec<Error> = std::thread::scope(|scope| {
        let id = &id;
        let rank = |rank, ranks| {
            scope.spawn(move || Communicator::new(id, rank, ranks, &impatient(TransportKind::Automatic)).unwrap_err())
        };
        let threads = [rank(0, 3), rank(1, 3), rank(2, 4)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(errors[..2].iter().all(|error| error.rank() == Some(2)), "{errors:?}");
    assert!(errors.iter().all(|error| error.to_string().contains("ranks")), "{errors:?}");
}

#[test]
fn another_secret_is_refused_on_both_sides() {
    let (address, id) = agreed();
    let other = UniqueId::agreed(address, "other words");
    std::thread::scope(|scope| {
        let root = scope.spawn(|| Communicator::new(&id, 0, 2, &impatient(TransportKind::Automatic)).unwrap_err());
        let stranger = Communicator::new(&other, 1, 2, &impatient(TransportKind::Automatic)).unwrap_err();
        assert!(matches!(stranger, Error::Stranger { .. }), "{stranger}");
        // The rank itself is what is missing: a stranger counts for nothing.
        assert!(matches!(root.join().unwrap(), Error::Missing { ranks, .. } if ranks == [1]));
    });
}

/// Ranks come together though strangers connect, say nothing, or anything, and do so again and again.
#[test]
fn strangers_hold_up_nobody() {
    let (address, id) = agreed();
    let mut random = fastrand::Rng::with_seed(11);
    std::thread::scope(|scope| {
        let options = Options::default();
        let root = scope.spawn(|| Communicator::new(&id, 0, 2, &Options::default()).map(|it| it.barrier()));
        let mut silent = Vec::new();
        for round in 0..400 {
            let Ok(mut stream) = TcpStream::connect(address) else { continue };
            if round % 4 == 0 {
                silent.push(stream);
                continue;
            }
            let bytes: Vec<u8> = (0..random.usize(..400)).map(|_| random.u8(..)).collect();
            let begin: &[u8] = if round % 2 == 0 { b"openmps\n" } else { b"" };
            let _ = stream.write_all(begin).and_then(|()| stream.write_all(&bytes));
            if round % 3 == 0 {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(5)));
                let _ = stream.read(&mut [0; 100]);
            }
        }
        let other = Communicator::new(&id, 1, 2, &options).unwrap();
        other.barrier().unwrap();
        root.join().unwrap().unwrap().unwrap();
    });
}

#[test]
fn a_rank_whose_root_is_not_there_yet_waits() {
    let (_, id) = agreed();
    std::thread::scope(|scope| {
        let early = scope.spawn(|| Communicator::new(&id, 1, 2, &Options::default()).unwrap().barrier());
        std::thread::sleep(Duration::from_millis(300));
        Communicator::new(&id, 0, 2, &Options::default()).unwrap().barrier().unwrap();
        early.join().unwrap().unwrap();
    });
}

#[test]
fn transports_that_are_not_built_in_are_refused() {
    for name in ["mpi", "jaccl"] {
        let error = TransportKind::from_name(name).unwrap_err();
        assert!(matches!(error, Error::Transport { name: refused, .. } if refused == name), "{error}");
    }
}

/// Threads have no GPU each, wherever this runs: without the library both ranks say so, with it that it cannot begin.
#[test]
fn gpus_that_cannot_be_joined_are_an_error_on_every_rank() {
    let (_, id) = agreed();
    std::thread::scope(|scope| {
        let id = &id;
        let threads = [0, 1].map(|rank| {
            scope.spawn(move || {
                let mut communicator = Communicator::new(id, rank, 2, &impatient(TransportKind::Nccl)).unwrap();
                let mut values = [1.0_f32];
                let memory = values.as_mut_ptr().cast();
                let request = Request::Broadcast { memory, count: 1, element: ElementType::F32, root: 0 };
                // SAFETY: before GPUs are joined no stream is looked at.
                assert_eq!(unsafe { communicator.submit(&request, 0) }, Ok(None));
                let error = communicator.join_gpus().unwrap_err();
                assert!(matches!(error, Error::Transport { name: "nccl", .. }), "{error}");
                assert!(!communicator.has_gpus());
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The ranks of one communicator may be told different transports: the pair then takes what both have.
#[test]
fn who_wants_no_shared_memory_gets_tcp() {
    let (_, id) = agreed();
    std::thread::scope(|scope| {
        let (id, kinds) = (&id, [TransportKind::Automatic, TransportKind::Tcp]);
        let threads = [0, 1].map(|rank| {
            scope.spawn(move || {
                let communicator = Communicator::new(id, rank, 2, &impatient(kinds[rank])).unwrap();
                communicator.barrier().unwrap();
                communicator.transports()
            })
        });
        for thread in threads {
            assert_eq!(thread.join().unwrap(), ["tcp"]);
        }
    });
    assert_eq!(
        on_ranks(2, &impatient(TransportKind::Automatic), |it| it.transports()),
        [Ok(vec!["shared memory"]), Ok(vec!["shared memory"])]
    );
}
