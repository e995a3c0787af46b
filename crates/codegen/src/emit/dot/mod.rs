//! Products of matrices: the factors are staged in threadgroup memory, and each simdgroup or thread sums up its own blocks of the product.

mod matrix;
mod staged;
mod tensor;
mod warpgroup;

use super::element::Body;
use super::vector::{Vector, run_in};
use super::{Emitter, Result};
use crate::layout::{IndexBit, Layout, bits_of, bits_of_axis};
use crate::mma::{MmaShape, padded};
use crate::target::MatrixUnit;
use openmps_tile::{Instruction, Operation, Scalar, Value};
use staged::{Left, Staged, Way};
pub(super) use tensor::Sums;

impl<'k> Emitter<'k> {
    /// `x * y + sum` of tiles.
    pub(super) fn dot(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let [x, _, sum] = instruction.operands[..] else { return Err(self.unsupported(Operation::Dot.name())) };
        let (result, factor) = (instruction.results[0], self.number(x));
        if !(factor.is_float() || factor == Scalar::I8) {
            return Err(self.unsupported(format!("tt.dot of {}", self.type_of(x))));
        }
        let layout = self.forms.natural(result).0;
        let (way, staged) = self.staged(instruction)?;
        let mma = way.mma;
        if mma.is_some_and(|mma| mma.unit == MatrixUnit::TensorOps) {
            return self.dot_by_tensors(instruction, &layout, &staged);
        }
        self.bring(sum, &layout)?;
        self.bring_factors(instruction)?;
        let name = self.declare(result, &layout)?;
        self.copy(&name, sum, &layout)?;
        match self.type_of(x).dims[..] {
            // One product of a batch after the other, by all threads: its factors take the place of the last one's.
            [batches, _, _] => {
                self.scratch_in_use = true;
                self.open(format!("for (uint batch = 0; batch < {batches}; ++batch) {{"));
            }
            _ => self.open("{"),
        }
        if let Left::Registers(own) = &staged.left {
            self.left_elements(x, own, factor)?;
        }
        for part in 0..staged.parts {
            self.stage_part(instruction, &staged, part)?;
            if mma.is_some_and(|mma| mma.unit == MatrixUnit::Warpgroup) {
                self.line("asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");");
            }
            self.scratch_written();
            match mma {
                Some(mma) => self.multiply_by_mma(mma, &layout, &name, &staged, part),
                None => self.multiply_by_thread(&layout, &name, &staged),
            }
            self.close();
        }
        self.close();
        Ok(())
    }

    /// How a product is computed, and how much of its factors is in threadgroup memory at a time.
    fn staged(&self, product: &Instruction) -> Result<(Way, Staged)> {
        let [x, y] = [0, 1].map(|i| product.operands[i]);
        let (factor, x, y) = (self.number(x), &self.type_of(x).dims, &self.type_of(y).dims);
        let way = self.way_of(product, MmaShape::of(self.target, factor, x, y));
        let staged = self.largest_chunk(factor, padded(x, y), &way)?;
        Ok((way, staged))
    }

    /// Makes both factors readable as they lie.
    fn bring_factors(&mut self, product: &Instruction) -> Result<()> {
        for &operand in &product.operands[..2] {
            let own = self.forms.natural(operand).0.dense().0;
            self.bring(operand, &own)?;
        }
        Ok(())
    }

    /// Opens a block in which `left` and `right` are a part of the factors in threadgroup memory, once all threads have written theirs.
    fn stage_part(&mut self, product: &Instruction, staged: &Staged, part: usize) -> Result<()> {
        self.take_scratch(staged.bytes());
        self.open("{");
        if staged.left == Left::Memory {
            self.stage(product.operands[0], ("left", 0), 1, staged, part)?;
        }
        self.stage(product.operands[1], ("right", staged.left_bytes()), 0, staged, part)
    }

    /// How a product is best computed.
    fn way_of(&self, product: &Instruction, mma: Option<&'static MmaShape>) -> Way {
        let [x, y] = [0, 1].map(|i| product.operands[i]);
        let own = self.forms.left_layout(product).filter(|own| self.forms.natural(x).0.dense().0 == *own);
        let left_inner = match mma.map(|mma| mma.unit) {
            Some(MatrixUnit::Simdgroup | MatrixUnit::TensorOps | MatrixUnit::Warpgroup) => self.inner_axis(x),
            Some(MatrixUnit::Warp) => 1,
            // Threads that multiply one by one read several rows for each step, which therefore lie innermost.
            None => 0,
        };
        // All units read the right factor in either order.
        let right_inner = if mma.is_some() { self.inner_axis(y) } else { 1 };
        Way { mma, left: own.map_or(Left::Memory, Left::Registers), left_inner, right_inner }
    }

    /// As much of the depth as fits into threadgroup memory at a time.
    fn largest_chunk(&self, factor: Scalar, [rows, depth, columns]: [usize; 3], way: &Way) -> Result<Staged> {
        let limit = self.target.limits.threadgroup_memory;
        let mut chunk = depth;
        loop {
            let staged = Staged::new(factor, [rows, chunk, columns], way, depth / chunk);
            let needed = staged.bytes();
            if needed <= limit {
                return Ok(staged);
            }
            if chunk == way.mma.map_or(1, MmaShape::depth) {
                return Err(self.limit("bytes of threadgroup memory", needed, limit));
            }
            chunk /= 2;
        }
    }

