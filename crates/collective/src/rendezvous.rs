//! How the ranks of a communicator come together: everyone to rank 0, which tells all where all are, then every rank to those below it.
//!
//! A pair of ranks has several connections, called lanes: lane 0 carries words about the ranks themselves (`watch`), the others elements.
//! Strangers may connect to a listening port and say what they like, or nothing: they are dropped, and hold up nobody.

use crate::algorithm::Member;
use crate::error::{Error, Result};
use crate::handshake::{Claim, GREETING, Listening, Next, Nonce, PROOF, Side, VERSION, opened, opening, prove, verify};
use crate::identity::{UniqueId, address_bytes, address_from};
use crate::watch::wait;
use rustix::event::{PollFd, PollFlags};
use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Lane of the words about ranks.
pub(crate) const CONTROL: usize = 0;
/// Connections that have not proven anything yet; the oldest gives way to one more.
const MOST_PENDING: usize = 128;
/// How long a stranger may take to prove who it is.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much longer the others wait for rank 0's word than rank 0 waits for them.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of a text that says what failed.
const MOST_TEXT: usize = 1024;

/// The connections to another rank.
pub(crate) struct Pair {
    pub control: TcpStream,
    pub data: Vec<TcpStream>,
}

/// What all ranks of a communicator are told alike.
pub(crate) struct Meeting<'a> {
    pub id: &'a UniqueId,
    pub member: Member,
    /// Lanes of elements for each pair.
    pub sockets: usize,
    pub patience: Duration,
    /// Always [`VERSION`], but in tests.
    pub version: u32,
}

impl<'a> Meeting<'a> {
    /// As this version of openmps meets.
    pub fn new(id: &'a UniqueId, member: Member, sockets: usize, patience: Duration) -> Meeting<'a> {
        Meeting { id, member, sockets, patience, version: VERSION }
    }

    /// The connections to each other rank; none to itself.
    pub fn meet(&self) -> Result<Vec<Option<Pair>>> {
        let mut lanes = if self.member.rank == 0 { self.as_root()? } else { self.as_other()? };
        let mut pair = |rank| {
            let control = lanes.remove(&(rank, CONTROL))?;
            let data = (1..=self.sockets).map(|lane| lanes.remove(&(rank, lane))).collect::<Option<_>>()?;
            Some(Pair { control, data })
        };
        Ok((0..self.member.ranks).map(&mut pair).collect())
    }

    fn claim(&self, lane: usize, listens: Option<SocketAddr>) -> Claim {
        let Member { rank, ranks } = self.member;
        Claim { version: self.version, rank, ranks, lane, listens }
    }

    fn as_root(&self) -> Result<Lanes> {
        let listener = self.id.listener()?;
        let deadline = Instant::now() + self.patience;
        let mut acceptor = Acceptor::new(self, &listener)?;
        let others: Vec<usize> = (1..self.member.ranks).collect();
        let mut came = acceptor.accept(others.iter().map(|&rank| (rank, CONTROL)), deadline);
        let mut roster = vec![0; 24 * self.member.ranks];
        for ((rank, _), (_, claim)) in &came.lanes {
            if let Some(address) = claim.listens {
                roster[24 * rank..24 * rank + 24].copy_from_slice(&address_bytes(address));
            }
        }
        let word = came.problem.as_ref().map_or(Word::Roster(&roster), Word::Failure).encode();
        for (control, _) in came.lanes.values_mut() {
            // Who does not take it is missed soon enough.
            let _ = control.set_write_timeout(Some(PATIENCE)).and_then(|()| control.write_all(&word));
        }
        let mut lanes = came.into_lanes()?;
        let expected = others.iter().flat_map(|&rank| (1..=self.sockets).map(move |lane| (rank, lane)));
        lanes.extend(acceptor.accept(expected, deadline + GRACE).into_lanes()?);
        Ok(lanes)
    }

    fn as_other(&self) -> Result<Lanes> {
        let deadline = Instant::now() + self.patience;
        let root = self.id.address();
        let stream = connect(root, 0, Waits::UntilItListens, deadline)?;
        let own = stream.local_addr().map_err(Error::system("the address of a connection"))?;
        let listener = TcpListener::bind((own.ip(), 0)).map_err(Error::system("a port to listen to"))?;
        let listens = listener.local_addr().map_err(Error::system("the address of a port"))?;
        let mut control = self.introduce(stream, root, 0, CONTROL, Some(listens), deadline)?;
        let roster = read_word(&mut control, self.member.ranks, deadline + GRACE)?;
        let mut lanes = Lanes::from([((0, CONTROL), control)]);
        for rank in 0..self.member.rank {
            let address = if rank == 0 { root } else { roster[rank] };
            let first = if rank == 0 { 1 } else { CONTROL };
            for lane in first..=self.sockets {
                let stream = connect(address, rank, Waits::ItListens, deadline)?;
                lanes.insert((rank, lane), self.introduce(stream, address, rank, lane, None, deadline)?);
            }
        }
        let above = self.member.rank + 1..self.member.ranks;
        let expected = above.flat_map(|rank| (CONTROL..=self.sockets).map(move |lane| (rank, lane)));
        let mut acceptor = Acceptor::new(self, &listener)?;
        lanes.extend(acceptor.accept(expected, deadline + GRACE).into_lanes()?);
        Ok(lanes)
    }

    /// The connecting side of the handshake.
    fn introduce(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
        rank: usize,
        lane: usize,
        listens: Option<SocketAddr>,
        deadline: Instant,
    ) -> Result<TcpStream> {
        let stranger = |reason: &str| Error::Stranger { address, reason: reason.to_owned() };
        let secret = self.id.secret();
        let nonce = nonce()?;
        let mut talk = |say: &[u8], hear: &mut [u8]| -> Result<()> {
            let broken = |error: std::io::Error| stranger(&error.to_string());
            stream.write_all(say).map_err(broken)?;
            read_exact(&mut stream, hear, deadline).map_err(broken)
        };
        let mut challenge = [0; GREETING];
        talk(&opening(&nonce), &mut challenge)?;
        let theirs = opened(&challenge).ok_or_else(|| stranger("its first words are not openmps's"))?;
        let nonces = [nonce, theirs];
        let mut answer = [0; PROOF];
        talk(&prove(secret, Side::Connecting, &nonces, &self.claim(lane, listens)), &mut answer)?;
        let claim = verify(secret, Side::Listening, &nonces, &answer).ok_or_else(|| stranger("its proof is wrong"))?;
        self.check(&claim)?;
        if claim.rank != rank {
            return Err(stranger(&format!("it is rank {}, not rank {rank}", claim.rank)));
        }
        settle(&stream)?;
        Ok(stream)
    }

    /// Whether another rank's claim fits to this one's.
    fn check(&self, claim: &Claim) -> Result<()> {
        let (rank, ranks) = (claim.rank, self.member.ranks);
        if claim.version != self.version {
            return Err(Error::Version { rank, theirs: claim.version, ours: self.version });
        }
        if claim.ranks != ranks || rank >= ranks {
            let theirs = format!("it is rank {rank} of {} ranks", claim.ranks);
            return Err(Error::Mismatch { rank, theirs, ours: format!("a communicator of {ranks} ranks") });
        }
        Ok(())
    }
}

type Lanes = HashMap<(usize, usize), TcpStream>;

fn nonce() -> Result<Nonce> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| Error::System { what: "random numbers", reason: error.to_string() })?;
    Ok(nonce)
}

