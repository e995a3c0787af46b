//! Operations with blocks of their own: loops, conditions, reductions and scans.

use super::branches::Flows;
use super::cursor::{Cursor, Read};
use super::function::{End, Names, Reader, named};
use super::types::ty;
use super::{combination, elementwise, operations};
use crate::kernel::{Block, Operation, Value};
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
        if cursor.take("attributes") || cursor.looking_at("{") {
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
        let at = cursor.mark();
        cursor.expect("\"")?;
        let operation = cursor.word();
        if !matches!(operation, "tt.reduce" | "tt.scan" | "tt.map_elementwise") {
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
        cursor.expect("(")?;
        let block = self.of_elements(cursor, names)?;
        cursor.expect(")")?;
        cursor.expect(":")?;
        types(cursor)?;
        cursor.expect("->")?;
        types(cursor)?;
        cursor.skip_location()?;
        match operation {
            "tt.map_elementwise" => {
                let pack = operations::attribute(attributes, "pack").and_then(|pack| usize::try_from(pack).ok());
                let lowered = elementwise::lower(&mut self.builder, &operands, pack.unwrap_or(1), &block);
                lowered.map_err(|why| at.refuse(cursor, operation, why))
            }
            _ => {
                let axis = operations::attribute(attributes, "axis").and_then(|axis| usize::try_from(axis).ok());
                let rank = operands.first().map_or(0, |&x| self.builder.type_of(x).dims.len());
                let Some(axis) = axis.filter(|&axis| axis < rank) else {
                    return Err(cursor.error(format!("{operation} along no axis of its operand")));
                };
                let reverse = (operation == "tt.scan").then(|| attributes.contains("reverse = true"));
                Ok(combination::lower(&mut self.builder, &operands, axis, reverse, block))
            }
        }
    }

    /// A block that says something of single elements, which may return in the middle.
    fn of_elements(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<Block> {
        let mut behind = cursor.clone();
        cursor.expect("{")?;
        let (arguments, types): (Vec<&str>, Vec<Type>) = self.labelled(cursor)?.into_iter().unzip();
        let flows = Flows::of(cursor);
        if flows.is_empty() {
            return self.inner(cursor, names, &arguments, &types);
        }
        behind.skip_braces()?;
        let values = self.builder.begin_block(&types);
        names.extend(arguments.iter().map(|name| (*name).to_owned()).zip(values));
        let values = self.branches(cursor.clone(), names, &flows)?;
        *cursor = behind;
        Ok(self.builder.end_block(Operation::Yield, &values))
    }
}
