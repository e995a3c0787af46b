//! The simulator against what can be said with a pencil.

use super::*;

/// Only these things take time.
fn cluster(ranks: usize, latency: f64, bandwidth: f64) -> Cluster {
    let link = Link { latency, bandwidth: Some(bandwidth), message: 0.0, handling: 1e18 };
    Cluster {
        ranks,
        ranks_per_host: 1,
        cores_per_host: 1,
        inside: link,
        between: link,
        fold: 1e18,
        patience: 0.0,
        wake: 0.0,
    }
}

fn seconds(cluster: &Cluster, algorithm: Algorithm, bytes: usize) -> f64 {
    simulate(cluster, algorithm, bytes, None).unwrap().expect("few messages").seconds
}

fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-3, "{found}, expected {expected}");
}

#[test]
fn latency_counts_steps() {
    for (ranks, steps) in [(2, 1.0), (4, 2.0), (64, 6.0), (1024, 10.0)] {
        near(seconds(&cluster(ranks, 1.0, 1e15), Algorithm::Doubling, 4), steps);
    }
    for ranks in [2, 5, 64] {
        let cluster = cluster(ranks, 1.0, 1e15);
        near(seconds(&cluster, Algorithm::Gathered, 4), 1.0);
        near(seconds(&cluster, Algorithm::Direct, 4 * ranks), 2.0);
        near(seconds(&cluster, Algorithm::Ring, 4 * ranks), 2.0 * (ranks as f64 - 1.0));
    }
}

#[test]
fn bandwidth_counts_bytes() {
    let bytes = 1 << 20;
    for ranks in [2, 4, 16] {
        let (cluster, of) = (cluster(ranks, 0.0, 1e6), bytes as f64 / 1e6);
        let others = ranks as f64 - 1.0;
        near(seconds(&cluster, Algorithm::Gathered, bytes), others * of);
        near(seconds(&cluster, Algorithm::Direct, bytes), 2.0 * others / ranks as f64 * of);
        near(seconds(&cluster, Algorithm::Ring, bytes), 2.0 * others / ranks as f64 * of);
        near(seconds(&cluster, Algorithm::Doubling, bytes), f64::from(ranks.ilog2()) * of);
    }
}

/// Every program of every algorithm ends, on any number of ranks: nothing waits for what nobody sends.
#[test]
fn every_program_ends() {
    for algorithm in Algorithm::ALL {
        for ranks in 1..=40 {
            for bytes in [0, 4, 1 << 12, 5 << 20] {
                let outcome =
                    simulate(&Cluster::machine(ranks, 2), algorithm, bytes, None).unwrap().expect("few messages");
                assert!(
                    outcome.failed.is_none() && (ranks == 1 || outcome.seconds > 0.0),
                    "{algorithm:?} {ranks} {bytes}"
                );
            }
        }
    }
}

#[test]
fn ranks_that_share_a_core_take_as_much_longer() {
    let mut few = Cluster { patience: 0.0, wake: 0.0, ..Cluster::machine(8, 8) };
    few.inside.latency = 0.0;
    let all = seconds(&few, Algorithm::Direct, 8 << 20);
    near(seconds(&Cluster { cores_per_host: 1, ..few }, Algorithm::Direct, 8 << 20), 8.0 * all);
}

#[test]
fn who_waits_for_long_must_be_woken() {
    let impatient = Cluster { patience: 0.5, wake: 3.0, ..cluster(2, 1.0, 1e15) };
    near(seconds(&impatient, Algorithm::Gathered, 4), 4.0);
    near(seconds(&Cluster { patience: 2.0, ..impatient }, Algorithm::Gathered, 4), 1.0);
}

#[test]
fn who_fails_is_named_after_as_long_as_it_takes() {
    let cluster = cluster(16, 1e-3, 1e9);
    let run = |fault| simulate(&cluster, Algorithm::Ring, 1 << 20, Some(fault)).unwrap().expect("few messages");
    let killed = run(Fault::Killed { rank: 5, at: 4e-3 });
    assert_eq!((killed.failed, killed.seconds), (Some(5), 5e-3));
    let hung = run(Fault::Hung { rank: 5, at: 4e-3, limit: 10.0 });
    assert!(hung.failed == Some(5) && hung.seconds > 10.0 && hung.seconds < 10.1, "{hung:?}");
    // Who fails after its part is done is nobody's loss.
    assert_eq!(run(Fault::Killed { rank: 5, at: 100.0 }).failed, None);
    let (fine, lossy) = (run(Fault::Loss { share: 0.0, delay: 0.2 }), run(Fault::Loss { share: 0.01, delay: 0.2 }));
    assert!(lossy.seconds > fine.seconds + 0.19 && lossy.failed.is_none(), "{fine:?} {lossy:?}");
}

#[test]
fn a_cluster_that_cannot_be_is_refused_and_one_that_is_too_large_is_left_out() {
    let none = Cluster { fold: 0.0, ..Cluster::machine(2, 2) };
    assert!(simulate(&none, Algorithm::Ring, 4, None).unwrap_err().to_string().contains("cannot be"));
    assert_eq!(simulate(&Cluster::machine(10_000, 2), Algorithm::Gathered, 4, None), Ok(None));
}

/// What the communicator takes never takes three times as long as the fastest, on one machine and on many, with one rank each or several.
#[test]
fn the_algorithm_that_is_taken_suits() {
    for ranks in [2, 3, 4, 8, 16, 32, 64, 128] {
        for together in [1, 2, 8, ranks] {
            if ranks % together != 0 {
                continue;
            }
            let cluster = Cluster { ranks, ..Cluster::machine(together, together) };
            for bytes in [256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
                let plan = Plan::new(&cluster, bytes).unwrap();
                let of = |wanted| plan.seconds.iter().find(|(name, _)| *name == wanted).and_then(|it| it.1).unwrap();
                let slower = of(plan.suited) / of(plan.best().unwrap());
                assert!(slower < 3.0, "{ranks} ranks, {together} a host, {bytes} bytes: {slower:.1} {plan:?}");
            }
        }
    }
}