/// What a connection is from now on.
fn settle(stream: &TcpStream) -> Result<()> {
    let settled = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(None))
        .and_then(|()| stream.set_write_timeout(None))
        .and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(stream, true)?));
    settled.map_err(Error::system("the options of a connection"))
}

/// Whether the other side listens already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    UntilItListens,
    ItListens,
}

fn connect(address: SocketAddr, rank: usize, waits: Waits, deadline: Instant) -> Result<TcpStream> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Missing { ranks: vec![rank], address, waited: begin.elapsed() });
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) if waits == Waits::ItListens => return Err(Error::broken(rank)(error)),
            Err(_) => std::thread::sleep(pause.min(left)),
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

fn read_exact(stream: &mut TcpStream, mut bytes: &mut [u8], deadline: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(some) => bytes = &mut bytes[some..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What rank 0 tells the others when all have come, or not.
enum Word<'a> {
    Roster(&'a [u8]),
    Failure(&'a Error),
}

impl Word<'_> {
    fn encode(&self) -> Vec<u8> {
        let (kind, rank, body) = match self {
            Word::Roster(bytes) => (0_u32, 0, bytes.to_vec()),
            Word::Failure(error) => (1, error.rank().unwrap_or(0), error.to_string().into_bytes()),
        };
        let length = if kind == 1 { body.len().min(MOST_TEXT) } else { body.len() };
        let mut bytes = Vec::with_capacity(12 + length);
        for number in [kind, rank as u32, length as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&body[..length]);
        bytes
    }
}

/// Where all ranks listen, by rank 0's word.
fn read_word(control: &mut TcpStream, ranks: usize, deadline: Instant) -> Result<Vec<SocketAddr>> {
    let broken = Error::broken(0);
    let malformed = |what: &str| Error::Malformed { rank: 0, what: what.to_owned() };
    let mut head = [0; 12];
    read_exact(control, &mut head, deadline).map_err(&broken)?;
    let number = |index: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[4 * index + byte])) as usize;
    let (kind, rank, length) = (number(0), number(1), number(2));
    let most = if kind == 0 { 24 * ranks } else { MOST_TEXT };
    if kind > 1 || length > most || rank >= ranks {
        return Err(malformed("the list of ranks"));
    }
    let mut body = vec![0; length];
    read_exact(control, &mut body, deadline).map_err(&broken)?;
    if kind == 1 {
        return Err(Error::Reported { rank, by: 0, text: String::from_utf8_lossy(&body).into_owned() });
    }
    settle(control)?;
    let none = SocketAddr::from(([0, 0, 0, 0], 0));
    let mut roster = vec![none; ranks];
    for (rank, bytes) in body.chunks(24).enumerate().skip(1) {
        roster[rank] = address_from(bytes).ok_or_else(|| malformed("an address in the list of ranks"))?;
    }
    Ok(roster)
}

