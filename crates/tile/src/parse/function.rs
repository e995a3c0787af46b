//! The function of a module: parameters, blocks, loops and reductions.

use super::cursor::{Cursor, Read};
use super::operations::{self, Simple};
use super::types::ty;
use crate::builder::Builder;
use crate::kernel::{Combine, Kernel, Value};
use crate::types::Type;
use std::collections::HashMap;

/// Loops inside of loops: more are refused, so that no text exhausts the stack.
const DEEPEST: usize = 64;

/// Values by name. Names in blocks beside each other may be the same; the later one counts.
pub type Names = HashMap<String, Value>;

/// Reads `tt.func`.
pub fn function(cursor: &mut Cursor) -> Read<Kernel> {
    cursor.expect("tt.func")?;
    let _ = cursor.take("public") || cursor.take("private");
    cursor.expect("@")?;
    let name = cursor.word();
    let (mut b, mut names) = (Builder::new(name), Names::new());
    cursor.expect("(")?;
    while !cursor.take(")") {
        let name = cursor.value()?;
        cursor.expect(":")?;
        let parameter = ty(cursor)?;
        if cursor.looking_at("{") {
            cursor.skip_braces()?;
        }
        cursor.skip_location()?;
        names.insert(name.to_owned(), b.parameter(name, parameter));
        let _ = cursor.take(",");
    }
    if cursor.looking_at("->") {
        return Err(cursor.refuse("tt.func", "a kernel with results"));
    }
    if cursor.take("attributes") {
        cursor.skip_braces()?;
    }
    cursor.expect("{")?;
    block(cursor, &mut b, &mut names, 0)?;
    cursor.skip_location()?;
    Ok(b.finish())
}

/// Reads up to the closing brace; what the block yields.
fn block(cursor: &mut Cursor, b: &mut Builder, names: &mut Names, depth: usize) -> Read<Vec<Value>> {
    let mut yielded = Vec::new();
    while !cursor.take("}") {
        let results = results(cursor)?;
        if cursor.looking_at("\"") {
            let value = generic(cursor, b, names)?;
            define(cursor, names, &results, &[value])?;
            continue;
        }
        let operation = cursor.word();
        match operation {
            "scf.for" => {
                let values = for_loop(cursor, b, names, depth)?;
                define(cursor, names, &results, &values)?;
            }
            "scf.yield" => yielded = Simple::read(cursor, names)?.operands,
            "tt.return" => {
                cursor.skip_location()?;
            }
            "arith.constant" => {
                let value = operations::constant(cursor, b)?;
                define(cursor, names, &results, &[value])?;
            }
            "" => return Err(cursor.error(format!("{}, expected an operation", cursor.found()))),
            _ => {
                let at = cursor.mark();
                let simple = Simple::read(cursor, names)?;
                let value =
                    operations::lower(operation, &simple, b).map_err(|why| at.refuse(cursor, operation, why))?;
                define(cursor, names, &results, value.as_slice())?;
            }
        }
    }
    cursor.skip_location()?;
    Ok(yielded)
}

/// `%a, %b:2 =`: the names of an operation's results, each with how many values it stands for.
fn results<'t>(cursor: &mut Cursor<'t>) -> Read<Vec<(&'t str, usize)>> {
    let mut results = Vec::new();
    if !cursor.looking_at("%") {
        return Ok(results);
    }
    loop {
        let name = cursor.value()?;
        let count = if cursor.take(":") { cursor.digits()? } else { 1 };
        results.push((name, count));
        if !cursor.take(",") {
            break;
        }
    }
    cursor.expect("=")?;
    Ok(results)
}

/// Gives values their names; the second of `%a:2` is `%a#1`.
fn define(cursor: &Cursor, names: &mut Names, results: &[(&str, usize)], values: &[Value]) -> Read<()> {
    let count: usize = results.iter().map(|(_, count)| count).sum();
    if count != values.len() {
        return Err(cursor.error(format!("{count} names for {} results", values.len())));
    }
    let mut values = values.iter();
    for &(name, count) in results {
        for (index, &value) in (0..count).zip(&mut values) {
            let name = if count == 1 { name.to_owned() } else { format!("{name}#{index}") };
            names.insert(name, value);
        }
    }
    Ok(())
}

