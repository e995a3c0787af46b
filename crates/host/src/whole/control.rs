//! Loops, conditions and assertions.

use super::compiler::Compiler;
use super::{Frame, Step};
use crate::error::Error;
use openmps_tile::Scalar;
use openmps_tile::Value;
use openmps_tile::kernel::Instruction;

/// A guess at how often a loop runs whose bounds are not known.
const REPEATS: f64 = 8.0;

/// Copies between places, all of which are read before the first is written.
struct Moves {
    moves: Vec<(usize, usize, usize)>,
    /// Where what another move overwrites is kept meanwhile; as many bytes as all moves together.
    aside: Option<usize>,
}

impl Moves {
    fn new(c: &mut Compiler, to: &[usize], from: &[Value]) -> Moves {
        let moves: Vec<(usize, usize, usize)> =
            to.iter().zip(from).map(|(&to, &from)| (to, c.place(from), c.bytes(from))).collect();
        let is_read_later = |(at, &(to, from, bytes)): (usize, &(usize, usize, usize))| {
            let is_met = |&(_, from, length): &(usize, usize, usize)| from < to + bytes && to < from + length;
            to != from && moves[at + 1..].iter().any(is_met)
        };
        let needs_aside = moves.iter().enumerate().any(is_read_later);
        let aside = needs_aside.then(|| c.reserve(moves.iter().map(|(.., bytes)| bytes).sum()));
        Moves { moves, aside }
    }

    fn run(&self, frame: &Frame) {
        let mut done = 0;
        for &(to, from, bytes) in &self.moves {
            let to = self.aside.map_or(to, |aside| aside + done);
            // SAFETY: places of this size; `copy` allows them to be the same.
            unsafe { std::ptr::copy(frame.at(from), frame.at(to), bytes) };
            done += bytes;
        }
        let Some(aside) = self.aside else { return };
        done = 0;
        for &(to, _, bytes) in &self.moves {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(frame.at(aside + done), frame.at(to), bytes) };
            done += bytes;
        }
    }
}

fn run(steps: &[Step], frame: &Frame) -> Result<(), Error> {
    steps.iter().try_for_each(|step| step(frame))
}

/// An integer of a type, sign-extended.
fn integer(frame: &Frame, place: usize, scalar: Scalar) -> i64 {
    // SAFETY: the place holds an integer of this type.
    unsafe {
        match scalar.size() {
            1 => frame.at(place).cast::<i8>().read().into(),
            2 => frame.at(place).cast::<i16>().read().into(),
            4 => frame.at(place).cast::<i32>().read().into(),
            _ => frame.at(place).cast::<i64>().read(),
        }
    }
}

fn is_true(frame: &Frame, place: usize) -> bool {
    // SAFETY: the place holds a boolean.
    unsafe { frame.at(place).read() != 0 }
}

pub(super) fn for_loop<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let block = &instruction.blocks[0];
    let scalar = c.number(instruction.operands[0]);
    let [lower, upper, step] = [0, 1, 2].map(|i| c.place(instruction.operands[i]));
    let index = c.result(block.arguments[0]);
    let carried: Vec<usize> = block.arguments[1..].iter().map(|&argument| c.result(argument)).collect();
    let enter = Moves::new(c, &carried, &instruction.operands[3..]);
    let mut next = None;
    let body = c.inner(block, REPEATS, |c, end| {
        next = Some(Moves::new(c, &carried, &end.operands));
        Ok(())
    })?;
    for (&result, &place) in instruction.results.iter().zip(&carried) {
        c.alias(result, place);
    }
    let kernel = c.kernel.name.clone();
    c.push(
        1,
        10.0,
        Box::new(move |frame| {
            enter.run(frame);
            let [mut at, upper, step] = [lower, upper, step].map(|place| integer(frame, place, scalar));
            if step < 1 {
                return Err(Error::Invalid(format!("{kernel}: the loop's step is {step}, expected at least 1")));
            }
            while at < upper {
                frame.count()?;
                // SAFETY: the index's place has eight bytes.
                unsafe { frame.at(index).cast::<i64>().write(at) };
                run(&body, frame)?;
                if let Some(next) = &next {
                    next.run(frame);
                }
                at = at.saturating_add(step);
            }
            Ok(())
        }),
    );
    Ok(())
}

pub(super) fn if_else<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let condition = c.place(instruction.operands[0]);
    let results: Vec<usize> = instruction.results.iter().map(|&result| c.result(result)).collect();
    let mut branch = |index: usize| {
        let mut end = None;
        let steps = c.inner(&instruction.blocks[index], 0.5, |c, last| {
            end = Some(Moves::new(c, &results, &last.operands));
            Ok(())
        })?;
        Ok::<_, Error>((steps, end))
    };
    let (on_true, on_false) = (branch(0)?, branch(1)?);
    c.push(
        1,
        5.0,
        Box::new(move |frame| {
            let (steps, end) = if is_true(frame, condition) { &on_true } else { &on_false };
            run(steps, frame)?;
            if let Some(end) = end {
                end.run(frame);
            }
            Ok(())
        }),
    );
    Ok(())
}

pub(super) fn while_loop<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction) -> Result<(), Error> {
    let [before, after] = &instruction.blocks[..] else { return Err(c.unsupported("scf.while")) };
    let carried: Vec<usize> = before.arguments.iter().map(|&argument| c.result(argument)).collect();
    let passed: Vec<usize> = instruction.results.iter().map(|&result| c.result(result)).collect();
    let enter = Moves::new(c, &carried, &instruction.operands);
    let mut end = None;
    let condition = c.inner(before, REPEATS, |c, last| {
        end = Some((c.place(last.operands[0]), Moves::new(c, &passed, &last.operands[1..])));
        Ok(())
    })?;
    for (&argument, &place) in after.arguments.iter().zip(&passed) {
        c.alias(argument, place);
    }
    let mut next = None;
    let body = c.inner(after, REPEATS, |c, last| {
        next = Some(Moves::new(c, &carried, &last.operands));
        Ok(())
    })?;
    let (Some((holds, pass)), Some(next)) = (end, next) else { return Err(c.unsupported("scf.while")) };
    c.push(
        1,
        10.0,
        Box::new(move |frame| {
            enter.run(frame);
            loop {
                frame.count()?;
                run(&condition, frame)?;
                pass.run(frame);
                if !is_true(frame, holds) {
                    return Ok(());
                }
                run(&body, frame)?;
                next.run(frame);
                // Another program may be holding what this one waits for.
                std::hint::spin_loop();
            }
        }),
    );
    Ok(())
}

pub(super) fn assert<'k>(c: &mut Compiler<'k>, instruction: &'k Instruction, message: &str) -> Result<(), Error> {
    let (place, count) = (c.place(instruction.operands[0]), c.len(instruction.operands[0]));
    let line = instruction.line.and_then(|line| c.kernel.lines.get(line as usize).cloned()).unwrap_or_default();
    let text = format!("{}: {line}: assertion failed: {message}", c.kernel.name);
    c.push(
        count,
        0.5,
        Box::new(move |frame| {
            let failed = (0..count).find(|&i| !is_true(frame, place + i));
            failed.map_or(Ok(()), |i| Err(Error::Invalid(format!("{text} (program {:?}, element {i})", frame.program))))
        }),
    );
    Ok(())
}
