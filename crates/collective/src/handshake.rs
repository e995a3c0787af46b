//! How two processes make sure of each other before anything else is read: challenge and answer over the job's secret.
//!
//! Whoever connects sends 32 random bytes, gets 32 back, and proves with HMAC-SHA-256 over both and its claim (version, rank, what the
//! connection is for) that it knows the secret; the listener proves the same. The secret itself never travels, a recorded conversation is of
//! no use, and a stranger learns nothing but that somebody listens. The first four messages have fixed sizes and stay as they are in every
//! version of the protocol, so that another version is told from a stranger.

use crate::identity::{Secret, address_bytes, address_from};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::net::SocketAddr;

/// The version of everything that follows the handshake.
pub(crate) const VERSION: u32 = 2;

/// Bytes of the greeting and of the challenge.
pub(crate) const GREETING: usize = 40;
/// Bytes of a claim with its proof.
pub(crate) const PROOF: usize = CLAIM + 32;
const CLAIM: usize = 64;
const MAGIC: [u8; 8] = *b"openmps\n";

/// 32 random bytes.
pub(crate) type Nonce = [u8; 32];

/// Who somebody says to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub version: u32,
    pub rank: usize,
    pub ranks: usize,
    /// Which of a pair's connections this is; see `rendezvous`.
    pub lane: usize,
    /// Where this rank listens.
    pub listens: Option<SocketAddr>,
}

impl Claim {
    fn encode(&self) -> [u8; CLAIM] {
        let mut bytes = [0; CLAIM];
        for (index, number) in
            [u64::from(self.version), self.rank as u64, self.ranks as u64, self.lane as u64].into_iter().enumerate()
        {
            bytes[8 * index..8 * index + 8].copy_from_slice(&number.to_le_bytes());
        }
        if let Some(address) = self.listens {
            bytes[32..56].copy_from_slice(&address_bytes(address));
        }
        bytes
    }

    fn decode(bytes: &[u8; CLAIM]) -> Option<Claim> {
        let number = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * index + byte]));
        let size = |index| usize::try_from(number(index)).ok();
        Some(Claim {
            version: u32::try_from(number(0)).ok()?,
            rank: size(1)?,
            ranks: size(2)?,
            lane: size(3)?,
            listens: address_from(&bytes[32..56]),
        })
    }
}

/// Whose proof it is: one side's cannot be sent back as the other's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Connecting,
    Listening,
}

/// The words with which a side opens: the connecting one its greeting, the listening one its challenge.
pub(crate) fn opening(nonce: &Nonce) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(nonce);
    bytes
}

/// The random bytes in an opening; none where it is none.
pub(crate) fn opened(bytes: &[u8]) -> Option<Nonce> {
    let bytes: &[u8; GREETING] = bytes.try_into().ok()?;
    if bytes[..8] != MAGIC { None } else { bytes[8..].try_into().ok() }
}

/// Both sides' random bytes, the connecting side's first.
pub(crate) type Nonces = [Nonce; 2];

fn seal(secret: &Secret, side: Side, nonces: &Nonces, claim: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
    mac.update(if side == Side::Connecting { b"openmps connects" } else { b"openmps  listens" });
    mac.update(&nonces[0]);
    mac.update(&nonces[1]);
    mac.update(claim);
    mac
}

/// A claim with the proof that who makes it knows the secret.
pub(crate) fn prove(secret: &Secret, side: Side, nonces: &Nonces, claim: &Claim) -> [u8; PROOF] {
    let mut bytes = [0; PROOF];
    bytes[..CLAIM].copy_from_slice(&claim.encode());
    let mac = seal(secret, side, nonces, &bytes[..CLAIM]).finalize().into_bytes();
    bytes[CLAIM..].copy_from_slice(&mac);
    bytes
}

/// The claim in a proof; none where whoever made it does not know the secret. Compares in constant time.
pub(crate) fn verify(secret: &Secret, side: Side, nonces: &Nonces, bytes: &[u8]) -> Option<Claim> {
    let bytes: &[u8; PROOF] = bytes.try_into().ok()?;
    let (claim, mac) = bytes.split_at(CLAIM);
    seal(secret, side, nonces, claim).verify_slice(mac).ok()?;
    Claim::decode(claim.try_into().ok()?)
}

/// The listening side of one connection: bytes go in, bytes come out, and in the end a claim.
pub(crate) struct Listening {
    nonce: Nonce,
    theirs: Option<Nonce>,
    buffer: [u8; PROOF],
    filled: usize,
}

