//! Products of matrices: the factors are staged in threadgroup memory, and each thread sums up its own block of the product.

use super::element::Body;
use super::{Emitter, Result};
use crate::layout::{Layout, bits_of, bits_of_axis};
use openmps_tile::{Instruction, Operation, Scalar, Value};

impl<'k> Emitter<'k> {
    /// `x * y + sum` of tiles.
    pub(super) fn dot(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let [x, y, sum] = instruction.operands[..] else { return Err(self.unsupported(Operation::Dot.name())) };
        let result = instruction.results[0];
        let layout = self.forms.natural(result).0;
        let sizes = self.padded(x, y);
        let factor = self.number(x);
        let chunk = self.depth_of_chunk(sizes, factor);
        self.bring(sum, &layout)?;
        let name = self.declare(result, &layout)?;
        let place = self.place(&name, &layout);
        self.open_registers(layout.registers());
        let initial = self.element(&mut Body::default(), sum, &layout)?;
        self.line(format!("{place} = {initial};"));
        self.close();

        let storage = self.target.dialect.storage(factor);
        let space = self.scratch_space();
        let [rows, depth, columns] = sizes;
        let bytes_of_x = rows * chunk * factor.size();
        for part in 0..depth / chunk {
            self.take_scratch(bytes_of_x + columns * chunk * factor.size());
            self.open("{");
            self.line(format!("{space}{storage}* left = {};", self.scratch_pointer(storage, 0)));
            self.line(format!("{space}{storage}* right = {};", self.scratch_pointer(storage, bytes_of_x)));
            self.stage(x, "left", 1, chunk, part)?;
            self.stage(y, "right", 0, chunk, part)?;
            self.scratch_written();
            self.open(format!("for (uint step = 0; step < {chunk}; ++step) {{"));
            self.open_registers(layout.registers());
            let (row, column) = (row_of(&layout, columns), layout.index(0, bits_of(columns)));
            let left = self.target.dialect.widen(factor, &format!("left[({row}) * {chunk} + step]"));
            let right = self.target.dialect.widen(factor, &format!("right[step * {columns} + ({column})]"));
            self.line(format!("{place} = fma({left}, {right}, {place});"));
            self.close();
            self.close();
            self.close();
        }
        Ok(())
    }

    /// Rows, depth and columns, each padded to a power of two.
    fn padded(&self, x: Value, y: Value) -> [usize; 3] {
        let (x, y) = (&self.type_of(x).dims, &self.type_of(y).dims);
        [x[0], x[1], y[1]].map(usize::next_power_of_two)
    }

    /// How much of the depth fits into threadgroup memory at a time.
    fn depth_of_chunk(&self, [rows, depth, columns]: [usize; 3], factor: Scalar) -> usize {
        let fits = |chunk: usize| (rows + columns) * chunk * factor.size() <= self.target.limits.threadgroup_memory;
        let mut chunk = depth;
        while chunk > 1 && !fits(chunk) {
            chunk /= 2;
        }
        chunk
    }

    /// Writes the `part`-th chunk of a factor to threadgroup memory; `axis` is the one along the depth.
    fn stage(&mut self, value: Value, name: &str, axis: usize, chunk: usize, part: usize) -> Result<()> {
        let ty = self.type_of(value);
        let layout = self.forms.natural(value).0.dense().0;
        self.bring(value, &layout)?;
        self.open_registers(layout.registers());
        let element = self.element(&mut Body::default(), value, &layout)?;
        let zero = self.target.dialect.register(self.number(value));
        let element = match self.inside(ty, &layout) {
            Some(inside) => format!("({inside} ? {element} : {zero}(0))"),
            None => element,
        };
        let element = self.target.dialect.narrow(self.number(value), &element);
        let along = |axis: usize| {
            let bits = bits_of_axis(&ty.dims, axis);
            layout.index(bits.start, bits.end)
        };
        let (row, column) = (along(0), along(1));
        let depth = ty.dims[axis].next_power_of_two();
        let place = match axis {
            1 => format!("({row}) * {chunk} + ({column}) % {chunk}"),
            _ => format!("(({row}) % {chunk}) * {} + ({column})", ty.dims[1].next_power_of_two()),
        };
        let mut conditions: Vec<String> = self.first_of_replicas(&layout).into_iter().collect();
        if depth != chunk {
            conditions.push(format!("({}) / {chunk} == {part}", if axis == 1 { &column } else { &row }));
        }
        let write = format!("{name}[{place}] = {element};");
        self.line(if conditions.is_empty() { write } else { format!("if ({}) {write}", conditions.join(" && ")) });
        self.close();
        Ok(())
    }
}

/// The row of the product that register `k` belongs to.
fn row_of(layout: &Layout, columns: usize) -> String {
    layout.index(bits_of(columns), layout.bits().len())
}
