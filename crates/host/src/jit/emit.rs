//! Instructions for a loop: its rounds over several registers' worth of elements each, then one register at a time, the last one in part.

use super::body::{Body, Element, Operation, Place, Relation, Store, Total, Two, Value};
use super::instructions::{Exchange, Vectors, predicate};
use super::registers::{Free, Places};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, IcedError, Instruction, InstructionBlock, MemoryOperand, Register,
};
use openmps_tile::Combine;

/// The first argument: an array of the rows' addresses, and behind them that of the slots.
const ARGUMENTS: Register = Register::RDI;
/// The second: how many elements there are.
const END: Register = Register::RSI;
/// The element that a round begins with.
const AT: Register = Register::RAX;
/// The last element that a long round may begin with, then how many are left.
const LIMIT: Register = Register::RDX;
const SLOTS: Register = Register::RBX;
/// Addresses of the rows.
const ROWS: [Register; MOST_ROWS] = [
    Register::RCX,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
/// Rows that a loop may have.
pub(super) const MOST_ROWS: usize = 10;
/// What a function of the System V interface leaves as it was, of the above.
const SAVED: [Register; 6] = [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
/// Which elements of the last round there are, where truths have registers of their own, and the first of these that is free.
const MASK: Register = Register::K1;
const FIRST_TRUTH: u32 = 2;
const TRUTHS: u32 = 8;
/// Conversion to float16 by the rounding mode in use.
const CURRENT_ROUNDING: u32 = 4;

/// Instructions, or nothing where there are too few registers.
type Emitted<T> = Option<T>;

/// Which elements a round has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Whole,
    Part,
}

/// Where constants are.
#[derive(Clone, Copy)]
enum Constants {
    InRegisters,
    /// Read each time.
    InMemory,
}

/// How rows in memory are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    Usual,
    /// Past the caches, where each row begins with as many bytes as a register has, aligned.
    PastCaches,
}

/// The instructions of a loop, by the most registers that it can be computed with.
pub(super) fn emit(body: &Body, stores: Stores) -> Emitted<Vec<u8>> {
    let vectors = Vectors::of(body.level)?;
    if body.rows.len() > MOST_ROWS {
        return None;
    }
    let ways = [
        (4, Constants::InRegisters),
        (2, Constants::InRegisters),
        (2, Constants::InMemory),
        (1, Constants::InRegisters),
        (1, Constants::InMemory),
    ];
    ways.into_iter().find_map(|(sides, constants)| {
        let mut emitter = Emitter::new(body, vectors, stores);
        emitter.whole(sides, constants)?;
        emitter.encode()
    })
}

struct Emitter<'a> {
    body: &'a Body,
    vectors: Vectors,
    stores: Stores,
    code: Vec<Instruction>,
    /// Labels are numbered from 1 on; that of the next instruction.
    labels: u64,
    label: Option<u64>,
    /// Numbers that the instructions read, with their labels, and the label of zeros.
    numbers: Vec<(u64, u32)>,
    zeros: Option<u64>,
    free: Free,
    free_truths: Free,
    constants: Vec<Option<u32>>,
    /// Registers of each total, one for each side.
    totals: Vec<Vec<u32>>,
    /// The mask of a round that has a part of the elements only, where truths have no registers of their own.
    mask: u32,
}

/// A value in a register while an operation is done.
#[derive(Clone, Copy)]
struct Held {
    value: Value,
    register: u32,
    /// Whether the register is free after it.
    ends: bool,
}