    /// The axis along which neighbours are in neighbouring registers of a thread, or else in neighbouring threads.
    fn inner_axis(&self, value: Value) -> usize {
        let (layout, dims) = (self.forms.natural(value).0.dense().0, &self.type_of(value).dims);
        let lies = |axis: usize, place: IndexBit| layout.bits()[bits_of_axis(dims, axis)].first() == Some(&place);
        let along = |place: IndexBit| (0..dims.len()).find(|&axis| lies(axis, place));
        along(IndexBit::Register(0)).or_else(|| along(IndexBit::Thread(0))).unwrap_or(dims.len() - 1)
    }

    /// Each thread multiplies and adds for its own elements.
    fn multiply_by_thread(&mut self, layout: &Layout, name: &str, staged: &Staged) {
        let place = self.place(name, layout);
        self.open(format!("for (uint step = 0; step < {}; ++step) {{", staged.depth));
        let (columns, rows) = (bits_of(staged.columns), bits_of(staged.columns) + bits_of(staged.rows));
        let (row, column) = (layout.index(columns, rows), layout.index(0, columns));
        let left = format!("left[{}]", staged.left_factor.place([&row, "step"]));
        let right = format!("right[{}]", staged.right_factor.place(["step", &column]));
        let dialect = self.target.dialect;
        let write = if staged.factor.is_float() {
            let [left, right] = [left, right].map(|text| dialect.widen(staged.factor, &text));
            format!("{place} = fma({left}, {right}, {place});")
        } else {
            let signed = dialect.signed(staged.factor);
            format!("{place} += uint(int({signed}({left})) * int({signed}({right})));")
        };
        let all = layout.bits().len();
        let of_batch = (all > rows).then(|| format!("if (({}) == batch) ", layout.index(rows, all)));
        self.each_register(layout.registers(), of_batch.unwrap_or_default() + &write);
        self.close();
    }

    /// Writes the `part`-th chunk of a factor to threadgroup memory; `axis` is the one along the depth.
    fn stage(
        &mut self,
        value: Value,
        (name, begin): (&str, usize),
        axis: usize,
        staged: &Staged,
        part: usize,
    ) -> Result<()> {
        let (storage, space) = (self.target.dialect.storage(staged.factor), self.scratch_space());
        self.line(format!("{space}{storage}* {name} = {};", self.scratch_pointer(storage, begin)));
        let (ty, chunk) = (self.type_of(value), staged.depth);
        let layout = self.forms.natural(value).0.dense().0;
        let along = |axis: usize| {
            let bits = bits_of_axis(&ty.dims, axis);
            layout.index(bits.start, bits.end)
        };
        // Axes before the two of a matrix.
        let outer = ty.dims.len() - 2;
        let (row, column) = (along(outer), along(outer + 1));
        let is_whole = ty.dims[outer + axis].next_power_of_two() == chunk;
        let within = |index: &str| if is_whole { index.to_owned() } else { format!("({index}) % {chunk}") };
        let (memory, place) = match axis {
            1 => (&staged.left_factor, staged.left_factor.place([&row, &within(&column)])),
            _ => (&staged.right_factor, staged.right_factor.place([&within(&row), &column])),
        };
        let mut conditions: Vec<String> = self.first_of_replicas(&layout).into_iter().collect();
        if !is_whole {
            conditions.push(format!("({}) / {chunk} == {part}", if axis == 1 { &column } else { &row }));
        }
        if outer > 0 {
            conditions.push(format!("({}) == batch", along(0)));
        }
        let place = format!("{name} + {place}");
        let run =
            run_in(&layout, &ty.dims, outer + memory.inner).min(if memory.is_by_depth() { chunk } else { usize::MAX });
        match Vector::new(run, staged.factor).filter(|vector| memory.pitch().is_multiple_of(vector.count())) {
            Some(vector) => self.stage_vectors(value, &layout, &vector, &place, &conditions),
            None => self.stage_elements(value, &layout, staged.factor, &place, &conditions),
        }
    }

    fn stage_elements(
        &mut self,
        value: Value,
        layout: &Layout,
        factor: Scalar,
        place: &str,
        conditions: &[String],
    ) -> Result<()> {
        self.open_registers(layout.registers());
        let mut element = self.element(&mut Body::default(), value, layout)?;
        if !self.raw.contains(&value) {
            element = self.target.dialect.narrow(factor, &self.or_zero(value, layout, element));
        }
        let write = format!("*({place}) = {element};");
        self.line_where(conditions, write);
        self.close();
        Ok(())
    }

    fn stage_vectors(
        &mut self,
        value: Value,
        layout: &Layout,
        vector: &Vector,
        place: &str,
        conditions: &[String],
    ) -> Result<()> {
        let dialect = self.target.dialect;
        self.open_parts(layout, vector);
        let element = self.element(&mut Body::default(), value, layout)?;
        let bits = if self.raw.contains(&value) {
            dialect.stored_bits(&element)
        } else {
            vector.bits(dialect, &self.or_zero(value, layout, element))
        };
        self.close_parts(&bits);
        let write = format!("*({}{}*)({place}) = {};", self.scratch_space(), vector.ty(), vector.joined(dialect));
        self.line_where(conditions, write);
        self.close();
        Ok(())
    }

    /// An element of a factor; zero for what pads its sizes. What was loaded in vectors is zero there already.
    fn or_zero(&self, value: Value, layout: &Layout, element: String) -> String {
        let zero = self.target.dialect.register(self.number(value));
        match self.inside(self.type_of(value), layout) {
            Some(inside) => format!("({inside} ? {element} : {zero}(0))"),
            None => element,
        }
    }
}
