//! Neighbouring elements that lie in one thread are loaded and stored together, 4, 8 or 16 bytes at a time.

use super::element::Body;
use super::{Emitter, Result};
use crate::dialect::Dialect;
use crate::layout::{IndexBit, Layout, bits_of_axis};
use openmps_tile::{Block, Instruction, Operation, Scalar, Value};

/// The names of a vector's words.
const WORDS: [&str; 4] = ["x", "y", "z", "w"];

/// Elements that are accessed together.
pub(super) struct Vector {
    /// How many.
    count: usize,
    /// What each is in memory.
    element: Scalar,
}

impl Vector {
    /// A vector of 4, 8 or 16 bytes.
    pub fn new(count: usize, element: Scalar) -> Option<Vector> {
        let count = count.min(16 / element.size());
        (count > 1 && count * element.size() >= 4).then_some(Vector { count, element })
    }

    fn words(&self) -> usize {
        self.count * self.element.size() / 4
    }

    /// How many elements it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bits of an element in a register.
    pub fn bits(&self, dialect: Dialect, element: &str) -> String {
        dialect.bits(self.element, self.integer(), element)
    }

    /// Its type in text.
    pub fn ty(&self) -> &'static str {
        match self.words() {
            1 => "uint",
            2 => "uint2",
            _ => "uint4",
        }
    }

    /// The integer that has an element's bits.
    fn integer(&self) -> Scalar {
        [Scalar::I8, Scalar::I16, Scalar::I32, Scalar::I64][self.element.size().trailing_zeros() as usize]
    }

    /// An element's bits, cut out of the vector `words`.
    fn part(&self, dialect: Dialect, index: usize) -> String {
        let size = self.element.size();
        let word = self.word(index * size / 4);
        let integer = dialect.register(self.integer());
        match size {
            8 => format!("(ulong({}) << 32 | {word})", self.word(2 * index + 1)),
            4 => word,
            _ => match 8 * (index * size % 4) {
                0 => format!("{integer}({word})"),
                shift => format!("{integer}({word} >> {shift})"),
            },
        }
    }

    /// One of the vector's words of 32 bits.
    fn word(&self, index: usize) -> String {
        if self.words() == 1 { "words".to_owned() } else { format!("words.{}", WORDS[index]) }
    }

    /// A vector of these words.
    fn of_words(&self, dialect: Dialect, words: &[String]) -> String {
        let make = if dialect == Dialect::Cuda { "make_" } else { "" };
        match words {
            [word] => word.clone(),
            words => format!("{make}{}({})", self.ty(), words.join(", ")),
        }
    }

    /// A vector made of elements' bits: `parts[i]` each.
    pub fn joined(&self, dialect: Dialect) -> String {
        let size = self.element.size();
        let words: Vec<String> = (0..self.words())
            .map(|word| match size {
                8 => format!("uint(parts[{}]{})", word / 2, if word % 2 == 1 { " >> 32" } else { "" }),
                4 => format!("parts[{word}]"),
                _ => {
                    let part = |i: usize| match 8 * size * i {
                        0 => format!("uint(parts[{}])", word * 4 / size),
                        shift => format!("uint(parts[{}]) << {shift}", word * 4 / size + i),
                    };
                    (0..4 / size).map(part).collect::<Vec<_>>().join(" | ")
                }
            })
            .collect();
        self.of_words(dialect, &words)
    }
}

/// How many neighbours along an axis are in neighbouring registers of a thread.
pub(super) fn run_in(layout: &Layout, dims: &[usize], axis: usize) -> usize {
    let bits = &layout.bits()[bits_of_axis(dims, axis)];
    1 << bits.iter().enumerate().take_while(|&(i, place)| *place == IndexBit::Register(i as u8)).count()
}

impl<'k> Emitter<'k> {
    /// The vector that a load or store of a tile can use in a layout.
    pub(super) fn vector_of(&self, instruction: &Instruction, layout: &Layout) -> Option<Vector> {
        let (mask, other) = match instruction.operation {
            Operation::Load => (instruction.operands.get(1), instruction.operands.get(2)),
            Operation::Store => (instruction.operands.get(2), None),
            _ => return None,
        };
        let pointers = instruction.operands[0];
        let (axis, most) = self.forms.axis_info.vector(pointers, mask.copied())?;
        let dims = &self.type_of(pointers).dims;
        // What pads a size to a power of two is in no vector of its own.
        let whole = dims[axis].is_power_of_two() || dims[axis].is_multiple_of(most);
        let same = |other: &Value| self.forms.axis_info.axis(*other, axis).constancy as usize;
        let count = most.min(run_in(layout, dims, axis)).min(other.map_or(most, same));
        Vector::new(count, self.type_of(pointers).target()?).filter(|_| whole)
    }

    /// Finds the tiles of half types that go from vectors to products, through carried values and transpositions at most: their bits are not
    /// looked at.
    pub(super) fn find_raw(&mut self, block: &Block) {
        self.find_raw_loads(block);
        self.find_raw_views(block);
    }

    fn find_raw_views(&mut self, block: &Block) {
        for instruction in &block.instructions {
            if matches!(instruction.operation, Operation::Permute { .. }) && self.raw.contains(&instruction.operands[0])
            {
                self.raw.insert(instruction.results[0]);
            }
            instruction.blocks.iter().for_each(|block| self.find_raw_views(block));
        }
    }

