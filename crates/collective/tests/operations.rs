//! Every operation, element type and reduction, in place and not, over each transport and algorithm, against what it must give.

mod support;

use openmps_collective::{
    Algorithm, Communicator, ElementType, Message, Options, Part, Reduction, Transfer, TransportKind,
};
use support::{all, has, input, options, reduced, same};

/// Odd counts on both sides of what is sent whole, in parts and in segments.
const COUNTS: [usize; 6] = [0, 1, 3, 129, 4_099, 70_001];

fn all_reduce(communicator: &Communicator, count: usize, element: ElementType, reduction: Reduction) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let expected = reduced(ranks, 0, count, element, reduction);
    let from = input(rank, 0, count, element);
    let mut to = vec![0xEE; from.len()];
    // SAFETY: vectors of `count` elements.
    unsafe { communicator.all_reduce_raw(from.as_ptr(), to.as_mut_ptr(), count, element, reduction) }.unwrap();
    assert!(same(&to, &expected, element), "{reduction} of {count} {element} on {ranks} ranks");
    let mut place = from;
    // SAFETY: as above, in place.
    unsafe { communicator.all_reduce_raw(place.as_ptr(), place.as_mut_ptr(), count, element, reduction) }.unwrap();
    assert!(same(&place, &expected, element), "{reduction} of {count} {element} on {ranks} ranks in place");
}

fn reduce(communicator: &Communicator, count: usize, element: ElementType, reduction: Reduction) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let root = (count + reduction as usize) % ranks;
    let from = input(rank, 0, count, element);
    let mut to = vec![0xEE; from.len()];
    // SAFETY: vectors of `count` elements.
    unsafe { communicator.reduce_raw(from.as_ptr(), to.as_mut_ptr(), count, element, reduction, root) }.unwrap();
    let expected = reduced(ranks, 0, count, element, reduction);
    assert!(
        if rank == root { same(&to, &expected, element) } else { to.iter().all(|&byte| byte == 0xEE) },
        "reduce {element}"
    );
    let mut place = from.clone();
    // SAFETY: as above, in place.
    unsafe { communicator.reduce_raw(place.as_ptr(), place.as_mut_ptr(), count, element, reduction, root) }.unwrap();
    assert!(same(&place, if rank == root { &expected } else { &from }, element), "reduce {element} in place");
}

fn reduce_scatter(communicator: &Communicator, count: usize, element: ElementType, reduction: Reduction) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let expected = reduced(ranks, rank * count, count, element, reduction);
    let mut from = input(rank, 0, count * ranks, element);
    let mut to = vec![0xEE; expected.len()];
    // SAFETY: vectors of as many elements as are read and written.
    unsafe { communicator.reduce_scatter_raw(from.as_ptr(), to.as_mut_ptr(), count, element, reduction) }.unwrap();
    assert!(same(&to, &expected, element), "reduce_scatter {reduction} of {count} {element} on {ranks} ranks");
    let own = from[rank * expected.len()..].as_mut_ptr();
    // SAFETY: as above; the result goes to this rank's part.
    unsafe { communicator.reduce_scatter_raw(from.as_ptr(), own, count, element, reduction) }.unwrap();
    assert!(
        same(&from[rank * expected.len()..][..expected.len()], &expected, element),
        "reduce_scatter {element} in place"
    );
}

fn broadcast(communicator: &Communicator, count: usize, element: ElementType) {
    let root = count % communicator.ranks();
    let mut place = input(communicator.rank(), 0, count, element);
    // SAFETY: a vector of `count` elements.
    unsafe { communicator.broadcast_raw(place.as_mut_ptr(), count, element, root) }.unwrap();
    assert!(place == input(root, 0, count, element), "broadcast of {count} {element}");
}

fn all_gather(communicator: &Communicator, count: usize, element: ElementType) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let expected: Vec<u8> = (0..ranks).flat_map(|rank| input(rank, 0, count, element)).collect();
    let from = input(rank, 0, count, element);
    let mut to = vec![0xEE; expected.len()];
    // SAFETY: vectors of as many elements as are read and written.
    unsafe { communicator.all_gather_raw(from.as_ptr(), to.as_mut_ptr(), count, element) }.unwrap();
    assert!(to == expected, "all_gather of {count} {element}");
    to.fill(0xEE);
    let own = rank * from.len()..(rank + 1) * from.len();
    to[own.clone()].copy_from_slice(&from);
    // SAFETY: as above; the input is this rank's part.
    unsafe { communicator.all_gather_raw(to[own].as_ptr(), to.as_mut_ptr(), count, element) }.unwrap();
    assert!(to == expected, "all_gather of {count} {element} in place");
}

/// Rank r sends rank s `(r + 2 s) % 3 * count` elements.
fn all_to_all(communicator: &Communicator, count: usize, element: ElementType) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let counted = |from: usize, to: usize| (from + 2 * to) % 3 * count;
    let part = |bytes: &mut Vec<u8>| Part { address: bytes.as_mut_ptr(), count: bytes.len() / element.size(), element };
    let mut from: Vec<Vec<u8>> = (0..ranks).map(|to| input(rank, to, counted(rank, to), element)).collect();
    let mut to: Vec<Vec<u8>> = (0..ranks).map(|it| vec![0xEE; counted(it, rank) * element.size()]).collect();
    let (sends, receives): (Vec<Part>, Vec<Part>) =
        (from.iter_mut().map(part).collect(), to.iter_mut().map(part).collect());
    // SAFETY: vectors of their own.
    unsafe { communicator.all_to_all_raw(&sends, &receives) }.unwrap();
    for (other, bytes) in to.iter().enumerate() {
        assert!(*bytes == input(other, rank, counted(other, rank), element), "all_to_all of {count} {element}");
    }
}

