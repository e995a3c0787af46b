//! Products of matrices: the factors are staged in threadgroup memory, and each simdgroup or thread sums up its own blocks of the product.

mod matrix;

use super::element::Body;
use super::vector::{Vector, run_in};
use super::{Emitter, Result};
use crate::dialect::Dialect;
use crate::layout::{IndexBit, Layout, bits_of, bits_of_axis};
use crate::mma::{MmaShape, padded};
use openmps_tile::{Instruction, Operation, Scalar, Value};

/// Factors in threadgroup memory.
struct Staged {
    factor: Scalar,
    columns: usize,
    /// How much of the depth is there.
    depth: usize,
    rows: usize,
    left: Left,
    /// Elements from one line of the left factor to the next.
    left_pitch: usize,
    /// Elements from one row of the right factor to the next; from one column, where the depth is innermost.
    right_pitch: usize,
    /// Whether the right factor lies with its depth innermost.
    right_by_column: bool,
}

/// Where a product takes its left factor from.
#[derive(Clone, PartialEq)]
enum Left {
    /// Registers in this layout: the matrix unit's blocks, for the rows that each simdgroup sums up.
    Registers(Layout),
    /// Threadgroup memory, with the depth innermost.
    ByRow,
    /// Threadgroup memory, with the rows innermost.
    ByDepth,
}

/// How a product is computed.
#[derive(Clone)]
struct Way {
    mma: Option<&'static MmaShape>,
    left: Left,
    right_by_column: bool,
}

/// Elements that lines are longer than what is in them, so that eight lines of eight elements, a matrix unit's block, lie in different banks.
const PADDING: usize = 8;

impl Staged {
    /// Threads that multiply one by one read their columns of the right factor in vectors, without a gap.
    fn new(factor: Scalar, [rows, depth, columns]: [usize; 3], way: &Way) -> Staged {
        let Way { left, right_by_column, .. } = way.clone();
        let padding = if way.mma.is_some() { PADDING } else { 0 };
        let left_pitch = if left == Left::ByDepth { rows } else { depth } + PADDING;
        let right_pitch = if right_by_column { depth } else { columns } + padding;
        Staged { factor, columns, depth, rows, left, left_pitch, right_pitch, right_by_column }
    }

    fn left_bytes(&self) -> usize {
        let lines = match self.left {
            Left::Registers(_) => 0,
            Left::ByRow => self.rows,
            Left::ByDepth => self.depth,
        };
        (lines * self.left_pitch * self.factor.size()).next_multiple_of(16)
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
        let sizes @ [_, depth, columns] = padded(&self.type_of(x).dims, &self.type_of(y).dims);
        let mma = MmaShape::of(self.target.dialect, factor, sizes);
        let left = self.left_of(instruction, mma);
        // Both kinds of units read the right factor in either order.
        let right_by_column = mma.is_some() && self.inner_axis(y) == 0;
        let staged = self.largest_chunk(factor, sizes, &Way { mma, left, right_by_column })?;
        self.bring(sum, &layout)?;
        if mma.is_some() {
            let factors = self.factor_words(x) + self.factor_words(y);
            let registers = layout.registers() + self.target.stages * factors;
            self.product_registers = self.product_registers.max(registers);
        }
        for operand in [x, y] {
            let own = self.forms.natural(operand).0.dense().0;
            self.bring(operand, &own)?;
        }
        let name = self.declare(result, &layout)?;
        self.open_registers(layout.registers());
        let initial = self.element(&mut Body::default(), sum, &layout)?;
        self.line(format!("{} = {initial};", self.place(&name, &layout)));
        self.close();
        self.open("{");
        if let Left::Registers(own) = &staged.left {
            self.left_elements(x, own, factor)?;
        }
        for part in 0..depth / staged.depth {
            self.take_scratch(staged.left_bytes() + staged.right_bytes());
            self.open("{");
            if !matches!(staged.left, Left::Registers(_)) {
                self.stage(x, ("left", 0), 1, &staged, part)?;
            }
            self.stage(y, ("right", staged.left_bytes()), 0, &staged, part)?;
            self.scratch_written();
            match mma {
                Some(mma) => self.multiply_by_mma(mma, &layout, &name, &staged, part),
                None => self.multiply_by_thread(&layout, &name, &staged),
            }
            self.close();
        }
        self.close();
        debug_assert_eq!(columns, staged.columns);
        Ok(())
    }

    /// Where the left factor of a product is best taken from.
    fn left_of(&self, product: &Instruction, mma: Option<&MmaShape>) -> Left {
        let x = product.operands[0];
        let own = self.forms.left_layout(product).filter(|own| self.forms.natural(x).0.dense().0 == *own);
        // Apple's units read either order. Threads that multiply one by one read several rows for each step, which therefore lie innermost.
        match (own, mma) {
            (Some(own), _) => Left::Registers(own),
            (None, Some(_)) if self.target.dialect == Dialect::Cuda || self.inner_axis(x) == 1 => Left::ByRow,
            _ => Left::ByDepth,
        }
    }

    /// Registers of 32 bits that a thread's part of a factor takes.
    fn factor_words(&self, value: Value) -> usize {
        let registers = self.forms.natural(value).0.dense().0.registers();
        if self.raw.contains(&value) { registers.div_ceil(2) } else { registers }
    }

    /// As much of the depth as fits into threadgroup memory at a time.
    fn largest_chunk(&self, factor: Scalar, [rows, depth, columns]: [usize; 3], way: &Way) -> Result<Staged> {
        let limit = self.target.limits.threadgroup_memory;
        let mut chunk = depth;
        loop {
            let staged = Staged::new(factor, [rows, chunk, columns], way);
            let needed = staged.left_bytes() + staged.right_bytes();
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
        let row = layout.index(bits_of(staged.columns), layout.bits().len());
        let column = layout.index(0, bits_of(staged.columns));
        let widen = |text: String| self.target.dialect.widen(staged.factor, &text);
        let left = widen(format!("left[step * {} + ({row})]", staged.left_pitch));
        let right = widen(format!("right[step * {} + ({column})]", staged.right_pitch));
        self.each_register(layout.registers(), format!("{place} = fma({left}, {right}, {place});"));
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
        let (row, column) = (along(0), along(1));
        let is_whole = ty.dims[axis].next_power_of_two() == chunk;
        let within = |index: &str| if is_whole { format!("({index})") } else { format!("(({index}) % {chunk})") };
        let (place, inner, pitch) = match (axis, staged.right_by_column) {
            (1, _) if staged.left == Left::ByDepth => {
                (format!("{} * {} + ({row})", within(&column), staged.left_pitch), 0, staged.left_pitch)
            }
            (1, _) => (format!("({row}) * {} + {}", staged.left_pitch, within(&column)), 1, staged.left_pitch),
            (_, true) => (format!("({column}) * {} + {}", staged.right_pitch, within(&row)), 0, staged.right_pitch),
            _ => (format!("{} * {} + ({column})", within(&row), staged.right_pitch), 1, staged.right_pitch),
        };
        let mut conditions: Vec<String> = self.first_of_replicas(&layout).into_iter().collect();
        if !is_whole {
            conditions.push(format!("({}) / {chunk} == {part}", if axis == 1 { &column } else { &row }));
        }
        let place = format!("{name} + {place}");
        let run = run_in(&layout, &ty.dims, inner).min(if inner == axis { chunk } else { usize::MAX });
        match Vector::new(run, staged.factor).filter(|vector| pitch.is_multiple_of(vector.count())) {
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