    fn find_raw_loads(&mut self, block: &Block) {
        for instruction in &block.instructions {
            let Some(&result) = instruction.results.first() else { continue };
            let is_half = matches!(self.type_of(result).number(), Some(Scalar::F16 | Scalar::BF16));
            if instruction.operation == Operation::Load && is_half && self.forms.dot_operands.contains(&result) {
                let layout = self.forms.natural(result).0.dense().0;
                let other = instruction.operands.get(2).and_then(|&other| self.forms.constant(other));
                let is_zero = instruction.operands.len() < 3 || other.is_some_and(|number| number.to_bits() == 0);
                if self.vector_of(instruction, &layout).is_some() && is_zero {
                    self.raw.insert(result);
                }
            }
            instruction.blocks.iter().for_each(|block| self.find_raw_loads(block));
            if instruction.operation == Operation::For {
                self.carry_raw(instruction);
            }
        }
    }

    /// A carried value is raw where both the initial one and the next one are; where only one is, neither is.
    fn carry_raw(&mut self, instruction: &Instruction) {
        for carried in instruction.carried().filter(|carried| self.forms.dot_operands.contains(&carried.argument)) {
            // What goes round is moved from one layout to the other as numbers.
            let layout = |value| self.forms.natural(value).0.dense().0;
            let alike =
                layout(carried.initial) == layout(carried.argument) && layout(carried.next) == layout(carried.argument);
            if alike && self.raw.contains(&carried.initial) && self.raw.contains(&carried.next) {
                self.raw.extend([carried.argument, carried.result]);
            } else {
                self.raw.remove(&carried.initial);
                self.raw.remove(&carried.next);
            }
        }
    }

    /// A tile that is loaded in vectors, into registers of its own.
    pub(super) fn load_vectors(
        &mut self,
        instruction: &'k Instruction,
        layout: &Layout,
        vector: &Vector,
    ) -> Result<()> {
        let is_raw = self.raw.contains(&instruction.results[0]);
        let name = self.declare(instruction.results[0], layout)?;
        self.note_load(instruction);
        self.registers = layout.registers();
        self.line("#pragma unroll");
        self.open(format!("for (uint k = 0; k < {}; k += {}) {{", layout.registers(), vector.count));
        let mut body = Body::default();
        let operands: Vec<String> = (instruction.operands.iter())
            .map(|&operand| self.element(&mut body, operand, layout))
            .collect::<Result<_>>()?;
        let inside = self.inside(self.type_of(instruction.operands[0]), layout);
        let conditions: Vec<String> = operands.get(1).cloned().into_iter().chain(inside).collect();
        let (dialect, ty) = (self.target.dialect, vector.ty());
        let read = format!("*(const {}{ty}*)({})", self.device(), operands[0]);
        let condition = conditions.join(" && ");
        if condition.is_empty() {
            self.line(format!("const {ty} words = {read};"));
        } else {
            let zeros = vector.of_words(dialect, &vec!["0".to_owned(); vector.words()]);
            self.line(format!("{ty} words = {zeros};"));
            self.line(format!("if ({condition}) words = {read};"));
        }
        let other = operands.get(2).filter(|other| !is_zero(other));
        for i in 0..vector.count {
            let part = vector.part(dialect, i);
            let value = match other {
                _ if is_raw => dialect.stored(vector.element, &part),
                Some(other) => {
                    let part = dialect.bits(vector.integer(), vector.element, &part);
                    format!("{condition} ? {part} : {}({other})", dialect.register(vector.element))
                }
                None => dialect.bits(vector.integer(), vector.element, &part),
            };
            self.line(format!("{name}[k + {i}] = {value};"));
        }
        self.close();
        Ok(())
    }

    /// A tile that is stored in vectors.
    pub(super) fn store_vectors(
        &mut self,
        instruction: &'k Instruction,
        layout: &Layout,
        vector: &Vector,
    ) -> Result<()> {
        let (dialect, ty) = (self.target.dialect, vector.ty());
        self.order_store(instruction.operands[0]);
        self.open_parts(layout, vector);
        let value = self.element(&mut Body::default(), instruction.operands[1], layout)?;
        self.close_parts(&vector.bits(dialect, &value));
        let mut body = Body::default();
        let place = self.element(&mut body, instruction.operands[0], layout)?;
        let mask = instruction.operands.get(2).map(|&mask| self.element(&mut body, mask, layout)).transpose()?;
        let inside = self.inside(self.type_of(instruction.operands[0]), layout);
        let conditions: Vec<String> = self.first_of_replicas(layout).into_iter().chain(inside).chain(mask).collect();
        let write = format!("*({}{ty}*)({place}) = {};", self.device(), vector.joined(dialect));
        self.line_where(&conditions, write);
        self.close();
        Ok(())
    }

    /// Opens a loop over the vectors of a thread's registers, and in it one over the elements of each.
    pub(super) fn open_parts(&mut self, layout: &Layout, vector: &Vector) {
        let count = vector.count;
        self.registers = layout.registers();
        self.line("#pragma unroll");
        self.open(format!("for (uint first = 0; first < {}; first += {count}) {{", layout.registers()));
        self.line(format!("{} parts[{count}];", self.target.dialect.register(vector.integer())));
        self.line("#pragma unroll");
        self.open(format!("for (uint k = first; k < first + {count}; ++k) {{"));
    }

    /// Closes the inner one with the bits of an element; the outer one goes on with the vector's first register.
    pub(super) fn close_parts(&mut self, bits: &str) {
        self.line(format!("parts[k - first] = {bits};"));
        self.close();
        self.line("const uint k = first;");
    }
}

/// Whether a literal is a zero all of whose bits are zero.
fn is_zero(literal: &str) -> bool {
    matches!(literal, "0u" | "0.0f" | "0.0" | "uchar(0)" | "ushort(0)" | "ulong(0ul)")
}
