//! Launches of kernels under test: arguments and memory, what the interpreter makes of them, and kernels that every executor is asked about.
//! Part of the tests of several crates, by its path.
#![allow(dead_code, reason = "not every test needs all of it")]

pub mod cases;

use half::{bf16, f16};
use openmps_tile::{Kernel, RawMemory, interpret, verify};

/// An argument of a kernel under test.
#[derive(Clone, Copy)]
pub enum Given {
    /// A buffer by its index. Words of it that are [`address_of`] another one become that one's address.
    Buffer(usize),
    Integer(i64),
    Float(f32),
}

/// What stands in a buffer for another buffer's address.
pub fn address_of(buffer: usize) -> u64 {
    0xadd0_e550_0000_0000 | buffer as u64
}

/// Copies of the buffers, and the arguments' bits for them.
pub fn prepared(buffers: &[Vec<u8>], given: &[Given]) -> (Vec<Vec<u64>>, Vec<u64>) {
    let words = |bytes: &Vec<u8>| {
        let word = |chunk: &[u8]| {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(bytes)
        };
        bytes.chunks(8).map(word).collect::<Vec<u64>>()
    };
    let mut copies: Vec<Vec<u64>> = buffers.iter().map(words).collect();
    let addresses: Vec<u64> = copies.iter_mut().map(|copy| copy.as_mut_ptr().expose_provenance() as u64).collect();
    for word in copies.iter_mut().flatten() {
        if let Some(index) = (0..addresses.len()).find(|&index| *word == address_of(index)) {
            *word = addresses[index];
        }
    }
    let bits = |given: &Given| match *given {
        Given::Buffer(index) => addresses[index],
        Given::Integer(number) => number as u64,
        Given::Float(number) => number.to_bits().into(),
    };
    let arguments = given.iter().map(bits).collect();
    (copies, arguments)
}

pub fn bytes(copies: &[Vec<u64>], buffers: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let of = |(copy, buffer): (&Vec<u64>, &Vec<u8>)| {
        copy.iter().flat_map(|word| word.to_le_bytes()).take(buffer.len()).collect()
    };
    copies.iter().zip(buffers).map(of).collect()
}

/// The buffers after the interpreter, which is the definition.
pub fn interpreted(kernel: &Kernel, grid: [usize; 3], buffers: &[Vec<u8>], given: &[Given]) -> Vec<Vec<u8>> {
    let (copies, arguments) = prepared(buffers, given);
    let verified = verify(kernel).unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: every kernel here stays inside of its buffers, whose addresses are exposed.
    interpret(verified, grid, &arguments, &mut unsafe { RawMemory::new() }).unwrap_or_else(|error| panic!("{error}"));
    bytes(&copies, buffers)
}

pub fn singles(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

pub fn from_singles(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub fn halves(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|x| f16::from_f32(x).to_le_bytes()).collect()
}

pub fn bfloats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect()
}

pub fn from_halves(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

/// Numbers between -2 and 2 that look random.
pub fn wave(count: usize) -> impl Iterator<Item = f32> {
    (0..count).map(|i| 2.0 * (i as f32 * 1.618).sin())
}

pub fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let same = found == expected || found.is_nan() && expected.is_nan();
        assert!(same || (found - expected).abs() <= tolerance * expected.abs().max(1.0), "{i}: {found}, {expected}");
    }
}
