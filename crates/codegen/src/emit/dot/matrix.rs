//! Products on the matrix units: Apple's simdgroup matrices of 8 x 8, NVIDIA's `mma` of 16 x 8 x 16 for half types; tensor operations are in
//! `tensor.rs`, `wgmma` is in `warpgroup.rs`.
//!
//! Both spread a block of the product over the 32 lanes of a simdgroup in a fixed way, which is a [`Layout`] like any other: sums stay in
//! registers from one product to the next, and whatever else a kernel does with them is elementwise in that layout.

use super::staged::{Factor, Left, Staged};
use crate::dialect::Dialect;
use crate::emit::element::Body;
use crate::emit::{Emitter, Result};
use crate::layout::{IndexBit, Layout, bits_of};
use crate::mma::MmaShape;
use crate::target::MatrixUnit;
use openmps_tile::{Cast, Operation, Scalar, Value};

/// One dimension of the blocks that a simdgroup has: where its first block begins, and the bits of its registers.
pub(super) struct Blocks {
    /// The index of the first element of the simdgroup's first block, as an expression.
    pub begin: String,
    /// Places of the block's number: bits of the index, and of the register.
    bits: Vec<(usize, u8)>,
}

impl Blocks {
    pub fn of(layout: &Layout, from: usize, to: usize, size: usize) -> Blocks {
        let places = &layout.bits()[from + size..to];
        let mut bits = Vec::new();
        let mut begin = Vec::new();
        for (i, place) in places.iter().enumerate() {
            match *place {
                IndexBit::Register(register) => bits.push((size + i, register)),
                IndexBit::Thread(thread) => begin.push(format!("(thread_index >> {thread} & 1) << {}", size + i)),
            }
        }
        let begin = if begin.is_empty() { "0".to_owned() } else { begin.join(" | ") };
        Blocks { begin, bits }
    }

    pub fn count(&self) -> usize {
        1 << self.bits.len()
    }

    /// How far block `number` lies behind the first one.
    pub fn offset(&self, number: usize) -> usize {
        self.bits.iter().enumerate().map(|(i, (bit, _))| (number >> i & 1) << bit).sum()
    }

    /// The register that block `number` begins with.
    pub fn register(&self, number: usize) -> usize {
        self.bits.iter().enumerate().map(|(i, (_, register))| (number >> i & 1) << register).sum()
    }
}