/// `scf.for %i = %lower to %upper step %step iter_args(%a = %b) -> (type) : i32 { .. }`
fn for_loop(cursor: &mut Cursor, b: &mut Builder, names: &mut Names, depth: usize) -> Read<Vec<Value>> {
    if depth >= DEEPEST {
        return Err(cursor.error(format!("loops nested more than {DEEPEST} deep")));
    }
    if cursor.take("unsigned") {
        return Err(cursor.refuse("scf.for", "unsigned bounds"));
    }
    let index = cursor.value()?;
    cursor.expect("=")?;
    let lower = named(cursor, names)?;
    cursor.expect("to")?;
    let upper = named(cursor, names)?;
    cursor.expect("step")?;
    let step = named(cursor, names)?;
    let (mut carried, mut initial) = (Vec::new(), Vec::new());
    if cursor.take("iter_args") {
        cursor.expect("(")?;
        while !cursor.take(")") {
            carried.push(cursor.value()?);
            cursor.expect("=")?;
            initial.push(named(cursor, names)?);
            let _ = cursor.take(",");
        }
        cursor.expect("->")?;
        type_list(cursor)?;
    }
    if cursor.take(":") {
        ty(cursor)?;
    }
    cursor.expect("{")?;
    let mut failed = None;
    let values = b.for_loop([lower, upper, step], &initial, |b, at, arguments| {
        names.insert(index.to_owned(), at);
        names.extend(carried.iter().map(|name| name.to_string()).zip(arguments.iter().copied()));
        block(cursor, b, names, depth + 1).unwrap_or_else(|error| {
            failed = Some(error);
            arguments.to_vec()
        })
    });
    match failed {
        Some(error) => Err(error),
        None => {
            if cursor.looking_at("{") {
                cursor.skip_braces()?;
                cursor.skip_location()?;
            }
            Ok(values)
        }
    }
}

/// A value that is there.
pub fn named(cursor: &mut Cursor, names: &Names) -> Read<Value> {
    let name = cursor.value()?;
    names.get(name).copied().ok_or_else(|| cursor.error(format!("%{name} is not defined before")))
}

/// `(type, type)`
pub fn type_list(cursor: &mut Cursor) -> Read<Vec<Type>> {
    cursor.expect("(")?;
    let mut types = Vec::new();
    while !cursor.take(")") {
        types.push(ty(cursor)?);
        let _ = cursor.take(",");
    }
    Ok(types)
}

/// An operation in quotes: of these only `tt.reduce` is covered.
fn generic(cursor: &mut Cursor, b: &mut Builder, names: &Names) -> Read<Value> {
    cursor.expect("\"")?;
    let operation = cursor.word();
    if operation != "tt.reduce" {
        return Err(cursor.refuse(operation, "not covered"));
    }
    cursor.expect("\"(")?;
    let x = named(cursor, names)?;
    if cursor.take(",") {
        return Err(cursor.refuse(operation, "several tiles reduced together"));
    }
    cursor.expect(")")?;
    cursor.expect("<")?;
    let attributes = cursor.attributes()?;
    cursor.expect(">")?;
    let axis = operations::attribute(attributes, "axis")
        .and_then(|axis| usize::try_from(axis).ok())
        .ok_or_else(|| cursor.error("tt.reduce without an axis"))?;
    cursor.expect("(")?;
    let combine = combination(cursor)?;
    cursor.expect(")")?;
    cursor.expect(":")?;
    type_list(cursor)?;
    cursor.expect("->")?;
    ty(cursor)?;
    cursor.skip_location()?;
    if axis >= b.type_of(x).dims.len() {
        return Err(cursor.error(format!("tt.reduce of axis {axis} of {}", b.type_of(x))));
    }
    Ok(b.reduce(combine, x, axis))
}

/// The region of a reduction: one operation on both arguments.
fn combination(cursor: &mut Cursor) -> Read<Combine> {
    cursor.expect("{")?;
    cursor.expect("^")?;
    cursor.word();
    cursor.expect("(")?;
    let mut arguments = Vec::new();
    while !cursor.take(")") {
        arguments.push(cursor.value()?);
        cursor.expect(":")?;
        ty(cursor)?;
        cursor.skip_location()?;
        let _ = cursor.take(",");
    }
    cursor.expect(":")?;
    let result = cursor.value()?;
    cursor.expect("=")?;
    let operation = cursor.word();
    let Some(combine) = operations::combine(operation) else {
        return Err(cursor.refuse("tt.reduce", format!("a combination by {operation}")));
    };
    let first = cursor.value()?;
    cursor.expect(",")?;
    let second = cursor.value()?;
    cursor.expect(":")?;
    ty(cursor)?;
    cursor.skip_location()?;
    let plain = arguments.len() == 2 && [first, second] == arguments[..] || [second, first] == arguments[..];
    if !cursor.take("tt.reduce.return") || !plain || cursor.value()? != result {
        return Err(cursor.refuse("tt.reduce", "a combination of more than one operation"));
    }
    cursor.expect(":")?;
    ty(cursor)?;
    cursor.skip_location()?;
    cursor.expect("}")?;
    Ok(combine)
}
