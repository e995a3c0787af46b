//! Operations with blocks of their own: loops, conditions, reductions and scans.

use super::cursor::{Cursor, Read};
use super::function::{End, Names, Reader, named};
use super::operations;
use super::types::ty;
use crate::kernel::{Binary, Block, Combine, Compare, Instruction, Operation, Value};
use crate::types::Type;

/// `type`, or `(type, type)`.
pub fn types(cursor: &mut Cursor) -> Read<Vec<Type>> {
    if !cursor.looking_at("(") {
        return Ok(vec![ty(cursor)?]);
    }
    cursor.expect("(")?;
    let mut types = Vec::new();
    while !cursor.take(")") {
        types.push(ty(cursor)?);
        let _ = cursor.take(",");
    }
    Ok(types)
}

/// `type, type`
pub fn list(cursor: &mut Cursor) -> Read<()> {
    ty(cursor)?;
    while cursor.take(",") {
        ty(cursor)?;
    }
    Ok(())
}

/// `(%a = %b, ..)`: names of a block's arguments, and their initial values.
fn assignments<'t>(cursor: &mut Cursor<'t>, names: &Names) -> Read<(Vec<&'t str>, Vec<Value>)> {
    let (mut carried, mut initial) = (Vec::new(), Vec::new());
    cursor.expect("(")?;
    while !cursor.take(")") {
        carried.push(cursor.value()?);
        cursor.expect("=")?;
        initial.push(named(cursor, names)?);
        let _ = cursor.take(",");
    }
    Ok((carried, initial))
}

/// `scf.condition(%c) %a, %b : types`: the boolean, then what is passed on.
pub fn condition(cursor: &mut Cursor, names: &Names) -> Read<Vec<Value>> {
    cursor.expect("(")?;
    let mut values = vec![named(cursor, names)?];
    cursor.expect(")")?;
    while cursor.looking_at("%") {
        values.push(named(cursor, names)?);
        let _ = cursor.take(",");
    }
    if cursor.take(":") {
        list(cursor)?;
    }
    cursor.skip_location()?;
    Ok(values)
}

/// The instruction of a block that defines a value.
fn defined(block: &Block, value: Value) -> Option<&Instruction> {
    block.instructions.iter().find(|instruction| instruction.results.contains(&value))
}

impl<'t> Reader<'t> {
    /// A block within an instruction, from behind its opening brace.
    fn inner(&mut self, cursor: &mut Cursor<'t>, names: &mut Names, arguments: &[&str], types: &[Type]) -> Read<Block> {
        let values = self.builder.begin_block(types);
        names.extend(arguments.iter().map(|name| (*name).to_owned()).zip(values));
        let End { condition, values } = self.block(cursor, names)?;
        Ok(self.builder.end_block(if condition { Operation::Condition } else { Operation::Yield }, &values))
    }

    pub fn types_of(&self, values: &[Value]) -> Vec<Type> {
        values.iter().map(|&value| self.builder.type_of(value).clone()).collect()
    }

    /// Attributes and location behind a region.
    fn tail(&mut self, cursor: &mut Cursor<'t>) -> Read<()> {
        if cursor.looking_at("{") {
            cursor.skip_braces()?;
        }
        cursor.skip_location()
    }