/// What follows from the bytes so far.
pub(crate) enum Next {
    /// More must come.
    More,
    /// This is to be sent.
    Challenge([u8; GREETING]),
    /// The other is of the job; `Listening::answer` tells it that this side is too.
    Proven(Claim),
    /// A stranger.
    Refused,
}

impl Listening {
    pub fn new(nonce: Nonce) -> Listening {
        Listening { nonce, theirs: None, buffer: [0; PROOF], filled: 0 }
    }

    /// Where the next bytes go.
    pub fn room(&mut self) -> &mut [u8] {
        let end = if self.theirs.is_none() { GREETING } else { PROOF };
        &mut self.buffer[self.filled..end]
    }

    /// Says that so many bytes of `room` have come.
    pub fn came(&mut self, secret: &Secret, bytes: usize) -> Next {
        let missing = self.room().len();
        self.filled += bytes.min(missing);
        if bytes < missing {
            return Next::More;
        }
        let message = &self.buffer[..self.filled];
        self.filled = 0;
        match self.theirs {
            None => match opened(message) {
                Some(nonce) => {
                    self.theirs = Some(nonce);
                    Next::Challenge(opening(&self.nonce))
                }
                None => Next::Refused,
            },
            Some(theirs) => match verify(secret, Side::Connecting, &[theirs, self.nonce], message) {
                Some(claim) => Next::Proven(claim),
                None => Next::Refused,
            },
        }
    }

    /// The answer to who has proven its claim.
    pub fn answer(&self, secret: &Secret, claim: &Claim) -> [u8; PROOF] {
        prove(secret, Side::Listening, &[self.theirs.unwrap_or_default(), self.nonce], claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        Claim { version: VERSION, rank: 2, ranks: 5, lane: 1, listens: Some("10.0.0.7:1234".parse().unwrap()) }
    }

    fn feed(listening: &mut Listening, secret: &Secret, mut bytes: &[u8], most: usize) -> Next {
        loop {
            let room = listening.room();
            let some = room.len().min(bytes.len()).min(most);
            room[..some].copy_from_slice(&bytes[..some]);
            bytes = &bytes[some..];
            match listening.came(secret, some) {
                Next::More if !bytes.is_empty() => {}
                next => return next,
            }
        }
    }

    #[test]
    fn who_knows_the_secret_is_let_in_and_nobody_else() {
        let (secret, other) = (Secret([7; 32]), Secret([8; 32]));
        for most in [1, 7, 1000] {
            let mut listening = Listening::new([1; 32]);
            let Next::Challenge(challenge) = feed(&mut listening, &secret, &opening(&[2; 32]), most) else { panic!() };
            let nonces = [[2; 32], opened(&challenge).unwrap()];
            let proof = prove(&secret, Side::Connecting, &nonces, &claim());
            assert!(matches!(feed(&mut listening, &secret, &proof, most), Next::Proven(it) if it == claim()));
            let answer = listening.answer(&secret, &claim());
            assert_eq!(verify(&secret, Side::Listening, &nonces, &answer), Some(claim()));
            // Neither another secret, nor another conversation, nor one's own words sent back.
            assert_eq!(verify(&other, Side::Listening, &nonces, &answer), None);
            assert_eq!(verify(&secret, Side::Listening, &[[2; 32], [3; 32]], &answer), None);
            assert_eq!(verify(&secret, Side::Listening, &nonces, &proof), None);
        }
    }

    #[test]
    fn bytes_of_strangers_are_refused() {
        let (secret, mut random) = (Secret([7; 32]), fastrand::Rng::with_seed(3));
        for round in 0..5_000 {
            let mut listening = Listening::new([1; 32]);
            let mut hello = opening(&[2; 32]);
            if round % 2 == 0 {
                hello[random.usize(0..8)] ^= 1 << random.u8(0..8);
                assert!(matches!(feed(&mut listening, &secret, &hello, 1000), Next::Refused));
                continue;
            }
            assert!(matches!(feed(&mut listening, &secret, &hello, 1000), Next::Challenge(_)));
            let mut proof = prove(&secret, Side::Connecting, &[[2; 32], [1; 32]], &claim());
            proof[random.usize(0..PROOF)] ^= 1 << random.u8(0..8);
            assert!(matches!(feed(&mut listening, &secret, &proof, 1000), Next::Refused));
        }
    }
}
