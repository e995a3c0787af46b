//! Products on `wgmma`: four warps multiply 64 rows by up to 256 columns at once, from factors in shared memory or a left one in registers.
//!
//! PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate": a factor is named by a descriptor of where its core matrices of 8 lines
//! of 16 bytes begin, and how far apart they are along the depth and along the other axis; either axis may be the one along a line.

use super::matrix::Blocks;
use super::staged::{Factor, Staged};
use crate::emit::Emitter;
use crate::mma::MmaShape;
use openmps_tile::Scalar;

/// Columns of one instruction at most.
const MOST_COLUMNS: usize = 256;

/// Columns of a block.
const BLOCK: usize = 8;

/// Operands of an instruction in PTX's text, which are numbered, and in CUDA's, which follows it.
#[derive(Default)]
struct Operands {
    count: usize,
    outputs: Vec<String>,
    inputs: Vec<String>,
}

impl Operands {
    /// A register that is read and written.
    fn sum(&mut self, register: String) -> String {
        self.outputs.push(format!("\"+f\"({register})"));
        self.next()
    }

    /// What is read, by its constraint: "r" for 32 bits, "l" for 64.
    fn input(&mut self, constraint: &str, value: &str) -> String {
        self.inputs.push(format!("\"{constraint}\"({value})"));
        self.next()
    }

    fn next(&mut self) -> String {
        self.count += 1;
        format!("%{}", self.count - 1)
    }
}

impl Emitter<'_> {
    /// Multiplies the staged factors and adds to the registers `name`; `registers` says where each block of a left factor begins that is in registers.
    pub(super) fn multiply_by_warpgroup(
        &mut self,
        mma: &MmaShape,
        (rows, columns): (&Blocks, &Blocks),
        name: &str,
        staged: &Staged,
        registers: Option<Vec<usize>>,
    ) {
        self.helpers.insert("matrix_descriptor");
        let together = columns.count().min(MOST_COLUMNS / BLOCK);
        for i in 0..rows.count() {
            for first in (0..columns.count()).step_by(together) {
                let register = registers.as_ref().map(|registers| registers[i]);
                self.multiply_at(mma, (rows, i), (columns, first, together), name, staged, register);
            }
        }
    }

    /// The whole depth of one block of rows and of columns beside each other. All of it is one statement, so that no register of the sums is
    /// touched before they are complete.
    fn multiply_at(
        &mut self,
        mma: &MmaShape,
        (rows, i): (&Blocks, usize),
        (columns, first, together): (&Blocks, usize, usize),
        name: &str,
        staged: &Staged,
        left_register: Option<usize>,
    ) {
        let mut operands = Operands::default();
        let register = |j: usize| rows.register(i) + columns.register(first + j);
        let sums: Vec<String> = (0..together)
            .flat_map(|j| (0..4).map(move |k| register(j) + k))
            .map(|register| operands.sum(format!("{name}[{register}]")))
            .collect();
        let apart = if together > 1 { columns.offset(first + 1) - columns.offset(first) } else { BLOCK };
        let row = format!("first_row + {}", rows.offset(i));
        let column = format!("first_column + {}", columns.offset(first));
        let ty = if staged.factor == Scalar::BF16 { "bf16" } else { "f16" };
        let (count, turned) = (together * BLOCK, |factor: &Factor| u8::from(!factor.is_by_depth()));
        let mut text = "{ .reg .pred adds; setp.ne.b32 adds, 1, 0; wgmma.fence.sync.aligned; ".to_owned();
        for step in (0..staged.depth).step_by(mma.depth()) {
            let right = descriptor("right", &staged.right_factor, [&step.to_string(), &column], apart);
            let (left, left_turned) = match left_register {
                Some(register) => {
                    // Two elements of a half type in a word.
                    let word = (register + step / mma.depth_per_register()) / 2;
                    let place = |i: usize| format!("left_elements[{}]", word + i);
                    let words: Vec<String> = (0..4).map(|i| operands.input("r", &place(i))).collect();
                    (format!("{{{}}}", words.join(", ")), String::new())
                }
                None => {
                    let left = descriptor("left", &staged.left_factor, [&row, &step.to_string()], BLOCK);
                    (operands.input("l", &left), format!(", {}", turned(&staged.left_factor)))
                }
            };
            let right = operands.input("l", &right);
            text += &format!(
                "wgmma.mma_async.sync.aligned.m64n{count}k16.f32.{ty}.{ty} {{{}}}, {left}, {right}, adds, 1, 1{left_turned}, {}; ",
                sums.join(", "),
                turned(&staged.right_factor)
            );
        }
        text += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }";
        let (outputs, inputs) = (operands.outputs.join(", "), operands.inputs.join(", "));
        self.line(format!("asm volatile(\"{text}\" : {outputs} : {inputs} : \"memory\");"));
    }
}

/// The descriptor of a factor from this element on: core matrices are `apart` elements apart along the axis that is not the depth.
fn descriptor(name: &str, factor: &Factor, first: [&str; 2], apart: usize) -> String {
    let [by_depth, by_other] = factor.core_steps().map(|elements| elements * 2);
    let by_other = by_other * (apart / BLOCK);
    format!("matrix_descriptor({name} + ({}), {by_depth}, {by_other})", factor.place(first))
}
