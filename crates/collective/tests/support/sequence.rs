//! Random sequences of operations on several groups of ranks, each of which has a communicator of its own. A seed makes the same on all ranks.

use super::checked::{Call, Case, Place};
use super::numbers::has;
use openmps_collective::{
    Algorithm, Communicator, ElementType, Options, Reduction, Result, TransportKind, UNIQUE_ID_BYTES, UniqueId,
};
use std::net::IpAddr;

/// Operations of a sequence.
const STEPS: usize = 12;

/// Some ranks of all, in an order of their own, and how they reach each other.
#[derive(Debug)]
struct Group {
    members: Vec<usize>,
    options: Options,
}

/// What all ranks do.
#[derive(Debug)]
pub struct Sequence {
    seed: u64,
    groups: Vec<Group>,
    /// The group, where it is not everybody, and the operation.
    steps: Vec<(Option<usize>, Case)>,
}

impl Sequence {
    /// The sequence of a seed, whose buffers have no more than so many bytes.
    pub fn random(seed: u64, ranks: usize, most: usize, options: &Options) -> Sequence {
        let mut random = fastrand::Rng::with_seed(seed);
        let groups: Vec<Group> = (0..random.usize(1..=3)).map(|_| group(&mut random, ranks, options)).collect();
        let steps = (0..STEPS).map(|_| {
            let group = random.usize(0..=groups.len()).checked_sub(1);
            let ranks = group.map_or(ranks, |group| groups[group].members.len());
            (group, case(&mut random, ranks, most))
        });
        let steps = steps.collect();
        Sequence { seed, groups, steps }
    }

    /// Does it on this rank of everybody's communicator. The ranks of other hosts reach this one at its address.
    pub fn run(&self, everyone: &Communicator, address: IpAddr) -> Result<()> {
        let mut told = Told { seed: self.seed, step: None };
        let communicators: Vec<Option<Communicator>> =
            self.groups.iter().map(|group| group.meet(everyone, address)).collect::<Result<_>>()?;
        for &(group, case) in &self.steps {
            let communicator = group.map_or(Some(everyone), |group| communicators[group].as_ref());
            if let Some(communicator) = communicator {
                told.step = Some(case);
                case.check(communicator)?;
            }
        }
        told.step = None;
        Ok(())
    }
}

/// Says where a rank is that ends in a panic.
struct Told {
    seed: u64,
    step: Option<Case>,
}

impl Drop for Told {
    fn drop(&mut self) {
        if self.step.is_some() {
            eprintln!("the sequence of seed {} ended in {:?}", self.seed, self.step);
        }
    }
}

impl Group {
    /// Its first member makes the id, which all ranks are told.
    fn meet(&self, everyone: &Communicator, address: IpAddr) -> Result<Option<Communicator>> {
        let mut bytes = [0; UNIQUE_ID_BYTES];
        if self.members[0] == everyone.rank() {
            bytes = UniqueId::listen(address)?.to_bytes();
        }
        everyone.broadcast(&mut bytes, self.members[0])?;
        let Some(rank) = self.members.iter().position(|&member| member == everyone.rank()) else { return Ok(None) };
        Communicator::new(&UniqueId::from_bytes(&bytes)?, rank, self.members.len(), &self.options).map(Some)
    }
}

fn group(random: &mut fastrand::Rng, ranks: usize, options: &Options) -> Group {
    let mut members: Vec<usize> = (0..ranks).collect();
    random.shuffle(&mut members);
    members.truncate(random.usize(1..=ranks));
    let mut options = options.clone();
    if options.transport == TransportKind::Automatic && random.bool() {
        options.transport = TransportKind::Tcp;
    }
    options.sockets = random.usize(1..=3);
    options.algorithm = if random.bool() { random.choice(Algorithm::ALL) } else { None };
    Group { members, options }
}

/// A size of any magnitude, most of them odd.
fn case(random: &mut fastrand::Rng, ranks: usize, most: usize) -> Case {
    let call = random.choice(Call::ALL).expect("there are some");
    let element = random.choice(ElementType::ALL).expect("there are some");
    let reduction = Reduction::ALL.into_iter().filter(|&reduction| has(element, reduction));
    let magnitude = random.u32(..=most.ilog2());
    let bytes = random.usize(..=most >> magnitude);
    Case {
        count: call.count(bytes, element, ranks),
        reduction: random.choice(reduction.collect::<Vec<_>>()).expect("every type has a sum"),
        root: random.usize(..ranks),
        place: if call.has_places() && random.bool() { Place::OverInput } else { Place::Apart },
        begin: random.usize(..1 << 20),
        ..Case::new(call, 0, element)
    }
}
