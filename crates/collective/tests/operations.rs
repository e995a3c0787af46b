//! Every operation, element type and reduction, in place and not, over each transport and algorithm, against what it must give.

mod support;

use openmps_collective::{Algorithm, Communicator, ElementType, Options, Reduction, Transfer, TransportKind};
use support::checked::{Call, Case};
use support::sequence::Sequence;
use support::{all, on_ranks, options};

/// Odd counts on both sides of what is sent whole, in parts and in segments.
const COUNTS: [usize; 6] = [0, 1, 3, 129, 4_099, 70_001];

fn everything(communicator: &Communicator, counts: &[usize]) {
    for &count in counts {
        for element in ElementType::ALL {
            for call in Call::ALL {
                let case = Case { root: count, begin: count, ..Case::new(call, count, element) };
                for variant in case.variants().filter(|it| {
                    // Every reduction of many elements is a matter of all_reduce.
                    count < 1_000 || call == Call::AllReduce || !call.reduces() || it.reduction == Reduction::Average
                }) {
                    variant.check(communicator).unwrap();
                }
            }
        }
    }
}

#[test]
fn everything_is_right_over_shared_memory() {
    for ranks in [1, 2, 3, 8] {
        let counts = if ranks > 2 { &COUNTS[..5] } else { &COUNTS[..] };
        all(ranks, &options(TransportKind::Shared), |communicator| everything(communicator, counts));
    }
}

#[test]
fn everything_is_right_over_tcp() {
    for (ranks, sockets) in [(2, 1), (3, 3), (5, 1)] {
        let options = Options { sockets, ..options(TransportKind::Tcp) };
        all(ranks, &options, |communicator| everything(communicator, &COUNTS[..5]));
    }
}

#[test]
fn every_algorithm_is_right() {
    for algorithm in Algorithm::ALL {
        for ranks in [1, 2, 3, 5, 6, 8] {
            let options = Options { algorithm: Some(algorithm), ..options(TransportKind::Automatic) };
            all(ranks, &options, |communicator| {
                let sums = [(0, ElementType::F32), (5, ElementType::BF16), (33_333, ElementType::F16)];
                for (count, element) in
                    sums.into_iter().chain([(1_001, ElementType::Complex64), (1_001, ElementType::I64)])
                {
                    for case in Case::new(Call::AllReduce, count, element).variants() {
                        case.check(communicator).unwrap();
                    }
                }
            });
        }
    }
}

#[test]
fn megabytes_are_right() {
    for transport in [TransportKind::Shared, TransportKind::Tcp] {
        all(2, &options(transport), |communicator| {
            for (call, count, element) in [
                (Call::AllReduce, (3 << 20) + 1, ElementType::F32),
                (Call::ReduceScatter, (1 << 20) + 1, ElementType::BF16),
                (Call::Broadcast, (5 << 20) + 3, ElementType::U8),
                (Call::AllToAll, (1 << 20) + 1, ElementType::I16),
                (Call::Messages, (1 << 20) + 1, ElementType::F64),
            ] {
                Case::new(call, count, element).check(communicator).unwrap();
            }
        });
    }
}

/// Half precision is rounded once: each rank adds what float16 alone would lose.
#[test]
fn half_precision_is_summed_in_single() {
    for algorithm in Algorithm::ALL {
        let options = Options { algorithm: Some(algorithm), ..options(TransportKind::Automatic) };
        let sums = all(8, &options, |communicator| {
            let mut values = [half::f16::from_f32(if communicator.rank() == 0 { 2048.0 } else { 0.75 }); 777];
            communicator.all_reduce(&mut values, Reduction::Sum).unwrap();
            values[776]
        });
        assert_eq!(sums, [half::f16::from_f32(2048.0 + 7.0 * 0.75); 8], "{algorithm:?}");
    }
}

/// Sums whose order matters are the same on every rank and in every run, and in the order of the ranks where that is promised.
#[test]
fn sums_are_equal_bit_for_bit() {
    let value = |rank: usize, index: usize| (((rank * 31 + index * 17) % 1009) as f32 - 500.0) * 1.37e-3;
    for algorithm in Algorithm::ALL {
        let options = Options { algorithm: Some(algorithm), ..options(TransportKind::Automatic) };
        let run = || {
            all(5, &options, |communicator| {
                let mut values: Vec<f32> = (0..20_011).map(|index| value(communicator.rank(), index)).collect();
                communicator.all_reduce(&mut values, Reduction::Sum).unwrap();
                values
            })
        };
        let (first, second) = (run(), run());
        assert!(first.iter().chain(&second).all(|values| *values == first[0]), "{algorithm:?}");
        if matches!(algorithm, Algorithm::Gathered | Algorithm::Direct) {
            let in_order = |index| (1..5).fold(value(0, index), |sum, rank| sum + value(rank, index));
            assert!((0..20_011).all(|index| first[0][index] == in_order(index)), "{algorithm:?}");
        }
    }
}