impl<'a> Emitter<'a> {
    fn new(body: &'a Body, vectors: Vectors, stores: Stores) -> Emitter<'a> {
        // Truths without registers of their own, and their mask, take those of numbers.
        let (mask, end) =
            if vectors.has_masks { (0, vectors.registers) } else { (vectors.registers - 1, vectors.registers - 1) };
        Emitter {
            body,
            vectors,
            stores,
            code: Vec::new(),
            labels: 0,
            label: None,
            numbers: Vec::new(),
            zeros: None,
            free: Free::between(0, end),
            free_truths: Free::between(FIRST_TRUTH, TRUTHS),
            constants: vec![None; body.operations.len()],
            totals: Vec::new(),
            mask,
        }
    }

    fn whole(&mut self, sides: usize, constants: Constants) -> Emitted<()> {
        let lanes = self.vectors.lanes as i32;
        self.begin(sides, constants)?;
        let (long, short, part, end) = (self.new_label(), self.new_label(), self.new_label(), self.new_label());
        let per_round = lanes * sides as i32;
        self.push(Instruction::with2(Code::Xor_r32_rm32, Register::EAX, Register::EAX))?;
        self.push(Instruction::with2(
            Code::Lea_r64_m,
            LIMIT,
            MemoryOperand::with_base_displ(END, -i64::from(per_round)),
        ))?;
        // Long rounds.
        self.push(Instruction::with2(Code::Cmp_r64_rm64, AT, LIMIT))?;
        self.push(Instruction::with_branch(Code::Jg_rel32_64, short))?;
        self.place_label(long)?;
        self.round(sides, Round::Whole)?;
        self.push(Instruction::with2(Code::Add_rm64_imm32, AT, per_round))?;
        self.push(Instruction::with2(Code::Cmp_r64_rm64, AT, LIMIT))?;
        self.push(Instruction::with_branch(Code::Jle_rel32_64, long))?;
        // What the sides have is combined, and the rest goes one register at a time.
        self.place_label(short)?;
        self.join_sides()?;
        self.place_label(part)?;
        self.push(Instruction::with2(Code::Mov_r64_rm64, LIMIT, END))?;
        self.push(Instruction::with2(Code::Sub_r64_rm64, LIMIT, AT))?;
        self.push(Instruction::with_branch(Code::Jle_rel32_64, end))?;
        self.set_mask()?;
        self.round(1, Round::Part)?;
        self.push(Instruction::with2(Code::Add_rm64_imm32, AT, lanes))?;
        self.push(Instruction::with_branch(Code::Jmp_rel32_64, part))?;
        self.place_label(end)?;
        self.finish()
    }

    /// Addresses, constants and totals in their registers.
    fn begin(&mut self, sides: usize, constants: Constants) -> Emitted<()> {
        for saved in SAVED {
            self.push(Instruction::with1(Code::Push_r64, saved))?;
        }
        let rows = self.body.rows.len();
        for (place, register) in ROWS[..rows].iter().copied().chain([SLOTS]).enumerate() {
            let from = MemoryOperand::with_base_displ(ARGUMENTS, place as i64 * 8);
            self.push(Instruction::with2(Code::Mov_r64_rm64, register, from))?;
        }
        for total in &self.body.totals {
            let identity = self.number(identity(total.combine)?);
            let registers = (0..sides).map(|_| self.free.take()).collect::<Option<Vec<_>>>()?;
            for &register in &registers {
                self.broadcast(register, identity)?;
            }
            self.totals.push(registers);
        }
        if let Constants::InRegisters = constants {
            for (place, operation) in self.body.operations.iter().enumerate().filter(|(_, it)| it.is_constant()) {
                let register = self.free.take()?;
                self.read_constant(*operation, register)?;
                self.constants[place] = Some(register);
            }
        }
        Some(())
    }

    /// Combines the lanes of the totals and goes back.
    fn finish(&mut self) -> Emitted<()> {
        let vectors = self.vectors;
        for (total, registers) in self.body.totals.iter().zip(std::mem::take(&mut self.totals)) {
            let lanes = registers[0];
            let moved = self.free.take()?;
            for &exchange in vectors.codes().exchanges {
                let [to, from] = [moved, lanes].map(|number| vectors.register(number));
                self.push(match exchange {
                    Exchange::OfOne(code, how) => Instruction::with3(code, to, from, how),
                    Exchange::OfTwo(code, how) => Instruction::with4(code, to, from, from, how),
                })?;
                self.combine(total.combine, lanes, lanes, moved)?;
            }
            self.free.give_back(moved);
            let to = MemoryOperand::with_base_displ(SLOTS, total.slot as i64 * 8);
            self.push(Instruction::with2(vectors.codes().store_first, to, Register::XMM0 + lanes))?;
        }
        for saved in SAVED.into_iter().rev() {
            self.push(Instruction::with1(Code::Pop_r64, saved))?;
        }
        self.push(Ok(Instruction::with(Code::VEX_Vzeroupper)))?;
        self.push(Ok(Instruction::with(Code::Retnq)))
    }

    /// One round of the loop.
    fn round(&mut self, sides: usize, round: Round) -> Emitted<()> {
        let (free, free_truths) = (self.free, self.free_truths);
        let mut places = Places::new(self.body, &self.constants);
        for (place, &operation) in self.body.operations.iter().enumerate() {
            let value = Value(place);
            if operation.is_constant() || !places.is_read(value) {
                continue;
            }
            for side in 0..sides {
                let register = self.operation(operation, side, round, &mut places)?;
                places.set(value, side, register);
            }
            operation.operands().into_iter().flatten().for_each(|operand| places.note_read(operand));
        }
        for (total, &of) in self.body.totals.iter().enumerate() {
            for side in 0..sides {
                let held = self.hold(of.value, side, &places, 1)?;
                self.add_to_total(of, self.totals[total][side], held.register, round)?;
                self.release(&[held], None);
            }
            places.note_read(of.value);
        }
        for &store in &self.body.stores {
            for side in 0..sides {
                let held = self.hold(store.value, side, &places, 1)?;
                self.store(store, held.register, side, round)?;
                self.release(&[held], None);
            }
            places.note_read(store.value);
        }
        (self.free, self.free_truths) = (free, free_truths);
        Some(())
    }

    /// The register of an operation's result.
    fn operation(&mut self, operation: Operation, side: usize, round: Round, places: &mut Places) -> Emitted<u32> {
        let operands: Vec<Value> = operation.operands().into_iter().flatten().collect();
        let mut held: Vec<Held> = Vec::with_capacity(operands.len());
        for &operand in &operands {
            let times = operands.iter().filter(|&&other| other == operand).count();
            let same = held.iter().find(|held| held.value == operand).copied();
            held.push(match same {
                Some(held) => Held { ends: false, ..held },
                None => self.hold(operand, side, places, times)?,
            });
        }
        let at = |i: usize| held[i].register;
        if let Operation::MultiplyAdd(..) = operation {
            return self.multiply_add(&held);
        }
        if let Operation::Compare(..) = operation {
            let truth = self.new_truth()?;
            self.compute(operation, truth, &[at(0), at(1)], side, round)?;
            self.release(&held, None);
            return Some(truth);
        }
        // The result may be where an operand was: it is read first.
        self.release(&held, operation.reads_truth().then_some(0));
        let to = self.free.take()?;
        let registers: Vec<u32> = held.iter().map(|held| held.register).collect();
        self.compute(operation, to, &registers, side, round)?;
        if operation.reads_truth() && held[0].ends {
            self.release_truth(held[0].register);
        }
        Some(to)
    }

    fn compute(&mut self, operation: Operation, to: u32, from: &[u32], side: usize, round: Round) -> Emitted<()> {
        let (vectors, codes) = (self.vectors, self.vectors.codes());
        let register = |number: u32| vectors.register(number);
        match operation {
            Operation::Load(row) => self.load(row, to, side, round),
            Operation::Slot(_) | Operation::Number(_) => self.read_constant(operation, to),
            Operation::Two(two, ..) => {
                self.push(Instruction::with3(codes.two(two), register(to), register(from[0]), register(from[1])))
            }
            Operation::Scale(..) => {
                let code = Code::EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er;
                self.push(Instruction::with3(code, register(to), register(from[0]), register(from[1])))
            }
            Operation::Sqrt(_) => self.push(Instruction::with2(codes.sqrt, register(to), register(from[0]))),
            Operation::ToInteger(_) => {
                self.push(Instruction::with2(codes.to_integers, register(to), register(from[0])))
            }
            Operation::Shift(shift, by, _) => {
                self.push(Instruction::with3(codes.shift(shift), register(to), register(from[0]), by))
            }
            Operation::ToHalf(_) => {
                self.push(Instruction::with3(codes.to_half, vectors.half(to), register(from[0]), CURRENT_ROUNDING))
            }
            Operation::FromHalf(_) => {
                self.push(Instruction::with2(codes.from_half, register(to), vectors.half(from[0])))
            }
            Operation::Compare(relation, ..) => self.compare(relation, to, from[0], from[1]),
            Operation::Choose(..) => self.choose(to, from[0], from[1], from[2]),
            Operation::MultiplyAdd(..) => None,
        }
    }

    fn compare(&mut self, relation: Relation, to: u32, x: u32, y: u32) -> Emitted<()> {
        let to = if self.vectors.has_masks { Register::K0 + to } else { self.vectors.register(to) };
        let (x, y) = (self.vectors.register(x), self.vectors.register(y));
        self.push(Instruction::with4(self.vectors.codes().compare, to, x, y, predicate(relation)))
    }

    fn choose(&mut self, to: u32, truth: u32, yes: u32, no: u32) -> Emitted<()> {
        let [to, yes, no] = [to, yes, no].map(|number| self.vectors.register(number));
        let code = self.vectors.codes().choose;
        if self.vectors.has_masks {
            return self.push(Instruction::with3(code, to, no, yes).map(|it| masked(it, Register::K0 + truth, false)));
        }
        self.push(Instruction::with4(code, to, no, yes, self.vectors.register(truth)))
    }

    /// `x * y + z` where one of the three was that nobody reads any more, or in a further register.
    fn multiply_add(&mut self, held: &[Held]) -> Emitted<u32> {
        let codes = self.vectors.codes();
        let [x, y, z] = [held[0], held[1], held[2]];
        let register = |vectors: Vectors, held: Held| vectors.register(held.register);
        let ends = |held: Held| held.ends;
        let (code, to, second, third) = if ends(x) {
            (codes.multiply_add_213, x, y, z)
        } else if ends(y) {
            (codes.multiply_add_213, y, x, z)
        } else if ends(z) {
            (codes.multiply_add_231, z, x, y)
        } else {
            let copy = Held { register: self.free.take()?, ..z };
            let (to, from) = (register(self.vectors, copy), register(self.vectors, z));
            self.push(Instruction::with2(codes.copy, to, from))?;
            (codes.multiply_add_231, copy, x, y)
        };
        let [first, second, third] = [to, second, third].map(|held| register(self.vectors, held));
        self.push(Instruction::with3(code, first, second, third))?;
        for held in held.iter().filter(|held| held.ends && held.register != to.register) {
            self.free.give_back(held.register);
        }
        Some(to.register)
    }

    /// A value in a register; a constant that has none in one of its own.
    fn hold(&mut self, value: Value, side: usize, places: &Places, times: usize) -> Emitted<Held> {
        let operation = self.body.operations[value.0];
        match places.get(value, side) {
            Some(register) => {
                let ends = !operation.is_constant() && places.is_last(value, times);
                Some(Held { value, register, ends })
            }
            None => {
                let register = self.free.take()?;
                self.read_constant(operation, register)?;
                Some(Held { value, register, ends: true })
            }
        }
    }

    /// Gives back registers that end, but not that of the operand at this place.
    fn release(&mut self, held: &[Held], but: Option<usize>) {
        for (i, held) in held.iter().enumerate() {
            if held.ends && but != Some(i) {
                if self.body.is_truth(held.value) {
                    self.release_truth(held.register);
                } else {
                    self.free.give_back(held.register);
                }
            }
        }
    }

    fn new_truth(&mut self) -> Emitted<u32> {
        if self.vectors.has_masks { self.free_truths.take() } else { self.free.take() }
    }

    fn release_truth(&mut self, register: u32) {
        if self.vectors.has_masks {
            self.free_truths.give_back(register);
        } else {
            self.free.give_back(register);
        }
    }

    /// Where a side's elements of a row are.
    fn address(&self, row: usize, side: usize) -> MemoryOperand {
        let size = self.body.rows[row].size();
        let displacement = (side * self.vectors.lanes * size) as i64;
        let displacement_size = u32::from(displacement != 0);
        MemoryOperand::with_base_index_scale_displ_size(ROWS[row], AT, size as u32, displacement, displacement_size)
    }

    fn load(&mut self, row: usize, to: u32, side: usize, round: Round) -> Emitted<()> {
        let element = self.body.rows[row];
        let from = self.address(row, side);
        let code = self.vectors.codes().load(element);
        let to = if element == Element::Half { self.vectors.half(to) } else { self.vectors.register(to) };
        match round {
            Round::Whole => self.push(Instruction::with2(code, to, from)),
            Round::Part if self.vectors.has_masks => {
                self.push(Instruction::with2(code, to, from).map(|load| masked(load, MASK, true)))
            }
            Round::Part if element == Element::Single => {
                let mask = self.vectors.register(self.mask);
                self.push(Instruction::with3(Code::VEX_Vmaskmovps_ymm_ymm_m256, to, mask, from))
            }
            Round::Part => None,
        }
    }

    fn store(&mut self, store: Store, from: u32, side: usize, round: Round) -> Emitted<()> {
        let element = self.body.rows[store.row];
        let to = self.address(store.row, side);
        let is_past = round == Round::Whole && store.place == Place::Memory && self.stores == Stores::PastCaches;
        let codes = self.vectors.codes();
        let code = if is_past { codes.store_past(element)? } else { codes.store(element)? };
        let from = if element == Element::Half { self.vectors.half(from) } else { self.vectors.register(from) };
        match round {
            Round::Whole => self.push(Instruction::with2(code, to, from)),
            Round::Part if self.vectors.has_masks => {
                self.push(Instruction::with2(code, to, from).map(|store| masked(store, MASK, false)))
            }
            Round::Part if element == Element::Single => {
                let mask = self.vectors.register(self.mask);
                self.push(Instruction::with3(Code::VEX_Vmaskmovps_m256_ymm_ymm, to, mask, from))
            }
            Round::Part => None,
        }
    }

    /// A mask of the elements that are left, of which `LIMIT` says how many.
    fn set_mask(&mut self) -> Emitted<()> {
        self.push(Instruction::with1(Code::Push_r64, Register::RDI))?;
        if self.vectors.has_masks {
            // Of more than 32 all bits stay.
            self.push(Instruction::with2(Code::Mov_r32_imm32, Register::EDI, -1))?;
            self.push(Instruction::with3(Code::VEX_Bzhi_r32_rm32_r32, Register::EDI, Register::EDI, Register::EDX))?;
            self.push(Instruction::with2(Code::VEX_Kmovw_kr_r32, MASK, Register::EDI))?;
        } else {
            let zeros = MemoryOperand::with_base_displ(Register::RIP, self.zeros() as i64);
            self.push(Instruction::with2(Code::Mov_r32_imm32, Register::EDI, self.vectors.lanes as i32))?;
            self.push(Instruction::with2(Code::Cmp_r64_rm64, LIMIT, Register::RDI))?;
            self.push(Instruction::with2(Code::Cmovg_r64_rm64, LIMIT, Register::RDI))?;
            self.push(Instruction::with1(Code::Neg_rm64, LIMIT))?;
            self.push(Instruction::with2(Code::Lea_r64_m, Register::RDI, zeros))?;
            let from = MemoryOperand::with_base_index_scale(Register::RDI, LIMIT, 4);
            self.push(Instruction::with2(self.vectors.codes().load, self.vectors.register(self.mask), from))?;
        }
        self.push(Instruction::with1(Code::Pop_r64, Register::RDI))
    }

    /// Where as many zeros as a register has lanes stand behind as many numbers whose bits are all set.
    fn zeros(&mut self) -> u64 {
        let label = self.zeros.unwrap_or_else(|| self.new_label());
        self.zeros = Some(label);
        label
    }

    fn add_to_total(&mut self, total: Total, to: u32, from: u32, round: Round) -> Emitted<()> {
        if round == Round::Whole {
            return self.combine(total.combine, to, to, from);
        }
        let joined = self.free.take()?;
        self.combine(total.combine, joined, to, from)?;
        let (vectors, codes) = (self.vectors, self.vectors.codes());
        let [kept, added] = [to, joined].map(|number| vectors.register(number));
        if vectors.has_masks {
            self.push(Instruction::with2(codes.copy, kept, added).map(|copy| masked(copy, MASK, false)))?;
        } else {
            self.push(Instruction::with4(codes.choose, kept, kept, added, vectors.register(self.mask)))?;
        }
        self.free.give_back(joined);
        Some(())
    }

    /// `to` is x and y combined; it may be x.
    fn combine(&mut self, combine: Combine, to: u32, x: u32, y: u32) -> Emitted<()> {
        let (two, special) = match combine {
            Combine::Sum => (Two::Add, None),
            Combine::Product => (Two::Multiply, None),
            // Of the instruction's operands the second is the result where either is NaN.
            Combine::Minimum => (Two::Lower, Some(y)),
            Combine::Maximum => (Two::Upper, Some(y)),
            Combine::MinimumNumber => (Two::Lower, Some(x)),
            Combine::MaximumNumber => (Two::Upper, Some(x)),
            _ => return None,
        };
        let vectors = self.vectors;
        let code = vectors.codes().two(two);
        let Some(tested) = special else {
            let [to, x, y] = [to, x, y].map(|number| vectors.register(number));
            return self.push(Instruction::with3(code, to, x, y));
        };
        // Where y is NaN it is to stay, or where x is NaN y is to replace it.
        let (truth, between) = (self.new_truth()?, self.free.take()?);
        self.compare(Relation::Unordered, truth, tested, tested)?;
        let [result, first, second] = [between, y, x].map(|number| vectors.register(number));
        self.push(Instruction::with3(code, result, first, second))?;
        self.choose(to, truth, y, between)?;
        self.release_truth(truth);
        self.free.give_back(between);
        Some(())
    }

    /// The totals of all sides in the first.
    fn join_sides(&mut self) -> Emitted<()> {
        for (i, total) in self.body.totals.iter().enumerate() {
            let registers = self.totals[i].clone();
            for &other in &registers[1..] {
                self.combine(total.combine, registers[0], registers[0], other)?;
            }
        }
        Some(())
    }

    fn read_constant(&mut self, operation: Operation, to: u32) -> Emitted<()> {
        match operation {
            Operation::Slot(slot) => self.broadcast(to, MemoryOperand::with_base_displ(SLOTS, slot as i64 * 8)),
            Operation::Number(bits) => {
                let from = self.number(bits);
                self.broadcast(to, from)
            }
            _ => None,
        }
    }

    fn broadcast(&mut self, to: u32, from: MemoryOperand) -> Emitted<()> {
        self.push(Instruction::with2(self.vectors.codes().broadcast, self.vectors.register(to), from))
    }

    /// Where a number stands behind the instructions.
    fn number(&mut self, bits: u32) -> MemoryOperand {
        let known = self.numbers.iter().find(|(_, other)| *other == bits).map(|(label, _)| *label);
        let label = known.unwrap_or_else(|| {
            let label = self.new_label();
            self.numbers.push((label, bits));
            label
        });
        MemoryOperand::with_base_displ(Register::RIP, label as i64)
    }

    fn new_label(&mut self) -> u64 {
        self.labels += 1;
        self.labels
    }

    /// The next instruction has this label.
    fn place_label(&mut self, label: u64) -> Emitted<()> {
        if self.label.is_some() {
            self.push(Ok(Instruction::with(Code::Nopd)))?;
        }
        self.label = Some(label);
        Some(())
    }

    fn push(&mut self, instruction: Result<Instruction, IcedError>) -> Emitted<()> {
        let mut instruction = instruction.ok()?;
        if let Some(label) = self.label.take() {
            instruction.set_ip(label);
        }
        self.code.push(instruction);
        Some(())
    }

    fn encode(mut self) -> Emitted<Vec<u8>> {
        for (label, bits) in std::mem::take(&mut self.numbers) {
            self.place_label(label)?;
            self.push(Ok(Instruction::with_declare_dword_1(bits)))?;
        }
        if let Some(zeros) = self.zeros {
            for bits in [u32::MAX, 0] {
                if bits == 0 {
                    self.place_label(zeros)?;
                }
                for _ in 0..self.vectors.lanes / 4 {
                    self.push(Ok(Instruction::with_declare_dword_4(bits, bits, bits, bits)))?;
                }
            }
        }
        let block = InstructionBlock::new(&self.code, 0);
        BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).ok().map(|block| block.code_buffer)
    }
}

/// An instruction of the elements only that a mask has; the others become 0 or stay.
fn masked(mut instruction: Instruction, mask: Register, is_zero: bool) -> Instruction {
    instruction.set_op_mask(mask);
    instruction.set_zeroing_masking(is_zero);
    instruction
}

/// The bits of the number that changes nothing.
fn identity(combine: Combine) -> Option<u32> {
    let number = match combine {
        Combine::Sum => 0.0,
        Combine::Product => 1.0,
        Combine::Minimum => f32::INFINITY,
        Combine::Maximum => f32::NEG_INFINITY,
        Combine::MinimumNumber | Combine::MaximumNumber => f32::NAN,
        _ => return None,
    };
    Some(number.to_bits())
}
