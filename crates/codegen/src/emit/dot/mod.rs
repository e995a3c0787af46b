//! Products of matrices: the factors are staged in threadgroup memory, and each simdgroup or thread sums up its own blocks of the product.

mod matrix;

use super::element::Body;
use super::{Emitter, Result};
use crate::dialect::Dialect;
use crate::layout::{Layout, bits_of, bits_of_axis};
pub(crate) use matrix::Unit;
use openmps_tile::{Instruction, Operation, Scalar, Value};

/// Factors in threadgroup memory.
struct Staged {
    factor: Scalar,
    columns: usize,
    /// How much of the depth is there.
    depth: usize,
    /// Elements from one row of the left factor to the next.
    left_pitch: usize,
    /// Elements from one row of the right factor to the next; from one column, where the depth is innermost.
    right_pitch: usize,
    /// Whether the right factor lies with its depth innermost.
    right_by_column: bool,
}

impl Staged {
    /// Rows are padded by 16 bytes for NVIDIA's matrix unit, whose lanes would otherwise meet in the same banks.
    fn new(factor: Scalar, columns: usize, depth: usize, dialect: Dialect, unit: Option<&Unit>) -> Staged {
        let by_column = unit.is_some() && dialect == Dialect::Cuda;
        let padding = if by_column { 16 / factor.size() } else { 0 };
        let right_pitch = if by_column { depth + padding } else { columns };
        Staged { factor, columns, depth, left_pitch: depth + padding, right_pitch, right_by_column: by_column }
    }

    fn left_bytes(&self, rows: usize) -> usize {
        (rows * self.left_pitch * self.factor.size()).next_multiple_of(16)
    }

    fn right_bytes(&self) -> usize {
        (if self.right_by_column { self.columns } else { self.depth }) * self.right_pitch * self.factor.size()
    }
}

impl<'k> Emitter<'k> {
    /// `x * y + sum` of tiles.
    pub(super) fn dot(&mut self, instruction: &'k Instruction) -> Result<()> {
        self.flush()?;
        let [x, y, sum] = instruction.operands[..] else { return Err(self.unsupported(Operation::Dot.name())) };
        let (result, factor) = (instruction.results[0], self.number(x));
        if self.type_of(x).dims.len() != 2 || !factor.is_float() {
            return Err(self.unsupported(format!("tt.dot of {}", self.type_of(x))));
        }
        let layout = self.forms.natural(result).0;
        let sizes @ [rows, depth, columns] = padded(&self.type_of(x).dims, &self.type_of(y).dims);
        let unit = Unit::of(self.target.dialect, factor, sizes);
        let staged = self.largest_chunk(factor, sizes, unit)?;
        self.bring(sum, &layout)?;
        for operand in [x, y] {
            let own = self.forms.natural(operand).0.dense().0;
            self.bring(operand, &own)?;
        }
        let name = self.declare(result, &layout)?;
        self.open_registers(layout.registers());
        let initial = self.element(&mut Body::default(), sum, &layout)?;
        self.line(format!("{} = {initial};", self.place(&name, &layout)));
        self.close();
        let (storage, space) = (self.target.dialect.storage(factor), self.scratch_space());
        for part in 0..depth / staged.depth {
            self.take_scratch(staged.left_bytes(rows) + staged.right_bytes());
            self.open("{");
            self.line(format!("{space}{storage}* left = {};", self.scratch_pointer(storage, 0)));
            self.line(format!("{space}{storage}* right = {};", self.scratch_pointer(storage, staged.left_bytes(rows))));
            self.stage(x, "left", 1, &staged, part)?;
            self.stage(y, "right", 0, &staged, part)?;
            self.scratch_written();
            match unit {
                Some(unit) => self.multiply_on_unit(unit, &layout, &name, &staged)?,
                None => self.multiply_by_thread(&layout, &name, &staged),
            }
            self.close();
        }
        debug_assert_eq!(columns, staged.columns);
        Ok(())
    }

    /// As much of the depth as fits into threadgroup memory at a time.
    fn largest_chunk(&self, factor: Scalar, [rows, depth, columns]: [usize; 3], unit: Option<&Unit>) -> Result<Staged> {
        let limit = self.target.limits.threadgroup_memory;
        let mut chunk = depth;
        loop {
            let staged = Staged::new(factor, columns, chunk, self.target.dialect, unit);
            let needed = staged.left_bytes(rows) + staged.right_bytes();
            if needed <= limit {
                return Ok(staged);
            }
            if chunk == unit.map_or(1, Unit::depth) {
                return Err(self.limit("bytes of threadgroup memory", needed, limit));
            }
            chunk /= 2;
        }
    }

    /// Each thread multiplies and adds for its own elements.
    fn multiply_by_thread(&mut self, layout: &Layout, name: &str, staged: &Staged) {
        let place = self.place(name, layout);
        self.open(format!("for (uint step = 0; step < {}; ++step) {{", staged.depth));
        let row = layout.index(bits_of(staged.columns), layout.bits().len());
        let column = layout.index(0, bits_of(staged.columns));
        let widen = |text: String| self.target.dialect.widen(staged.factor, &text);
        let left = widen(format!("left[({row}) * {} + step]", staged.left_pitch));
        let right = widen(format!("right[step * {} + ({column})]", staged.right_pitch));
        self.each_register(layout.registers(), format!("{place} = fma({left}, {right}, {place});"));
        self.close();
    }

    /// Writes the `part`-th chunk of a factor to threadgroup memory; `axis` is the one along the depth.
    fn stage(&mut self, value: Value, name: &str, axis: usize, staged: &Staged, part: usize) -> Result<()> {
        let (ty, chunk) = (self.type_of(value), staged.depth);
        let layout = self.forms.natural(value).0.dense().0;
        self.open_registers(layout.registers());
        let element = self.element(&mut Body::default(), value, &layout)?;
        let zero = self.target.dialect.register(staged.factor);
        let element = match self.inside(ty, &layout) {
            Some(inside) => format!("({inside} ? {element} : {zero}(0))"),
            None => element,
        };
        let element = self.target.dialect.narrow(staged.factor, &element);
        let along = |axis: usize| {
            let bits = bits_of_axis(&ty.dims, axis);
            layout.index(bits.start, bits.end)
        };
        let (row, column) = (along(0), along(1));
        let is_whole = ty.dims[axis].next_power_of_two() == chunk;
        let within = |index: &str| if is_whole { format!("({index})") } else { format!("(({index}) % {chunk})") };
        let place = match (axis, staged.right_by_column) {
            (1, _) => format!("({row}) * {} + {}", staged.left_pitch, within(&column)),
            (_, true) => format!("({column}) * {} + {}", staged.right_pitch, within(&row)),
            _ => format!("{} * {} + ({column})", within(&row), staged.right_pitch),
        };
        let mut conditions: Vec<String> = self.first_of_replicas(&layout).into_iter().collect();
        if !is_whole {
            conditions.push(format!("({}) / {chunk} == {part}", if axis == 1 { &column } else { &row }));
        }
        let write = format!("{name}[{place}] = {element};");
        self.line(if conditions.is_empty() { write } else { format!("if ({}) {write}", conditions.join(" && ")) });
        self.close();
        Ok(())
    }
}

/// Rows, depth and columns, each padded to a power of two.
pub(crate) fn padded(x: &[usize], y: &[usize]) -> [usize; 3] {
    [x[0], x[1], y[1]].map(usize::next_power_of_two)
}