/// The listening side of many handshakes at once.
struct Acceptor<'a> {
    meeting: &'a Meeting<'a>,
    listener: &'a TcpListener,
    pending: Vec<Pending>,
}

struct Pending {
    stream: TcpStream,
    listening: Listening,
    since: Instant,
}

/// Who came, and the first thing that went wrong.
struct Came {
    lanes: HashMap<(usize, usize), (TcpStream, Claim)>,
    problem: Option<Error>,
}

impl Came {
    fn into_lanes(self) -> Result<Lanes> {
        match self.problem {
            Some(problem) => Err(problem),
            None => Ok(self.lanes.into_iter().map(|(lane, (stream, _))| (lane, stream)).collect()),
        }
    }
}

impl<'a> Acceptor<'a> {
    fn new(meeting: &'a Meeting<'a>, listener: &'a TcpListener) -> Result<Acceptor<'a>> {
        listener.set_nonblocking(true).map_err(Error::system("the options of a port"))?;
        Ok(Acceptor { meeting, listener, pending: Vec::new() })
    }

    /// Waits for these lanes. A rank that came and is wrong is not waited for, but the others are: they are to hear of it.
    fn accept(&mut self, expected: impl Iterator<Item = (usize, usize)>, deadline: Instant) -> Came {
        let begin = Instant::now();
        let mut missing: HashSet<(usize, usize)> = expected.collect();
        let mut came = Came { lanes: HashMap::new(), problem: None };
        while !missing.is_empty() {
            let now = Instant::now();
            if now >= deadline {
                let mut ranks: Vec<usize> = missing.iter().map(|(rank, _)| *rank).collect();
                ranks.sort_unstable();
                ranks.dedup();
                let address = self.listener.local_addr().unwrap_or(self.meeting.id.address());
                came.problem.get_or_insert(Error::Missing { ranks, address, waited: begin.elapsed() });
                return came;
            }
            self.pending.retain(|pending| pending.since.elapsed() < PATIENCE);
            self.wait((deadline - now).min(Duration::from_millis(500)));
            self.take_new();
            for (pending, claim) in self.proven() {
                self.admit(pending, claim, &mut missing, &mut came);
            }
        }
        came
    }

    fn wait(&self, most: Duration) {
        let mut descriptors = vec![PollFd::new(self.listener, PollFlags::IN)];
        descriptors.extend(self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN)));
        wait(&mut descriptors, most);
    }

    fn take_new(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let (Ok(()), Ok(nonce)) = (stream.set_nonblocking(true), nonce()) else { continue };
            if self.pending.len() == MOST_PENDING {
                self.pending.remove(0);
            }
            self.pending.push(Pending { stream, listening: Listening::new(nonce), since: Instant::now() });
        }
    }

    /// Reads what has come; who has proven to be of the job leaves the list, and so does who is a stranger.
    fn proven(&mut self) -> Vec<(Pending, Claim)> {
        let (mut proven, secret) = (Vec::new(), self.meeting.id.secret());
        for mut pending in std::mem::take(&mut self.pending) {
            loop {
                let next = match pending.stream.read(pending.listening.room()) {
                    Ok(0) => Next::Refused,
                    Ok(bytes) => pending.listening.came(secret, bytes),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.pending.push(pending);
                        break;
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => Next::More,
                    Err(_) => Next::Refused,
                };
                match next {
                    Next::More => {}
                    // Forty bytes into an empty socket: they fit, or the other is not what it should be.
                    Next::Challenge(challenge) if pending.stream.write_all(&challenge).is_ok() => {}
                    Next::Challenge(_) | Next::Refused => break,
                    Next::Proven(claim) => {
                        proven.push((pending, claim));
                        break;
                    }
                }
            }
        }
        proven
    }

    fn admit(&self, pending: Pending, claim: Claim, missing: &mut HashSet<(usize, usize)>, came: &mut Came) {
        let Pending { mut stream, listening, .. } = pending;
        let answer = listening.answer(self.meeting.id.secret(), &self.meeting.claim(claim.lane, None));
        let sent = stream.set_nonblocking(false).and_then(|()| stream.write_all(&answer));
        let lane = (claim.rank, claim.lane);
        let fits = self.meeting.check(&claim).and_then(|()| {
            sent.map_err(Error::broken(claim.rank))?;
            let twice = || Error::Mismatch {
                rank: claim.rank,
                theirs: format!("it comes a second time, or with a connection number {}", claim.lane),
                ours: format!("one process for each rank, and OPENMPS_COLLECTIVE_SOCKETS={}", self.meeting.sockets),
            };
            if missing.contains(&lane) { settle(&stream) } else { Err(twice()) }
        });
        missing.remove(&lane);
        match fits {
            Ok(()) => {
                came.lanes.insert(lane, (stream, claim));
            }
            Err(problem) => {
                came.problem.get_or_insert(problem);
            }
        }
    }
}
