//! Damage to a program's bytes: single ones, stretches, numbers, pieces of other programs.

use fastrand::Rng;

/// The longest program that is made; repetition would double it again and again.
const LONGEST: usize = 256 << 10;

/// Numbers that bring a program elsewhere.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "7",
    "64",
    "1025",
    "65536",
    "2147483648",
    "-9223372036854775808",
    "1e400",
    "null",
    "[]",
    "true",
    "\"x\"",
];

/// One of the programs, damaged.
pub fn program(programs: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = programs[random.usize(..programs.len())].clone();
    for _ in 0..1 + random.usize(..6) {
        once(&mut bytes, programs, random);
        bytes.truncate(LONGEST);
    }
    bytes
}

fn once(bytes: &mut Vec<u8>, programs: &[Vec<u8>], random: &mut Rng) {
    if bytes.is_empty() {
        return bytes.push(random.u8(..));
    }
    let at = random.usize(..bytes.len());
    let end = (at + random.usize(..64)).min(bytes.len());
    match random.u8(..10) {
        0 => bytes[at] = random.u8(..),
        1 => bytes[at] ^= 1 << random.u8(..8),
        2 => drop(bytes.drain(at..end)),
        3 => {
            let piece = bytes[at..end].to_vec();
            let to = random.usize(..=bytes.len());
            bytes.splice(to..to, piece);
        }
        4 => {
            let other = &programs[random.usize(..programs.len())];
            let from = random.usize(..=other.len());
            let piece = &other[from..(from + random.usize(..512)).min(other.len())];
            bytes.splice(at..end, piece.iter().copied());
        }
        5 if random.u8(..8) == 0 => bytes.truncate(at),
        _ => number(bytes, at, random),
    }
}

/// Another number in the place of the next one in a text; in a protobuf, where digits are rare, another byte.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Rng) {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
    let Some(begin) = bytes[at..].iter().take(200).position(is_digit).map(|skipped| at + skipped) else {
        bytes[at] = [0, 1, 2, 0x7f, 0xff][random.usize(..5)];
        return;
    };
    let length = bytes[begin..].iter().take_while(|byte| is_digit(byte)).count();
    let with = NUMBERS[random.usize(..NUMBERS.len())];
    bytes.splice(begin..begin + length, with.bytes());
}
