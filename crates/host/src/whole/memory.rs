//! Loads, stores and atomic operations, address by address.

use super::compiler::Compiler;
use super::shape::copy_element;
use super::{Frame, always};
use crate::error::Error;
use openmps_tile::interpret::element;
use openmps_tile::kernel::{Atomic, Instruction};
use openmps_tile::{Operation, Scalar};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// An operation on the elements behind pointers.
pub(super) fn access<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let x: Vec<usize> = instruction.operands.iter().map(|&operand| c.place(operand)).collect();
    let (pointers, count) = (x[0], c.len(instruction.operands[0]));
    let scalar = c.type_of(instruction.operands[0]).target().unwrap_or(Scalar::I8);
    let size = scalar.size();
    match instruction.operation {
        Operation::Load => {
            let (to, mask, other) = (c.result(instruction.results[0]), x.get(1).copied(), x.get(2).copied());
            c.push(count, 1.5, always(move |frame| load(frame, [to, pointers], [mask, other], size, count)));
        }
        Operation::Store => {
            let (from, mask) = (x[1], x.get(2).copied());
            c.push(
                count,
                1.5,
                Box::new(move |frame| {
                    for i in (0..count).filter(|&i| is_on(frame, mask, i)) {
                        // SAFETY: the caller of `run` vouches for addresses that are stored to.
                        unsafe { copy_element(address(frame, pointers, i), frame.at(from).add(i * size), size) };
                    }
                    Ok(())
                }),
            );
        }
        Operation::Atomic(operation) => {
            let (to, value, mask) = (c.result(instruction.results[0]), x[1], x.get(2).copied());
            c.push(
                count,
                10.0,
                Box::new(move |frame| {
                    for i in (0..count).filter(|&i| is_on(frame, mask, i)) {
                        let given = read(frame, value, i, size);
                        let old = replace(frame, pointers, i, size, |old| combined(operation, scalar, old, given));
                        write(frame, to, i, size, old);
                    }
                    Ok(())
                }),
            );
        }
        Operation::CompareSwap => {
            let (to, expected, value) = (c.result(instruction.results[0]), x[1], x[2]);
            c.push(
                count,
                10.0,
                Box::new(move |frame| {
                    for i in 0..count {
                        let (expected, new) = (read(frame, expected, i, size), read(frame, value, i, size));
                        let old = replace(frame, pointers, i, size, |old| if old == expected { new } else { old });
                        write(frame, to, i, size, old);
                    }
                    Ok(())
                }),
            );
        }
        _ => return Err(c.unsupported(instruction.operation.name())),
    }
    Ok(())
}

fn combined(operation: Atomic, scalar: Scalar, old: u64, given: u64) -> u64 {
    operation.operation().map_or(given, |binary| element::binary(binary, scalar, old, given))
}

fn is_on(frame: &Frame, mask: Option<usize>, i: usize) -> bool {
    // SAFETY: a mask holds as many booleans as there are pointers.
    mask.is_none_or(|mask| unsafe { frame.at(mask).add(i).read() } != 0)
}

fn address(frame: &Frame, pointers: usize, i: usize) -> *mut u8 {
    // SAFETY: the place holds as many addresses.
    unsafe { frame.at(pointers).cast::<u64>().add(i).read() as *mut u8 }
}

pub(super) fn read(frame: &Frame, place: usize, i: usize, size: usize) -> u64 {
    let mut bits = 0_u64;
    // SAFETY: the place holds more than `i` elements of this size.
    unsafe { copy_element((&raw mut bits).cast(), frame.at(place).add(i * size), size) };
    bits
}

fn write(frame: &Frame, place: usize, i: usize, size: usize, bits: u64) {
    // SAFETY: the place holds more than `i` elements of this size.
    unsafe { copy_element(frame.at(place).add(i * size), (&raw const bits).cast(), size) };
}

/// Loads elements; runs of neighbouring addresses go as one copy.
fn load(frame: &Frame, [to, pointers]: [usize; 2], [mask, other]: [Option<usize>; 2], size: usize, count: usize) {
    let mut i = 0;
    while i < count {
        if !is_on(frame, mask, i) {
            let bits = other.map_or(0, |other| read(frame, other, i, size));
            write(frame, to, i, size, bits);
            i += 1;
            continue;
        }
        let first = address(frame, pointers, i);
        let mut end = i + 1;
        while end < count
            && address(frame, pointers, end) == first.wrapping_add((end - i) * size)
            && is_on(frame, mask, end)
        {
            end += 1;
        }
        // SAFETY: the caller of `run` vouches for addresses that are loaded from.
        unsafe { std::ptr::copy_nonoverlapping(first, frame.at(to).add(i * size), (end - i) * size) };
        i = end;
    }
}

/// Replaces the element behind a pointer at once; what was there.
fn replace(frame: &Frame, pointers: usize, i: usize, size: usize, new: impl Fn(u64) -> u64) -> u64 {
    let address = address(frame, pointers, i);
    macro_rules! exchange {
        ($atomic:ty, $integer:ty) => {{
            // SAFETY: the caller of `run` vouches for the address, which is aligned as elements of device memory are.
            let place = unsafe { <$atomic>::from_ptr(address.cast()) };
            let exchange = |old: $integer| Some(new(old.into()) as $integer);
            match place.fetch_update(Ordering::AcqRel, Ordering::Acquire, exchange) {
                Ok(old) | Err(old) => old.into(),
            }
        }};
    }
    match size {
        1 => exchange!(AtomicU8, u8),
        2 => exchange!(AtomicU16, u16),
        4 => exchange!(AtomicU32, u32),
        _ => exchange!(AtomicU64, u64),
    }
}