    /// `scf.for %i = %lower to %upper step %step iter_args(%a = %b) -> (type) : i32 { .. }`
    pub fn for_loop(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<Vec<Value>> {
        if cursor.take("unsigned") {
            return Err(cursor.refuse("scf.for", "unsigned bounds"));
        }
        let mut arguments = vec![cursor.value()?];
        cursor.expect("=")?;
        let mut operands = vec![named(cursor, names)?];
        cursor.expect("to")?;
        operands.push(named(cursor, names)?);
        cursor.expect("step")?;
        operands.push(named(cursor, names)?);
        if cursor.take("iter_args") {
            let (carried, initial) = assignments(cursor, names)?;
            arguments.extend(carried);
            operands.extend(initial);
            cursor.expect("->")?;
            types(cursor)?;
        }
        if cursor.take(":") {
            ty(cursor)?;
        }
        cursor.expect("{")?;
        let carried = self.types_of(&operands[3..]);
        let of_arguments = [&self.types_of(&operands[..1])[..], &carried].concat();
        let block = self.inner(cursor, names, &arguments, &of_arguments)?;
        self.tail(cursor)?;
        Ok(self.builder.emit_with_blocks(Operation::For, &operands, &carried, vec![block]))
    }

    /// `scf.if %c -> (types) { .. } else { .. }`
    pub fn if_else(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<Vec<Value>> {
        let condition = named(cursor, names)?;
        let results = if cursor.take("->") { types(cursor)? } else { Vec::new() };
        cursor.expect("{")?;
        let on_true = self.inner(cursor, names, &[], &[])?;
        let on_false = if cursor.take("else") {
            cursor.expect("{")?;
            self.inner(cursor, names, &[], &[])?
        } else {
            self.builder.begin_block(&[]);
            self.builder.end_block(Operation::Yield, &[])
        };
        self.tail(cursor)?;
        Ok(self.builder.emit_with_blocks(Operation::If, &[condition], &results, vec![on_true, on_false]))
    }

    /// `scf.while (%a = %b) : (types) -> types { .. } do { ^bb0(%c: type): .. }`
    pub fn while_loop(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<Vec<Value>> {
        let (arguments, initial) =
            if cursor.looking_at("(") { assignments(cursor, names)? } else { (Vec::new(), Vec::new()) };
        cursor.expect(":")?;
        types(cursor)?;
        cursor.expect("->")?;
        let results = types(cursor)?;
        cursor.expect("{")?;
        let carried = self.types_of(&initial);
        let before = self.inner(cursor, names, &arguments, &carried)?;
        cursor.expect("do")?;
        cursor.expect("{")?;
        let passed: Vec<&str> = self.labelled(cursor)?.into_iter().map(|(name, _)| name).collect();
        let after = self.inner(cursor, names, &passed, &results)?;
        self.tail(cursor)?;
        Ok(self.builder.emit_with_blocks(Operation::While, &initial, &results, vec![before, after]))
    }

    /// `^bb0(%a: type, ..):`, if it comes next; without arguments `^bb0:`.
    pub fn labelled(&mut self, cursor: &mut Cursor<'t>) -> Read<Vec<(&'t str, Type)>> {
        let mut arguments = Vec::new();
        if !cursor.take("^") {
            return Ok(arguments);
        }
        cursor.word();
        let has_arguments = cursor.take("(");
        while has_arguments && !cursor.take(")") {
            let name = cursor.value()?;
            cursor.expect(":")?;
            arguments.push((name, ty(cursor)?));
            cursor.skip_location()?;
            let _ = cursor.take(",");
        }
        cursor.expect(":")?;
        Ok(arguments)
    }

    /// An operation in quotes: `"tt.reduce"(%a, %b) <{axis = 0 : i32}> ({ .. }) : (types) -> types`.
    pub fn generic(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<Vec<Value>> {
        cursor.expect("\"")?;
        let operation = cursor.word();
        if !matches!(operation, "tt.reduce" | "tt.scan") {
            return Err(cursor.refuse(operation, "not covered"));
        }
        cursor.expect("\"(")?;
        let mut operands = Vec::new();
        while !cursor.take(")") {
            operands.push(named(cursor, names)?);
            let _ = cursor.take(",");
        }
        cursor.expect("<")?;
        let attributes = cursor.attributes()?;
        cursor.expect(">")?;
        let axis = operations::attribute(attributes, "axis").and_then(|axis| usize::try_from(axis).ok());
        let rank = operands.first().map_or(0, |&x| self.builder.type_of(x).dims.len());
        let Some(axis) = axis.filter(|&axis| axis < rank) else {
            return Err(cursor.error(format!("{operation} along no axis of its operand")));
        };
        cursor.expect("(")?;
        cursor.expect("{")?;
        let arguments = self.labelled(cursor)?;
        let (arguments, of_arguments): (Vec<&str>, Vec<Type>) = arguments.into_iter().unzip();
        let block = self.inner(cursor, names, &arguments, &of_arguments)?;
        cursor.expect(")")?;
        cursor.expect(":")?;
        types(cursor)?;
        cursor.expect("->")?;
        types(cursor)?;
        cursor.skip_location()?;
        let reverse = attributes.contains("reverse = true");
        Ok(self.combination(operation, axis, reverse, &operands, block))
    }

    /// A reduction by one named operation where the block is that, else one with the block; or a scan.
    fn combination(
        &mut self,
        operation: &str,
        axis: usize,
        reverse: bool,
        operands: &[Value],
        block: Block,
    ) -> Vec<Value> {
        let mut types = self.types_of(operands);
        if operation == "tt.scan" {
            return self.builder.emit_with_blocks(Operation::Scan { axis, reverse }, operands, &types, vec![block]);
        }
        if let (&[x], Some(combine)) = (operands, self.named_combination(&block)) {
            return vec![self.builder.reduce(combine, x, axis)];
        }
        let block = if operands.len() == 2 { self.without_nan(block) } else { block };
        for ty in &mut types {
            if axis < ty.dims.len() {
                ty.dims.remove(axis);
            }
        }
        self.builder.emit_with_blocks(Operation::ReduceBlock { axis }, operands, &types, vec![block])
    }

    /// Lets NaN lose in a block that takes the larger or smaller of two floats and what belongs to it: argmax and argmin pass over NaN
    /// as Triton documents, which a comparison alone does only in some orders of the elements, and the order is ours.
    fn without_nan(&mut self, mut block: Block) -> Block {
        let ([x, _, y, _], &[left, right]) = (&block.arguments[..], block.ends()) else { return block };
        let (x, y) = (*x, *y);
        let chosen = |by: Value| {
            let sides = [[block.arguments[0], block.arguments[2]], [block.arguments[1], block.arguments[3]]];
            [left, right].iter().zip(sides).all(|(&end, [first, second])| {
                let select = defined(&block, end);
                select.is_some_and(|select| {
                    select.operation == Operation::Select && select.operands == [by, first, second]
                })
            })
        };
        let is_comparison = |value: Value| {
            let of_both = |comparison: &Instruction| comparison.operands == [x, y];
            defined(&block, value).is_some_and(|instruction| {
                matches!(instruction.operation, Operation::Compare(Compare::Greater | Compare::Less))
                    && of_both(instruction)
            })
        };
        let Some(condition) = defined(&block, left).and_then(|select| select.operands.first().copied()) else {
            return block;
        };
        let is_either = defined(&block, condition).is_some_and(|either| {
            either.operation == Operation::Binary(Binary::Or) && either.operands.iter().any(|&side| is_comparison(side))
        });
        if !self.builder.scalar_of(x).is_float() || !chosen(condition) || !(is_either || is_comparison(condition)) {
            return block;
        }
        self.builder.begin_block(&[]);
        let is_nan = self.builder.compare(Compare::NotEqual, y, y);
        let either = self.builder.binary(Binary::Or, condition, is_nan);
        let mut added = self.builder.end_block(Operation::Yield, &[]).instructions;
        added.pop();
        let first = block.instructions.iter().position(|instruction| {
            instruction.operands.first() == Some(&condition) && instruction.operation == Operation::Select
        });
        for instruction in &mut block.instructions {
            if instruction.operation == Operation::Select && instruction.operands[0] == condition {
                instruction.operands[0] = either;
            }
        }
        let at = first.unwrap_or(0);
        block.instructions.splice(at..at, added);
        block
    }

    /// The named combination that a block of one operation on both of its arguments is.
    fn named_combination(&self, block: &Block) -> Option<Combine> {
        let ([x, y], [first, end]) = (&block.arguments[..], &block.instructions[..]) else { return None };
        let Operation::Binary(binary) = first.operation else { return None };
        let both = first.operands == [*x, *y] || first.operands == [*y, *x];
        // The difference is not among the combinations, so the order does not matter.
        let is_plain = both && end.operands == first.results && !matches!(binary, Binary::Subtract);
        Combine::ALL.iter().copied().find(|combine| is_plain && combine.operation() == binary)
    }
}
