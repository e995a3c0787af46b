//! Reductions and scans.

use super::compiler::{Compiler, element_size};
use super::shape::copy_element;
use super::{Step, always};
use crate::error::Error;
use crate::vector::memory::fill;
use crate::vector::{binary, cast, reduce};
use openmps_tile::kernel::{Combine, Instruction};
use openmps_tile::{Block, Cast, Scalar, Value};
use std::collections::HashSet;

/// The dimensions of a tile as one axis sees them: those before it, itself, those behind it.
fn split_at(dims: &[usize], axis: usize) -> [usize; 3] {
    [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()]
}

/// A reduction by a named combination. Half types are summed in float32.
pub(super) fn reduce<'k>(
    c: &mut Compiler<'k>,
    instruction: &'k Instruction,
    axis: usize,
    combine: Combine,
) -> Result<(), Error> {
    let (x, result) = (instruction.operands[0], instruction.results[0]);
    let scalar = c.number(x);
    let wide = if matches!(scalar, Scalar::F16 | Scalar::BF16) { Scalar::F32 } else { scalar };
    let (count, results, size) = (c.len(x), c.len(result), wide.size());
    let (from, to) = (c.place(x), c.result(result));
    let (source, target) = if wide == scalar { (from, to) } else { (c.reserve(count * 4), c.reserve(results * 4)) };
    let refused = |c: &Compiler| c.unsupported(format!("a reduction by {} of {}", combine.text(), scalar.name()));
    let of_row = if wide == Scalar::I1 { Scalar::I8 } else { wide };
    let rows = reduce::reduce(combine, of_row).ok_or_else(|| refused(c))?;
    let columns = binary::binary(combine.operation(), of_row).ok_or_else(|| refused(c))?;
    let [outer, length, inner] = split_at(&c.type_of(x).dims, axis);
    let casts = (wide != scalar)
        .then(|| Some((cast::cast(Cast::Float, scalar, wide)?, cast::cast(Cast::Float, wide, scalar)?)))
        .flatten();
    c.push(
        count,
        0.5,
        Box::new(move |frame| {
            // SAFETY: places hold the operand's and the result's elements, of the wide type where there is one.
            unsafe {
                if let Some((widen, _)) = casts {
                    widen(frame.at(source), frame.at(from), count);
                }
                for o in 0..outer {
                    let from = frame.at(source).add(o * length * inner * size);
                    let to = frame.at(target).add(o * inner * size);
                    if inner == 1 {
                        rows(to, from, length);
                        continue;
                    }
                    std::ptr::copy_nonoverlapping(from, to, inner * size);
                    for step in 1..length {
                        columns(to, to, false, from.add(step * inner * size), false, inner);
                    }
                }
                if let Some((_, narrow)) = casts {
                    narrow(frame.at(to), frame.at(target), results);
                }
            }
            Ok(())
        }),
    );
    Ok(())
}

/// Gives the scalars from outside that a block reads a place with one element a lane, as all of its values have; returns where they were.
fn broadcast_captures(c: &mut Compiler, block: &Block, lanes: usize) -> Vec<(Value, usize)> {
    let mut known: HashSet<Value> = block.arguments.iter().copied().collect();
    known.extend(block.instructions.iter().flat_map(|instruction| &instruction.results));
    let mut captured = Vec::new();
    for &value in block.instructions.iter().flat_map(|instruction| &instruction.operands) {
        if known.insert(value) {
            let (from, size) = (c.place(value), element_size(c.type_of(value)));
            let to = c.reserve(lanes * size);
            // SAFETY: the places hold `lanes` elements and one.
            c.push(lanes, 0.1, always(move |frame| unsafe { fill(frame.at(to), frame.at(from), size, lanes) }));
            c.alias(value, to);
            captured.push((value, from));
        }
    }
    captured
}

/// One tile of a combination by a block.
struct Part {
    /// Where the tile is, and where the results go.
    from: usize,
    to: usize,
    /// The block's arguments: what is combined so far, and the next elements.
    combined: usize,
    next: usize,
    /// Where the block puts what it yields.
    yielded: usize,
    size: usize,
}

/// A reduction by a block (`scan` is none), or a scan (`scan` says whether it goes backwards). The block runs once for each step along the
/// axis, over all rows at a time.
pub(super) fn by_block<'k>(
    c: &mut Compiler<'k>,
    instruction: &'k Instruction,
    axis: usize,
    scan: Option<bool>,
) -> Result<(), Error> {
    let [outer, length, inner] = split_at(&c.type_of(instruction.operands[0]).dims, axis);
    let lanes = outer * inner;
    let from: Vec<usize> = instruction.operands.iter().map(|&x| c.place(x)).collect();
    let to: Vec<usize> = instruction.results.iter().map(|&result| c.result(result)).collect();
    let around = std::mem::replace(&mut c.lanes, lanes);
    let block = &instruction.blocks[0];
    let captured = broadcast_captures(c, block, lanes);
    let arguments: Vec<usize> = block.arguments.iter().map(|&argument| c.result(argument)).collect();
    let mut yielded = Vec::new();
    let body = c.inner(block, length as f64, |c, end| {
        yielded = end.operands.iter().map(|&value| c.place(value)).collect();
        Ok(())
    })?;
    c.lanes = around;
    captured.into_iter().for_each(|(value, place)| c.alias(value, place));
    let parts: Vec<Part> = (0..from.len())
        .map(|i| Part {
            from: from[i],
            to: to[i],
            combined: arguments[i],
            next: arguments[from.len() + i],
            yielded: yielded[i],
            size: element_size(c.type_of(instruction.operands[i])),
        })
        .collect();
    // What is yielded may be an argument of the block itself, or that of another tile.
    let aside: Vec<usize> = parts.iter().map(|part| c.reserve(lanes * part.size)).collect();
    let step: Step = Box::new(move |frame| {
        // A slice of the tile at one place of the axis, to or from dense lanes.
        let slice = |lane: usize, at: usize| (lane / inner * length + at) * inner + lane % inner;
        for i in 0..length {
            let at = if scan == Some(true) { length - 1 - i } else { i };
            for part in &parts {
                let to = frame.at(if i == 0 { part.combined } else { part.next });
                for lane in 0..lanes {
                    // SAFETY: the slice lies within the tile, the lane within the argument.
                    unsafe {
                        copy_element(
                            to.add(lane * part.size),
                            frame.at(part.from).add(slice(lane, at) * part.size),
                            part.size,
                        )
                    };
                }
            }
            if i > 0 {
                body.iter().try_for_each(|step| step(frame))?;
                for (part, &aside) in parts.iter().zip(&aside) {
                    // SAFETY: places of `lanes` elements.
                    unsafe { std::ptr::copy(frame.at(part.yielded), frame.at(aside), lanes * part.size) };
                }
                for (part, &aside) in parts.iter().zip(&aside) {
                    // SAFETY: as above.
                    unsafe { std::ptr::copy(frame.at(aside), frame.at(part.combined), lanes * part.size) };
                }
            }
            if scan.is_none() && i + 1 < length {
                continue;
            }
            for part in &parts {
                for lane in 0..lanes {
                    let place = if scan.is_some() { slice(lane, at) } else { lane };
                    // SAFETY: the place lies within the result.
                    unsafe {
                        copy_element(
                            frame.at(part.to).add(place * part.size),
                            frame.at(part.combined).add(lane * part.size),
                            part.size,
                        )
                    };
                }
            }
        }
        Ok(())
    });
    c.push(lanes * length, 4.0, step);
    Ok(())
}
