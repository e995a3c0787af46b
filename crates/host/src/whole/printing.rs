//! `tt.print`: lines on standard output, those of one program after those of the other.

use super::compiler::{Compiler, element_size};
use super::memory::read;
use crate::error::Error;
use openmps_tile::kernel::{Instruction, Print};
use std::io::Write;

pub(super) fn print(c: &mut Compiler, instruction: &Instruction, print: &Print) {
    c.is_ordered = true;
    let print = print.clone();
    let operands: Vec<_> = instruction
        .operands
        .iter()
        .map(|&operand| (c.type_of(operand).clone(), c.place(operand), element_size(c.type_of(operand))))
        .collect();
    let kernel = c.kernel.name.clone();
    c.push(
        1,
        1000.0,
        Box::new(move |frame| {
            let bits: Vec<_> =
                operands.iter().map(|&(_, place, size)| move |i: usize| Some(read(frame, place, i, size))).collect();
            let elements = bits.iter().map(|bits| bits as &dyn Fn(usize) -> Option<u64>);
            let operands: Vec<_> = operands.iter().map(|(ty, ..)| ty).zip(elements).collect();
            let lines = print.lines(frame.program, &operands);
            let mut out = std::io::stdout().lock();
            let written = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
            written.map_err(|error| Error::Invalid(format!("{kernel}: tt.print: {error}")))
        }),
    );
}
