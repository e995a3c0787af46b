//! Products by Metal 4's tensor operations: `mpp::tensor_ops::matmul2d` by one simdgroup each, for all of its blocks at once.
//!
//! A product is summed up in a cooperative tensor, whose elements Apple spreads over the lanes as it likes: the place of each is known only where
//! the kernel runs. A sum that a loop does nothing with but add products to stays there while the loop runs; what anybody else reads goes
//! through threadgroup memory into registers of the layout that the rest of the kernel counts on.

use super::matrix::Blocks;
use super::staged::{Factor, Staged};
use crate::assign::Form;
use crate::emit::{Emitter, Result};
use crate::layout::{IndexBit, Layout, bits_of};
use crate::mma::MmaShape;
use crate::target::{MatrixUnit, SIMD_WIDTH};
use openmps_tile::{Instruction, Operation, Value};

/// Bits of a thread's index within its simdgroup.
const LANE_BITS: u8 = SIMD_WIDTH.trailing_zeros() as u8;

/// Rows of a block.
const BLOCK_ROWS: usize = 16;

/// A cooperative tensor of sums, and what the text calls it.
#[derive(Clone)]
pub(in crate::emit) struct Sums {
    number: usize,
    /// Rows that go through threadgroup memory at a time.
    rows_at_once: usize,
}

/// What one simdgroup has of a product: its sizes, and where its first element is.
struct Area {
    rows: usize,
    columns: usize,
    first_row: String,
    first_column: String,
    /// Bits of the product's columns.
    columns_end: usize,
}

impl Area {
    fn of(layout: &Layout, columns: usize) -> Area {
        let columns_end = bits_of(columns);
        let inside = |from: usize, to: usize| {
            let within = |place: &&IndexBit| !matches!(place, IndexBit::Thread(bit) if *bit >= LANE_BITS);
            layout.bits()[from..to].iter().take_while(within).count()
        };
        let (of_columns, of_rows) = (inside(0, columns_end), inside(columns_end, layout.bits().len()));
        let first = |from: usize, to: usize, size: usize| Blocks::of(layout, from, to, size).begin;
        Area {
            rows: 1 << of_rows,
            columns: 1 << of_columns,
            first_row: first(columns_end, layout.bits().len(), of_rows),
            first_column: first(0, columns_end, of_columns),
            columns_end,
        }
    }
}

impl<'k> Emitter<'k> {
    /// `x * y + sum` by tensor operations.
    pub(super) fn dot_by_tensors(
        &mut self,
        instruction: &'k Instruction,
        layout: &Layout,
        staged: &Staged,
    ) -> Result<()> {
        let (sum, result) = (instruction.operands[2], instruction.results[0]);
        if let Some(sums) = self.sums.get(&sum).cloned() {
            self.bring_factors(instruction)?;
            return self.multiply_parts(instruction, layout, staged, &sums);
        }
        self.bring(sum, layout)?;
        self.bring_factors(instruction)?;
        let name = self.declare(result, layout)?;
        self.copy(&name, sum, layout)?;
        self.open("{");
        let sums = self.declare_sums(layout, staged);
        self.multiply_parts(instruction, layout, staged, &sums)?;
        self.add_sums(&name, layout, staged.columns, &sums);
        self.close();
        Ok(())
    }

    /// Declares tensors for those of a loop's values that its block does nothing with but add products to.
    pub(in crate::emit) fn sum_in_place(&mut self, for_loop: &'k Instruction) -> Result<()> {
        for carried in for_loop.carried() {
            let Some(product) = self.product_in_place(for_loop, carried.argument, carried.next) else { continue };
            let layout = self.forms.natural(carried.next).0;
            let (_, staged) = self.staged(product)?;
            let sums = self.declare_sums(&layout, &staged);
            self.sums.insert(carried.argument, sums);
        }
        Ok(())
    }

    /// After the loop its results are what it began with and the sums.
    pub(in crate::emit) fn leave_sums(&mut self, for_loop: &'k Instruction) -> Result<()> {
        for carried in for_loop.carried() {
            let Some(sums) = self.sums.get(&carried.argument).cloned() else { continue };
            let Form::Materialized { layout, .. } = self.forms.of(carried.result).clone() else { continue };
            let (layout, columns) = (layout.dense().0, self.type_of(carried.result).dims[1].next_power_of_two());
            self.bring(carried.initial, &layout)?;
            let name = self.declare(carried.result, &layout)?;
            self.copy(&name, carried.initial, &layout)?;
            self.open("{");
            self.add_sums(&name, &layout, columns, &sums);
            self.close();
        }
        Ok(())
    }

