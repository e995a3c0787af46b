//! The name under which the ranks of a communicator find each other: an address to come to, and a secret that strangers lack.

use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Bytes of a unique id.
pub const UNIQUE_ID_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"openmps\x01";

/// What proves that a process belongs to the job.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub [u8; 32]);

/// Where rank 0 of a communicator listens, and the job's secret. Rank 0 makes it and hands it to the others by a way of its own; whoever has
/// it can join.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    address: SocketAddr,
    secret: Secret,
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "UniqueId({})", self.address)
    }
}

/// The sockets of ids that this process has made and whose communicator is not there yet, the oldest first.
static LISTENING: Mutex<VecDeque<(SocketAddr, TcpListener)>> = Mutex::new(VecDeque::new());

/// More ids than this are not waited for: the communicator of the oldest will find its port again, or say that it cannot.
const MOST_LISTENING: usize = 256;

impl UniqueId {
    /// A new id: a free port of this address, which is listened to from now on, and a random secret.
    pub fn listen(address: IpAddr) -> Result<UniqueId> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| Error::System { what: "random numbers", reason: error.to_string() })?;
        let listener = TcpListener::bind((address, 0)).map_err(Error::system("a port to listen to"))?;
        let address = listener.local_addr().map_err(Error::system("the address of a port"))?;
        let mut listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
        listening.push_back((address, listener));
        if listening.len() > MOST_LISTENING {
            listening.pop_front();
        }
        Ok(UniqueId { address, secret: Secret(secret) })
    }

    /// An id that every rank makes for itself: rank 0 listens at this address, and all know the same words.
    pub fn agreed(address: SocketAddr, words: &str) -> UniqueId {
        UniqueId { address, secret: Secret(Sha256::digest(words.as_bytes()).into()) }
    }

    /// Where rank 0 listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The socket that rank 0 listens to.
    pub(crate) fn listener(&self) -> Result<TcpListener> {
        let mut listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
        let place = listening.iter().position(|(address, _)| *address == self.address);
        match place.and_then(|place| listening.remove(place)) {
            Some((_, listener)) => Ok(listener),
            None => TcpListener::bind(self.address).map_err(Error::system("the address of the unique id")),
        }
    }

    /// As bytes, for whatever brings it to the other ranks.
    pub fn to_bytes(&self) -> [u8; UNIQUE_ID_BYTES] {
        let mut bytes = [0; UNIQUE_ID_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..32].copy_from_slice(&address_bytes(self.address));
        bytes[32..].copy_from_slice(&self.secret.0);
        bytes
    }

    /// From bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<UniqueId> {
        let refused = || Error::Argument(format!("{} bytes that are no unique id", bytes.len()));
        let bytes: &[u8; UNIQUE_ID_BYTES] = bytes.try_into().map_err(|_| refused())?;
        if bytes[..8] != MAGIC {
            return Err(refused());
        }
        let (address, secret) = bytes[8..].split_at(24);
        let address = address_from(address).ok_or_else(refused)?;
        Ok(UniqueId { address, secret: Secret(secret.try_into().map_err(|_| refused())?) })
    }
}

/// An address in 24 bytes: 4 or 6, the port, the zone, the address.
pub(crate) fn address_bytes(address: SocketAddr) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[2..4].copy_from_slice(&address.port().to_le_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes[0] = 4;
            bytes[8..12].copy_from_slice(&address.ip().octets());
        }
        SocketAddr::V6(address) => {
            bytes[0] = 6;
            bytes[4..8].copy_from_slice(&address.scope_id().to_le_bytes());
            bytes[8..24].copy_from_slice(&address.ip().octets());
        }
    }
    bytes
}

/// The address in these bytes.
pub(crate) fn address_from(bytes: &[u8]) -> Option<SocketAddr> {
    let bytes: &[u8; 24] = bytes.try_into().ok()?;
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    match bytes[0] {
        4 => Some(SocketAddr::from(([bytes[8], bytes[9], bytes[10], bytes[11]], port))),
        6 => {
            let zone = u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 + byte]));
            let ip = Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|byte| bytes[8 + byte]));
            Some(std::net::SocketAddrV6::new(ip, port, 0, zone).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn the_oldest_id_gives_way() {
        let ids = (0..=MOST_LISTENING).map(|_| UniqueId::listen([127, 0, 0, 1].into()).unwrap());
        let ids: Vec<UniqueId> = ids.collect();
        assert!(TcpStream::connect(ids[0].address()).is_err());
        assert!(TcpStream::connect(ids[MOST_LISTENING].address()).is_ok());
        assert_eq!(ids[0].listener().unwrap().local_addr().unwrap(), ids[0].address());
    }

    #[test]
    fn an_id_survives_its_bytes_and_hides_its_secret() {
        for address in ["127.0.0.1:7", "[::1]:65535"] {
            let id = UniqueId::agreed(address.parse().unwrap(), "words");
            assert_eq!(UniqueId::from_bytes(&id.to_bytes()), Ok(id.clone()));
            assert_eq!(format!("{id:?}"), format!("UniqueId({address})"));
            assert!(UniqueId::from_bytes(&id.to_bytes()[1..]).is_err() && UniqueId::from_bytes(&[0; 64]).is_err());
        }
        let (one, other) = (UniqueId::listen([127, 0, 0, 1].into()), UniqueId::listen([127, 0, 0, 1].into()));
        assert_ne!(one.unwrap().secret.0, other.unwrap().secret.0);
    }
}