impl Emitter<'_> {
    /// Multiplies the staged factors and adds to the registers `name`.
    pub(super) fn multiply_by_mma(
        &mut self,
        mma: &MmaShape,
        layout: &Layout,
        name: &str,
        staged: &Staged,
        part: usize,
    ) {
        let columns_end = bits_of(staged.columns);
        let columns = Blocks::of(layout, 0, columns_end, mma.columns);
        let rows = Blocks::of(layout, columns_end, layout.bits().len(), mma.rows);
        self.line(format!("const uint first_row = {};", rows.begin));
        self.line(format!("const uint first_column = {};", columns.begin));
        let registers = left_registers(mma, staged, part, rows.count());
        if mma.unit == MatrixUnit::Warpgroup {
            return self.multiply_by_warpgroup(mma, (&rows, &columns), name, staged, registers);
        }
        let begin = |register: usize| format!("{register} + step / {}", mma.depth_per_register());
        let begins: Option<Vec<String>> = registers.map(|registers| registers.into_iter().map(begin).collect());
        self.line("#pragma unroll");
        self.open(format!("for (uint step = 0; step < {}; step += {}) {{", staged.depth, mma.depth()));
        match mma.unit {
            MatrixUnit::Simdgroup => self.simdgroup_step(&rows, &columns, name, staged, begins),
            _ => self.mma_step(&rows, &columns, name, staged, begins),
        }
        self.close();
    }

    /// The left factor's registers as the units take them: `left_elements`, two halves in a word for NVIDIA's.
    pub(super) fn left_elements(&mut self, x: Value, own: &Layout, factor: Scalar) -> Result<()> {
        let x = self.before_rounding(x, own, factor);
        let (dialect, is_raw) = (self.target.dialect, self.raw.contains(&x));
        if dialect == Dialect::Metal {
            self.line(format!("{} left_elements[{}];", dialect.storage(factor), own.registers()));
            self.open_registers(own.registers());
            let element = self.element(&mut Body::default(), x, own)?;
            let element = if is_raw { element } else { dialect.narrow(factor, &element) };
            self.line(format!("left_elements[k] = {element};"));
        } else {
            self.line(format!("uint left_elements[{}];", own.registers() / 2));
            self.line("#pragma unroll");
            self.open(format!("for (uint first = 0; first < {}; first += 2) {{", own.registers()));
            self.line(if is_raw { "ushort parts[2];" } else { "float parts[2];" });
            self.line("#pragma unroll");
            self.open("for (uint k = first; k < first + 2; ++k) {");
            self.registers = own.registers();
            let element = self.element(&mut Body::default(), x, own)?;
            let part = if is_raw { dialect.stored_bits(&element) } else { element };
            self.line(format!("parts[k - first] = {part};"));
            self.close();
            let pair = match (is_raw, factor) {
                (true, _) => "uint(parts[0]) | uint(parts[1]) << 16",
                (false, Scalar::BF16) => "bfloat_pair(parts[0], parts[1])",
                _ => "half_pair(parts[0], parts[1])",
            };
            self.helpers.insert("half_pair");
            self.line(format!("left_elements[first / 2] = {pair};"));
        }
        self.close();
        Ok(())
    }

    /// What a factor is the rounded form of, where that is in registers, too: it is rounded as it is taken, once instead of twice.
    fn before_rounding(&self, x: Value, own: &Layout, factor: Scalar) -> Value {
        let cast = self.forms.definition(x).filter(|of| of.operation == Operation::Cast(Cast::Float));
        let wide = cast.map(|of| of.operands[0]).filter(|&wide| {
            let is_float32 = self.number(wide) == Scalar::F32 && self.number(x) == factor;
            is_float32 && factor.size() == 2 && self.array(wide, own).is_some()
        });
        wide.unwrap_or(x)
    }

    fn simdgroup_step(
        &mut self,
        rows: &Blocks,
        columns: &Blocks,
        name: &str,
        staged: &Staged,
        begins: Option<Vec<String>>,
    ) {
        let storage = self.target.dialect.storage(staged.factor);
        let matrix = format!("simdgroup_matrix<{storage}, 8, 8>");
        self.line(format!("{matrix} left_blocks[{}], right_blocks[{}];", rows.count(), columns.count()));
        for i in 0..rows.count() {
            if let Some(begins) = &begins {
                for element in 0..2 {
                    let from = format!("left_elements[{} + {element}]", begins[i]);
                    self.line(format!("left_blocks[{i}].thread_elements()[{element}] = {from};"));
                }
                continue;
            }
            let first = format!("(first_row + {})", rows.offset(i));
            let load = simdgroup_load("left", i, [&first, "step"], &staged.left_factor);
            self.line(load);
        }
        for j in 0..columns.count() {
            let first = format!("(first_column + {})", columns.offset(j));
            let load = simdgroup_load("right", j, ["step", &first], &staged.right_factor);
            self.line(load);
        }
        for i in 0..rows.count() {
            for j in 0..columns.count() {
                let register = rows.register(i) + columns.register(j);
                self.open("{");
                self.line("simdgroup_matrix<float, 8, 8> sums;");
                for element in 0..2 {
                    self.line(format!("sums.thread_elements()[{element}] = {name}[{}];", register + element));
                }
                self.line(format!("simdgroup_multiply_accumulate(sums, left_blocks[{i}], right_blocks[{j}], sums);"));
                for element in 0..2 {
                    self.line(format!("{name}[{}] = sums.thread_elements()[{element}];", register + element));
                }
                self.close();
            }
        }
    }

    /// Fragments are loaded four blocks of 8 x 8 at a time; each lane names a row of one of them.
    fn mma_step(&mut self, rows: &Blocks, columns: &Blocks, name: &str, staged: &Staged, begins: Option<Vec<String>>) {
        let ty = if staged.factor == Scalar::BF16 { "bf16" } else { "f16" };
        self.helpers.insert("shared_address");
        self.line(format!("uint left_blocks[{}][4], right_blocks[{}][2];", rows.count(), columns.count()));
        self.line("const uint lane = thread_index & 31;");
        for i in 0..rows.count() {
            if let Some(begins) = &begins {
                for word in 0..4 {
                    self.line(format!("left_blocks[{i}][{word}] = left_elements[({}) / 2 + {word}];", begins[i]));
                }
                continue;
            }
            let row = format!("(first_row + {} + (lane & 15))", rows.offset(i));
            let place = format!("left + {row} * {} + step + (lane >> 4) * 8", staged.left_factor.pitch());
            let blocks: Vec<String> = (0..4).map(|part| format!("left_blocks[{i}][{part}]")).collect();
            self.load_matrices(&blocks, &place, false);
        }
        let together = columns.count().min(2);
        for j in (0..columns.count()).step_by(together) {
            let apart = if together == 2 { columns.offset(j + 1) - columns.offset(j) } else { 0 };
            let column = format!("first_column + {} + (lane >> 4) * {apart}", columns.offset(j));
            let pitch = staged.right_factor.pitch();
            let place = if staged.right_factor.is_by_depth() {
                format!("right + ({column} + (lane & 7)) * {pitch} + step + (lane >> 3 & 1) * 8")
            } else {
                format!("right + (step + (lane & 15)) * {pitch} + {column}")
            };
            let blocks: Vec<String> =
                (0..2 * together).map(|part| format!("right_blocks[{}][{}]", j + part / 2, part % 2)).collect();
            self.load_matrices(&blocks, &place, !staged.right_factor.is_by_depth());
        }
        for i in 0..rows.count() {
            for j in 0..columns.count() {
                let register = rows.register(i) + columns.register(j);
                let sums: Vec<String> = (0..4).map(|k| format!("\"+f\"({name}[{}])", register + k)).collect();
                let left: Vec<String> = (0..4).map(|k| format!("\"r\"(left_blocks[{i}][{k}])")).collect();
                let right: Vec<String> = (0..2).map(|k| format!("\"r\"(right_blocks[{j}][{k}])")).collect();
                self.line(format!(
                    "asm(\"mma.sync.aligned.m16n8k16.row.col.f32.{ty}.{ty}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};\" : {} : {}, {});",
                    sums.join(", "),
                    left.join(", "),
                    right.join(", ")
                ));
            }
        }
    }

    /// `ldmatrix`: two or four blocks of 8 x 8 halves; transposed where they lie with the depth outermost.
    fn load_matrices(&mut self, blocks: &[String], place: &str, transposed: bool) {
        let (count, turned) = (blocks.len(), if transposed { ".trans" } else { "" });
        let outputs: Vec<String> = blocks.iter().map(|block| format!("\"=r\"({block})")).collect();
        let numbers: Vec<String> = (0..count).map(|i| format!("%{i}")).collect();
        self.line(format!(
            "asm volatile(\"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16 {{{}}}, [%{count}];\" : {} : \"r\"(shared_address({place})));",
            numbers.join(", "),
            outputs.join(", ")
        ));
    }
}

/// The register that each block of a left factor in registers begins with, in a part of the depth.
fn left_registers(mma: &MmaShape, staged: &Staged, part: usize, count: usize) -> Option<Vec<usize>> {
    let Left::Registers(own) = &staged.left else { return None };
    let rows = Blocks::of(own, own.bits().len() - bits_of(staged.rows), own.bits().len(), mma.rows);
    let done = part * staged.depth / mma.depth_per_register();
    Some((0..count).map(|i| rows.register(i) + done).collect())
}

/// One block of a factor from threadgroup memory: its number, and its first element along either axis.
fn simdgroup_load(name: &str, block: usize, first: [&str; 2], factor: &Factor) -> String {
    let (inner, line, pitch) = (first[factor.inner], first[1 - factor.inner], factor.pitch());
    let turned = if factor.inner == 0 { ", ulong2(0, 0), true" } else { "" };
    format!("simdgroup_load({name}_blocks[{block}], {name} + {line} * {pitch} + {inner}, {pitch}{turned});")
}