    /// The product that a loop adds to one of its values, where tensor operations compute it, and nobody reads the value or the sum in the loop.
    fn product_in_place(&self, for_loop: &'k Instruction, argument: Value, next: Value) -> Option<&'k Instruction> {
        let block = &for_loop.blocks[0];
        let product = block.instructions.iter().find(|instruction| instruction.results.first() == Some(&next))?;
        let [x, y, sum] = product.operands[..] else { return None };
        let (of_x, of_y) = (self.type_of(x), self.type_of(y));
        if product.operation != Operation::Dot || sum != argument || of_x.dims.len() != 2 {
            return None;
        }
        let read_once = |value: Value| self.readers.get(&value).is_some_and(|readers| readers.len() == 1);
        let unit = MmaShape::of(self.target, self.number(x), &of_x.dims, &of_y.dims)?.unit;
        (unit == MatrixUnit::TensorOps && read_once(argument) && read_once(next)).then_some(product)
    }

    /// Declares the operation and a tensor of zeros for its sums.
    fn declare_sums(&mut self, layout: &Layout, staged: &Staged) -> Sums {
        self.names += 1;
        self.tensors = true;
        let (number, area) = (self.names, Area::of(layout, staged.columns));
        let storage = self.target.dialect.storage(staged.factor);
        let turned = [!staged.left_factor.is_by_depth(), staged.right_factor.is_by_depth()];
        self.line(format!(
            "constexpr auto descriptor{number} = mpp::tensor_ops::matmul2d_descriptor({}, {}, {}, {}, {}, false, {MODE});",
            area.rows, area.columns, staged.depth, turned[0], turned[1]
        ));
        self.line(format!("mpp::tensor_ops::matmul2d<descriptor{number}, execution_simdgroup> product{number};"));
        self.line(format!(
            "using factor{number} = tensor<threadgroup {storage}, dextents<int32_t, 2>, tensor_inline>;"
        ));
        let types = format!("factor{number}, factor{number}, float");
        self.line(format!("auto sums{number} = product{number}.get_destination_cooperative_tensor<{types}>();"));
        self.line("#pragma unroll");
        self.open(format!("for (ushort k = 0; k < sums{number}.get_capacity(); ++k) {{"));
        self.line(format!("if (sums{number}.is_valid_element(k)) sums{number}[k] = 0.0f;"));
        self.close();
        Sums { number, rows_at_once: self.rows_at_once(&area, staged) }
    }

    /// Rows of an area that are moved at a time: no more than take the place of the factors, but whole blocks where they fit at all.
    fn rows_at_once(&self, area: &Area, staged: &Staged) -> usize {
        let limit = self.target.limits.threadgroup_memory;
        let fits = |rows: usize| {
            let bytes = self.target.threads / SIMD_WIDTH * rows * area.columns * size_of::<f32>();
            bytes <= if rows > BLOCK_ROWS { staged.bytes() } else { limit }
        };
        let mut rows = area.rows;
        while rows > 1 && !fits(rows) {
            rows /= 2;
        }
        rows
    }

    /// Adds the product to the sums, one part of the depth after the other.
    fn multiply_parts(
        &mut self,
        product: &'k Instruction,
        layout: &Layout,
        staged: &Staged,
        sums: &Sums,
    ) -> Result<()> {
        let (number, area) = (sums.number, Area::of(layout, staged.columns));
        for part in 0..staged.parts {
            self.stage_part(product, staged, part)?;
            self.scratch_written();
            self.line(format!("const uint first_row = {};", area.first_row));
            self.line(format!("const uint first_column = {};", area.first_column));
            let left = block("left", &staged.left_factor, ["first_row", "0"], [area.rows, staged.depth]);
            let right = block("right", &staged.right_factor, ["0", "first_column"], [staged.depth, area.columns]);
            self.line(format!("factor{number} {left};"));
            self.line(format!("factor{number} {right};"));
            self.line(format!("product{number}.run(left_block, right_block, sums{number});"));
            self.close();
        }
        Ok(())
    }

    /// Adds the sums to registers: each simdgroup writes its own, where the tensor says that they belong, and reads what its lanes are to have.
    fn add_sums(&mut self, name: &str, layout: &Layout, columns: usize, sums: &Sums) {
        let (number, rows, area) = (sums.number, sums.rows_at_once, Area::of(layout, columns));
        let (elements, pieces) = (rows * area.columns, area.rows / rows);
        self.take_scratch(self.target.threads / SIMD_WIDTH * elements * size_of::<f32>());
        let memory = self.scratch_pointer("float", 0);
        self.line(format!("threadgroup float* moved = {memory} + (thread_index >> {LANE_BITS}) * {elements};"));
        let barrier = "simdgroup_barrier(mem_flags::mem_threadgroup);";
        let row = if pieces > 1 { format!("row % {rows}") } else { "row".to_owned() };
        if pieces > 1 {
            self.line("#pragma unroll");
            self.open(format!("for (uint piece = 0; piece < {pieces}; ++piece) {{"));
        }
        self.line("#pragma unroll");
        self.open(format!("for (ushort k = 0; k < sums{number}.get_capacity(); ++k) {{"));
        self.line(format!("if (!sums{number}.is_valid_element(k)) continue;"));
        self.line(format!("const auto index = sums{number}.get_multidimensional_index(k);"));
        self.line("const uint row = index[1], column = index[0];");
        self.move_row(rows, pieces, &format!("moved[{row} * {} + column] = sums{number}[k];", area.columns));
        self.close();
        self.line(barrier);
        self.open_registers(layout.registers());
        let end = area.columns_end;
        self.line(format!("const uint row = {};", layout.index(end, end + bits_of(area.rows))));
        self.line(format!("const uint column = {};", layout.index(0, bits_of(area.columns))));
        let place = self.place(name, layout);
        self.move_row(rows, pieces, &format!("{place} += moved[{row} * {} + column];", area.columns));
        self.close();
        if pieces > 1 {
            self.line(barrier);
            self.close();
        }
    }

    /// A statement for a row of the piece at hand.
    fn move_row(&mut self, rows: usize, pieces: usize, statement: &str) {
        let is_here = (pieces > 1).then(|| format!("row / {rows} == piece"));
        self.line_where(&is_here.into_iter().collect::<Vec<_>>(), statement.to_owned());
    }
}

/// The default would overwrite the sums.
const MODE: &str = "mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate";

/// A part of a factor in threadgroup memory as a tensor, from an element on: its extents are neighbours first, then lines.
fn block(name: &str, factor: &Factor, first: [&str; 2], sizes: [usize; 2]) -> String {
    let (neighbours, lines) = (sizes[factor.inner], sizes[1 - factor.inner]);
    format!(
        "{name}_block({name} + {}, dextents<int32_t, 2>({neighbours}, {lines}), array<int32_t, 2>{{1, {}}})",
        factor.place(first),
        factor.pitch()
    )
}