/// Each rank sends two messages to every rank, itself too, in one group.
fn messages(communicator: &Communicator, count: usize, element: ElementType) {
    let (rank, ranks) = (communicator.rank(), communicator.ranks());
    let part = |bytes: &mut Vec<u8>| Part { address: bytes.as_mut_ptr(), count: bytes.len() / element.size(), element };
    let mut from: Vec<Vec<u8>> = (0..2 * ranks).map(|it| input(rank, it, count + it, element)).collect();
    let mut to: Vec<Vec<u8>> =
        (0..2 * ranks).map(|it| vec![0xEE; (count + it / ranks * ranks + rank) * element.size()]).collect();
    let mut group = Vec::new();
    for (index, bytes) in from.iter_mut().enumerate() {
        group.push(Message::Send { to: index % ranks, part: part(bytes) });
    }
    for (index, bytes) in to.iter_mut().enumerate() {
        group.push(Message::Receive { from: index % ranks, part: part(bytes) });
    }
    // SAFETY: vectors of their own.
    unsafe { communicator.messages_raw(&group) }.unwrap();
    for (index, bytes) in to.iter().enumerate() {
        let begin = index / ranks * ranks + rank;
        assert!(*bytes == input(index % ranks, begin, count + begin, element), "message {index} of {count} {element}");
    }
}

fn everything(communicator: &Communicator, counts: &[usize]) {
    for &count in counts {
        for element in ElementType::ALL {
            for reduction in Reduction::ALL.into_iter().filter(|&reduction| has(element, reduction)) {
                all_reduce(communicator, count, element, reduction);
                if reduction == Reduction::Average || count < 1_000 {
                    reduce(communicator, count, element, reduction);
                    reduce_scatter(communicator, count, element, reduction);
                }
            }
            broadcast(communicator, count, element);
            all_gather(communicator, count, element);
            all_to_all(communicator, count, element);
            messages(communicator, count, element);
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
        for ranks in [2, 3, 5, 6, 8] {
            let options = Options { algorithm: Some(algorithm), ..options(TransportKind::Automatic) };
            all(ranks, &options, |communicator| {
                for (count, element) in [(0, ElementType::F32), (5, ElementType::BF16), (33_333, ElementType::F16)] {
                    all_reduce(communicator, count, element, Reduction::Sum);
                }
                all_reduce(communicator, 1_001, ElementType::Complex64, Reduction::Product);
                all_reduce(communicator, 1_001, ElementType::I64, Reduction::Average);
            });
        }
    }
}

#[test]
fn megabytes_are_right() {
    for transport in [TransportKind::Shared, TransportKind::Tcp] {
        all(2, &options(transport), |communicator| {
            all_reduce(communicator, (3 << 20) + 1, ElementType::F32, Reduction::Sum);
            reduce_scatter(communicator, (1 << 20) + 1, ElementType::BF16, Reduction::Sum);
            broadcast(communicator, (5 << 20) + 3, ElementType::U8);
            all_to_all(communicator, (1 << 20) + 1, ElementType::I16);
            messages(communicator, (1 << 20) + 1, ElementType::F64);
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

/// Without a group, too: what comes while a rank sends is kept.
#[test]
fn two_ranks_may_both_send_first() {
    for transport in [TransportKind::Shared, TransportKind::Tcp] {
        all(2, &options(transport), |communicator| {
            let (rank, other) = (communicator.rank(), 1 - communicator.rank());
            let value = |rank: usize, index: usize| (rank * 100 + index % 77) as f64;
            communicator.send(&(0..3 << 20).map(|index| value(rank, index)).collect::<Vec<_>>(), other).unwrap();
            communicator.send(&[rank as u8; 3], other).unwrap();
            let (mut large, mut small) = (vec![0.0; 3 << 20], [9; 3]);
            communicator.receive(&mut large, other).unwrap();
            communicator.receive(&mut small, other).unwrap();
            assert!(large.iter().enumerate().all(|(index, &it)| it == value(other, index)));
            assert_eq!(small, [other as u8; 3]);
            communicator.barrier().unwrap();
        });
    }
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    all(2, &options(TransportKind::Automatic), |communicator| {
        assert!(communicator.broadcast(&mut [1], 2).unwrap_err().to_string().contains("rank 2"));
        assert!(communicator.all_gather(&[1, 2], &mut [0; 3]).unwrap_err().to_string().contains("2 parts of 2"));
        assert!(communicator.receive(&mut [1], communicator.rank()).unwrap_err().to_string().contains("no rank sends"));
        let mut byte = 1_u8;
        // SAFETY: one truth value.
        let refused = unsafe {
            communicator.all_reduce_raw(&raw const byte, &raw mut byte, 1, ElementType::Bool, Reduction::Average)
        };
        assert!(refused.unwrap_err().to_string().contains("no average of bool"));
        let mut values = [1, 2];
        communicator.all_reduce(&mut values, Reduction::Sum).unwrap();
        assert_eq!(values, [2, 4]);
    });
}
