//! Builds kernels: one method an operation. Infers result types; what does not fit is found by the verifier.

use crate::kernel::*;
use crate::types::{Dims, Scalar, Type};
use std::collections::HashMap;

/// Builds one [`Kernel`].
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    /// Blocks under construction, the innermost last.
    open: Vec<Block>,
    /// What instructions are made from at present.
    line: Option<u32>,
    /// Where in the kernel's lines each one is.
    lines: HashMap<String, u32>,
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident = $variant:ident,)*) => {
        $($(#[$doc])* pub fn $method(&mut self, x: Value) -> Value { self.unary(Unary::$variant, x) })*
    };
}
macro_rules! binary_methods {
    ($($(#[$doc:meta])* $method:ident = $variant:ident,)*) => {
        $($(#[$doc])* pub fn $method(&mut self, x: Value, y: Value) -> Value { self.binary(Binary::$variant, x, y) })*
    };
}

impl Builder {
    /// Starts a kernel of this name.
    pub fn new(name: impl Into<String>) -> Builder {
        let kernel = Kernel {
            name: name.into(),
            parameters: Vec::new(),
            types: Vec::new(),
            body: Block::default(),
            lines: Vec::new(),
        };
        Builder { kernel, open: vec![Block::default()], line: None, lines: HashMap::new() }
    }

    /// Ends the kernel.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.open.pop().unwrap_or_default();
        self.kernel
    }

    /// Says which line of a program the next instructions are made from.
    pub fn at(&mut self, line: Option<String>) {
        self.line = line.map(|line| {
            let next = self.kernel.lines.len() as u32;
            let lines = &mut self.kernel.lines;
            *self.lines.entry(line).or_insert_with_key(|line| {
                lines.push(line.clone());
                next
            })
        });
    }

    /// Adds a parameter.
    pub fn parameter(&mut self, name: impl Into<String>, ty: Type) -> Value {
        let value = self.value(ty);
        self.kernel.parameters.push(Parameter { name: name.into(), value, divisibility: 1 });
        value
    }

    /// Promises of the parameter added last that it is divisible by this number in every launch.
    pub fn divisible(&mut self, divisibility: u32) {
        if let Some(parameter) = self.kernel.parameters.last_mut() {
            parameter.divisibility = divisibility.max(1);
        }
    }

    /// The type of a value.
    pub fn type_of(&self, value: Value) -> &Type {
        self.kernel.type_of(value)
    }

    /// The number type of a value; of what it points to for a pointer.
    pub fn scalar_of(&self, value: Value) -> Scalar {
        let ty = self.type_of(value);
        ty.number().or(ty.target()).unwrap_or(Scalar::F32)
    }

    fn value(&mut self, ty: Type) -> Value {
        self.kernel.types.push(ty);
        Value(self.kernel.types.len() as u32 - 1)
    }

    fn push(&mut self, instruction: Instruction) {
        if let Some(block) = self.open.last_mut() {
            block.instructions.push(instruction);
        }
    }

    /// The matrix product of two tiles, added to a third.
    pub fn dot(&mut self, x: Value, y: Value, sum: Value) -> Value {
        let ty = self.type_of(sum).clone();
        self.emit(Operation::Dot, &[x, y, sum], ty)
    }

    /// Adds an instruction with one result of type `ty`.
    pub fn emit(&mut self, operation: Operation, operands: &[Value], ty: Type) -> Value {
        let result = self.value(ty);
        let (operands, results) = (operands.to_vec(), vec![result]);
        self.push(Instruction { operation, operands, results, blocks: Vec::new(), line: self.line });
        result
    }

    /// A constant of the type: an integer is given as such to a float type too.
    pub fn constant(&mut self, value: f64, ty: &Type) -> Value {
        let number = match ty.number() {
            Some(scalar) if !scalar.is_float() => Number::Integer(value as i64),
            _ => Number::Float(value),
        };
        self.emit(Operation::Constant(number), &[], ty.clone())
    }

    /// A scalar integer constant.
    pub fn integer(&mut self, value: i64, scalar: Scalar) -> Value {
        self.emit(Operation::Constant(Number::Integer(value)), &[], Type::scalar(scalar))
    }

    /// The integer that a value is in every element, where it is a constant of an open block.
    pub fn known(&self, value: Value) -> Option<i64> {
        let mut instructions = self.open.iter().rev().flat_map(|block| block.instructions.iter().rev());
        let instruction = instructions.find(|instruction| instruction.results.contains(&value))?;
        match instruction.operation {
            Operation::Constant(Number::Integer(integer)) => Some(integer),
            Operation::Splat | Operation::Broadcast => self.known(instruction.operands[0]),
            _ => None,
        }
    }

    /// A constant with the type of another value.
    pub fn constant_like(&mut self, value: f64, like: Value) -> Value {
        let ty = self.type_of(like).clone();
        self.constant(value, &ty)
    }

    /// This program's place on the grid's axis, as i64.
    pub fn program_id(&mut self, axis: u8) -> Value {
        let id = self.emit(Operation::ProgramId(axis), &[], Type::scalar(Scalar::I32));
        self.cast(Cast::Signed, id, Scalar::I64)
    }

    /// `0, 1, .., size - 1` as an i64 tile of one dimension.
    pub fn range(&mut self, size: usize) -> Value {
        let range = self.emit(Operation::Range { start: 0 }, &[], Type::tile(Scalar::I32, &[size]));
        self.cast(Cast::Signed, range, Scalar::I64)
    }

    /// A scalar in every element of a tile.
    pub fn splat(&mut self, x: Value, dims: &[usize]) -> Value {
        let ty = self.type_of(x).with_dims(dims);
        self.emit(Operation::Splat, &[x], ty)
    }

    /// A scalar in every element of a tile shaped like `like`; a scalar stays one when `like` is one.
    pub fn splat_like(&mut self, x: Value, like: Value) -> Value {
        let dims = self.type_of(like).dims.clone();
        if dims.is_empty() || !self.type_of(x).is_scalar() { x } else { self.splat(x, &dims) }
    }

    /// A new dimension of size 1 at `axis`.
    pub fn expand_dims(&mut self, x: Value, axis: usize) -> Value {
        let mut ty = self.type_of(x).clone();
        let axis_in_range = axis.min(ty.dims.len());
        let _ = ty.dims.try_insert(axis_in_range, 1);
        self.emit(Operation::ExpandDims { axis }, &[x], ty)
    }

    /// Dimensions of size 1 repeated up to `dims`.
    pub fn broadcast(&mut self, x: Value, dims: &[usize]) -> Value {
        let ty = self.type_of(x).with_dims(dims);
        self.emit(Operation::Broadcast, &[x], ty)
    }

    /// Rows as columns.
    pub fn transpose(&mut self, x: Value) -> Value {
        let mut ty = self.type_of(x).clone();
        ty.dims.reverse();
        self.emit(Operation::Permute { order: Dims::from_iter([1, 0]) }, &[x], ty)
    }

    /// Pointers moved by `offset` elements; a scalar pointer is repeated for a tile of offsets.
    pub fn add_pointer(&mut self, pointer: Value, offset: Value) -> Value {
        let pointer = self.splat_like(pointer, offset);
        let ty = self.type_of(pointer).clone();
        self.emit(Operation::AddPointer, &[pointer, offset], ty)
    }

    /// Loads from the pointers; masked-off elements are `other`, or undefined without it.
    pub fn load(&mut self, pointer: Value, mask: Option<Value>, other: Option<Value>) -> Value {
        let scalar = self.scalar_of(pointer);
        let ty = self.type_of(pointer).with_scalar(scalar);
        let operands: Vec<Value> = [Some(pointer), mask, other].into_iter().flatten().collect();
        self.emit(Operation::Load, &operands, ty)
    }

    /// Stores values at the pointers where the mask is true.
    pub fn store(&mut self, pointer: Value, value: Value, mask: Option<Value>) {
        let operands = [Some(pointer), Some(value), mask].into_iter().flatten().collect();
        self.push(Instruction {
            operation: Operation::Store,
            operands,
            results: Vec::new(),
            blocks: Vec::new(),
            line: self.line,
        });
    }

    /// An operation on one operand.
    pub fn unary(&mut self, operation: Unary, x: Value) -> Value {
        let ty = self.type_of(x).clone();
        self.emit(Operation::Unary(operation), &[x], ty)
    }

    /// An operation on two operands.
    pub fn binary(&mut self, operation: Binary, x: Value, y: Value) -> Value {
        let ty = self.type_of(x).clone();
        self.emit(Operation::Binary(operation), &[x, y], ty)
    }

    /// A comparison.
    pub fn compare(&mut self, comparison: Compare, x: Value, y: Value) -> Value {
        let ty = self.type_of(x).with_scalar(Scalar::I1);
        self.emit(Operation::Compare(comparison), &[x, y], ty)
    }

    /// `condition ? x : y`, element by element.
    pub fn select(&mut self, condition: Value, x: Value, y: Value) -> Value {
        let ty = self.type_of(x).clone();
        self.emit(Operation::Select, &[condition, x, y], ty)
    }

    /// A conversion; nothing when the type is the same already.
    pub fn cast(&mut self, cast: Cast, x: Value, to: Scalar) -> Value {
        if self.type_of(x).number() == Some(to) {
            return x;
        }
        let ty = self.type_of(x).with_scalar(to);
        self.emit(Operation::Cast(cast), &[x], ty)
    }

    /// A reduction along an axis.
    pub fn reduce(&mut self, combine: Combine, x: Value, axis: usize) -> Value {
        let mut ty = self.type_of(x).clone();
        if axis < ty.dims.len() {
            ty.dims.remove(axis);
        }
        self.emit(Operation::Reduce { axis, combine }, &[x], ty)
    }

    /// A loop over `lower..upper` by `step`. `body` gets the induction variable and the carried values and returns the next ones.
    pub fn for_loop(
        &mut self,
        bounds: [Value; 3],
        initial: &[Value],
        body: impl FnOnce(&mut Builder, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let types = self.types_of(&[&bounds[..1], initial].concat());
        let arguments = self.begin_block(&types);
        let next = body(self, arguments[0], &arguments[1..]);
        let block = self.end_block(Operation::Yield, &next);
        self.emit_with_blocks(Operation::For, &[&bounds[..], initial].concat(), &types[1..], vec![block])
    }

    /// Runs one of two blocks; the results are what it returns.
    pub fn if_else(
        &mut self,
        condition: Value,
        on_true: impl FnOnce(&mut Builder) -> Vec<Value>,
        on_false: impl FnOnce(&mut Builder) -> Vec<Value>,
    ) -> Vec<Value> {
        self.begin_block(&[]);
        let yielded = on_true(self);
        let (types, first) = (self.types_of(&yielded), self.end_block(Operation::Yield, &yielded));
        self.begin_block(&[]);
        let yielded = on_false(self);
        let second = self.end_block(Operation::Yield, &yielded);
        self.emit_with_blocks(Operation::If, &[condition], &types, vec![first, second])
    }

    /// Begins a block within the next instruction; its arguments.
    pub fn begin_block(&mut self, types: &[Type]) -> Vec<Value> {
        let arguments: Vec<Value> = types.iter().map(|ty| self.value(ty.clone())).collect();
        self.open.push(Block { arguments: arguments.clone(), instructions: Vec::new() });
        arguments
    }

    /// Ends the block begun last with a yield or condition.
    pub fn end_block(&mut self, operation: Operation, operands: &[Value]) -> Block {
        let (operands, results) = (operands.to_vec(), Vec::new());
        self.push(Instruction { operation, operands, results, blocks: Vec::new(), line: self.line });
        // The outermost block is the kernel's.
        if self.open.len() > 1 { self.open.pop().unwrap_or_default() } else { Block::default() }
    }

    /// Adds an instruction with any number of results, and blocks within it.
    pub fn emit_with_blocks(
        &mut self,
        operation: Operation,
        operands: &[Value],
        types: &[Type],
        blocks: Vec<Block>,
    ) -> Vec<Value> {
        let results: Vec<Value> = types.iter().map(|ty| self.value(ty.clone())).collect();
        self.push(Instruction {
            operation,
            operands: operands.to_vec(),
            results: results.clone(),
            blocks,
            line: self.line,
        });
        results
    }

    fn types_of(&self, values: &[Value]) -> Vec<Type> {
        values.iter().map(|&value| self.type_of(value).clone()).collect()
    }

    unary_methods! {
        /// `-x`
        negate = Negate,
        /// `|x|`
        absolute = Absolute,
        /// Complement.
        not = Not,
        /// `e^x`
        exp = Exp,
        /// `e^x - 1`
        expm1 = Expm1,
        /// Natural logarithm.
        log = Log,
        /// `log(1 + x)`
        log1p = Log1p,
        /// Square root.
        sqrt = Sqrt,
        /// `1 / sqrt(x)`
        rsqrt = Rsqrt,
        /// Hyperbolic tangent.
        tanh = Tanh,
        /// The error function.
        erf = Erf,
        /// Largest integer not above.
        floor = Floor,
    }

    binary_methods! {
        /// `x + y`
        add = Add,
        /// `x - y`
        subtract = Subtract,
        /// `x * y`
        multiply = Multiply,
        /// `x / y`
        divide = Divide,
        /// Signed remainder.
        remainder = Remainder,
        /// The smaller.
        minimum = Minimum,
        /// The larger.
        maximum = Maximum,
        /// Bitwise and.
        and = And,
        /// Bitwise or.
        or = Or,
    }
}