/// `cargo xtask differential collective` does many more, between processes.
#[test]
fn random_sequences_on_groups_are_right() {
    let first = fastrand::u64(..1 << 32);
    for (ranks, seeds) in [(2, 12), (4, 8), (8, 4)] {
        all(ranks, &options(TransportKind::Automatic), |communicator| {
            for seed in first..first + seeds {
                let sequence = Sequence::random(seed, ranks, 1 << 20, &options(TransportKind::Automatic));
                sequence.run(communicator, [127, 0, 0, 1].into()).unwrap();
            }
        });
    }
}

#[test]
fn a_nan_of_any_rank_is_the_maximum() {
    all(3, &options(TransportKind::Automatic), |communicator| {
        for bearer in 0..3 {
            let mut values = [if communicator.rank() == bearer { f32::NAN } else { 1.0 }, 2.0];
            communicator.all_reduce(&mut values, Reduction::Maximum).unwrap();
            assert!(values[0].is_nan() && values[1] == 2.0);
        }
    });
}

#[test]
fn two_ranks_may_send_to_each_other_at_once() {
    all(2, &options(TransportKind::Automatic), |communicator| {
        let other = 1 - communicator.rank();
        let values = vec![communicator.rank() as i32; 3 << 20];
        let mut into = vec![7; 3 << 20];
        let mut both =
            [Transfer::Send { to: other, values: &values }, Transfer::Receive { from: other, into: &mut into }];
        communicator.exchange(&mut both).unwrap();
        assert!(into.iter().all(|&value| value == other as i32));
        communicator.barrier().unwrap();
    });
}

/// Without a group, too: what comes while a rank sends or waits is kept. Each sends to the next rank what its neighbour has no room for, and
/// receives last what came first.
#[test]
fn all_ranks_may_send_first_and_receive_in_any_order() {
    let value = |rank: usize, index: usize| (rank * 100 + index % 77) as f64;
    for (transport, ranks) in [TransportKind::Shared, TransportKind::Tcp].into_iter().flat_map(|it| [(it, 2), (it, 4)])
    {
        all(ranks, &options(transport), |communicator| {
            let rank = communicator.rank();
            let at = |distance: usize| (rank + distance) % ranks;
            for distance in 1..ranks {
                let values: Vec<f64> = (0..1 << 20).map(|index| value(rank, index)).collect();
                communicator.send(&values, at(distance)).unwrap();
                communicator.send(&[rank as u8; 3], at(distance)).unwrap();
            }
            for distance in 1..ranks {
                let (mut large, mut small) = (vec![0.0; 1 << 20], [9; 3]);
                communicator.receive(&mut large, at(distance)).unwrap();
                communicator.receive(&mut small, at(distance)).unwrap();
                assert!(large.iter().enumerate().all(|(index, &it)| it == value(at(distance), index)));
                assert_eq!(small, [at(distance) as u8; 3]);
            }
        });
    }
}

/// A rank that has done its part and left disturbs no message between others.
#[test]
fn who_has_left_is_not_missed_in_messages_of_others() {
    for transport in [TransportKind::Shared, TransportKind::Tcp] {
        let limit = options(transport);
        let done = on_ranks(3, &limit, |communicator| match communicator.rank() {
            0 => Ok(()),
            rank => {
                std::thread::sleep(std::time::Duration::from_millis(100));
                communicator.send(&vec![1.0_f32; 3 << 20], 3 - rank)?;
                communicator.receive(&mut vec![0.0_f32; 3 << 20], 3 - rank)
            }
        });
        assert_eq!(done, [Ok(Ok(())), Ok(Ok(())), Ok(Ok(()))]);
    }
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    all(2, &options(TransportKind::Automatic), |communicator| {
        assert!(communicator.broadcast(&mut [1], 2).unwrap_err().to_string().contains("rank 2"));
        assert!(communicator.all_gather(&[1, 2], &mut [0; 3]).unwrap_err().to_string().contains("2 parts of 2"));
        assert!(communicator.receive(&mut [1], communicator.rank()).unwrap_err().to_string().contains("no rank sends"));
        let mut byte = 1_u8;
        // SAFETY: one boolean.
        let refused = unsafe {
            communicator.all_reduce_raw(&raw const byte, &raw mut byte, 1, ElementType::Bool, Reduction::Average)
        };
        assert!(refused.unwrap_err().to_string().contains("no average of bool"));
        let mut values = [1, 2];
        communicator.all_reduce(&mut values, Reduction::Sum).unwrap();
        assert_eq!(values, [2, 4]);
    });
}
