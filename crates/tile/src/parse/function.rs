//! Functions of a module: their parameters, their bodies, and calls, which are inlined.

use super::branches::Flows;
use super::cursor::{Cursor, Read};
use super::operations::{self, Simple};
use super::region;
use super::types::ty;
use crate::builder::Builder;
use crate::kernel::{Kernel, Value};
use std::collections::HashMap;

/// Blocks inside of blocks and calls inside of calls: more are refused, so that no text exhausts the stack.
const DEEPEST: usize = 64;

/// Instructions of a kernel: more are refused, so that functions calling each other do not exhaust the memory.
const LONGEST: usize = 1 << 20;

/// Bytes of functions in the place of calls: more are refused, so that short functions calling each other do not take for ever.
const MOST_INLINED: usize = 64 << 20;

/// Values by name. Names in blocks beside each other may be the same; the later one counts.
pub type Names = HashMap<String, Value>;

/// A module's functions, and the kernel that is being built.
pub struct Reader<'t> {
    pub builder: Builder,
    /// Functions that may be called: where their parameters begin, and how many bytes they have from there.
    functions: HashMap<&'t str, (Cursor<'t>, usize)>,
    depth: usize,
    instructions: usize,
    inlined: usize,
}

/// A parameter as a function declares it.
struct Declared<'t> {
    name: &'t str,
    ty: crate::types::Type,
    divisibility: u32,
}

/// How a block ended.
#[derive(Default)]
pub struct End {
    /// Whether by `scf.condition`.
    pub condition: bool,
    /// What it yields, returns or passes on; a condition's boolean first.
    pub values: Vec<Value>,
}

/// Reads all functions of a module; the public one is the kernel.
pub fn module(cursor: &mut Cursor) -> Read<Kernel> {
    let (mut functions, mut kernel) = (HashMap::new(), None);
    while cursor.take("tt.func") {
        let is_private = cursor.take("private");
        let _ = cursor.take("public");
        let name = cursor.symbol()?;
        let start = cursor.clone();
        cursor.skip_function()?;
        if is_private {
            let length = cursor.bytes_since(&start);
            functions.insert(name, (start, length));
        } else if kernel.replace((name, start)).is_some() {
            return Err(cursor.refuse("tt.func", "a second public function"));
        }
    }
    cursor.expect("}")?;
    let Some((name, mut start)) = kernel else { return Err(cursor.error("no public function in the module")) };
    let mut reader = Reader { builder: Builder::new(name), functions, depth: 0, instructions: 0, inlined: 0 };
    let parameters = reader.parameters(&mut start)?;
    let mut names = Names::new();
    for Declared { name, ty, divisibility } in parameters {
        let value = reader.builder.parameter(name, ty);
        reader.builder.divisible(divisibility);
        names.insert(name.to_owned(), value);
    }
    reader.body(&mut start, &mut names)?;
    Ok(reader.builder.finish())
}

impl<'t> Reader<'t> {
    /// `(%a: type {attributes} loc(..), ..)`
    fn parameters(&mut self, cursor: &mut Cursor<'t>) -> Read<Vec<Declared<'t>>> {
        let mut parameters = Vec::new();
        cursor.expect("(")?;
        while !cursor.take(")") {
            let name = cursor.value()?;
            cursor.expect(":")?;
            let ty = ty(cursor)?;
            let attributes = if cursor.looking_at("{") { cursor.attributes()? } else { "" };
            parameters.push(Declared { name, ty, divisibility: divisibility(attributes) });
            cursor.skip_location()?;
            let _ = cursor.take(",");
        }
        Ok(parameters)
    }

    /// From behind the parameters to behind the closing brace; what the function returns.
    fn body(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<Vec<Value>> {
        if cursor.take("->") {
            region::types(cursor)?;
        }
        if cursor.take("attributes") {
            cursor.skip_braces()?;
        }
        cursor.expect("{")?;
        let flows = Flows::of(cursor);
        if flows.is_empty() {
            Ok(self.block(cursor, names)?.values)
        } else {
            self.branches(cursor.clone(), names, &flows)
        }
    }

    /// `tt.call @name(%a, ..) : (types) -> types`: the function's body in its place.
    fn call(&mut self, cursor: &mut Cursor<'t>, names: &Names) -> Read<Vec<Value>> {
        let name = cursor.symbol()?;
        let Some((mut function, length)) = self.functions.get(name).cloned() else {
            return Err(cursor.refuse("tt.call", format!("no private function @{name} in the module")));
        };
        self.inlined = self.inlined.saturating_add(length);
        if self.inlined > MOST_INLINED {
            return Err(cursor.refuse("tt.call", format!("calls that stand for more than {MOST_INLINED} bytes")));
        }
        cursor.expect("(")?;
        let mut arguments = Vec::new();
        while !cursor.take(")") {
            arguments.push(named(cursor, names)?);
            let _ = cursor.take(",");
        }
        cursor.expect(":")?;
        region::types(cursor)?;
        cursor.expect("->")?;
        region::types(cursor)?;
        cursor.skip_location()?;
        let parameters = self.parameters(&mut function)?;
        if parameters.len() != arguments.len() {
            return Err(cursor.error(format!("{} arguments for @{name}", arguments.len())));
        }
        let mut inner: Names = parameters.iter().map(|parameter| parameter.name.to_owned()).zip(arguments).collect();
        self.body(&mut function, &mut inner)
    }

    /// Reads up to the closing brace.
    pub fn block(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<End> {
        self.enter(cursor)?;
        let mut end = End::default();
        while !cursor.take("}") {
            if cursor.looking_at("^") {
                return Err(cursor.refuse("cf.br", "branches between blocks of a loop or a condition"));
            }
            self.count(cursor)?;
            self.operation(cursor, names, &mut end)?;
        }
        cursor.skip_location()?;
        self.leave();
        Ok(end)
    }

    /// One level deeper.
    pub fn enter(&mut self, cursor: &Cursor) -> Read<()> {
        if self.depth >= DEEPEST {
            return Err(cursor.error(format!("blocks and calls nested more than {DEEPEST} deep")));
        }
        self.depth += 1;
        Ok(())
    }

    /// One level less deep.
    pub fn leave(&mut self) {
        self.depth -= 1;
    }

    /// One more instruction.
    pub fn count(&mut self, cursor: &Cursor) -> Read<()> {
        self.instructions += 1;
        if self.instructions > LONGEST {
            return Err(cursor.error(format!("more than {LONGEST} instructions")));
        }
        Ok(())
    }

    /// Reads one operation that ends no block.
    pub fn one(&mut self, cursor: &mut Cursor<'t>, names: &mut Names) -> Read<()> {
        self.operation(cursor, names, &mut End::default())
    }

    fn operation(&mut self, cursor: &mut Cursor<'t>, names: &mut Names, end: &mut End) -> Read<()> {
        let results = results(cursor)?;
        self.builder.at(cursor.source_line());
        if cursor.looking_at("\"") {
            let values = self.generic(cursor, names)?;
            return define(cursor, names, &results, &values);
        }
        let operation = cursor.word();
        let values = match operation {
            "scf.for" => self.for_loop(cursor, names)?,
            "scf.if" => self.if_else(cursor, names)?,
            "scf.while" => self.while_loop(cursor, names)?,
            "scf.yield" | "tt.return" | "tt.reduce.return" | "tt.scan.return" | "tt.map_elementwise.return" => {
                end.values = Simple::read(cursor, names)?.operands;
                Vec::new()
            }
            "scf.condition" => {
                *end = End { condition: true, values: region::condition(cursor, names)? };
                Vec::new()
            }
            "tt.call" => self.call(cursor, names)?,
            "arith.constant" => vec![operations::constant(cursor, &mut self.builder)?],
            "" => return Err(cursor.error(format!("{}, expected an operation", cursor.found()))),
            _ => {
                let at = cursor.mark();
                let simple = Simple::read(cursor, names)?;
                operations::lower(operation, &simple, &mut self.builder)
                    .map_err(|why| at.refuse(cursor, operation, why))?
            }
        };
        define(cursor, names, &results, &values)
    }
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

/// The number behind `tt.divisibility =`; 1 where there is none that is a power of two.
fn divisibility(attributes: &str) -> u32 {
    let after = attributes.split_once("tt.divisibility").map_or("", |(_, after)| after);
    let digits = after.trim_start_matches([' ', '=']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|number: &u32| number.is_power_of_two()).unwrap_or(1)
}

/// Gives values their names; the second of `%a:2` is `%a#1`.
fn define(cursor: &Cursor, names: &mut Names, results: &[(&str, usize)], values: &[Value]) -> Read<()> {
    let count = results.iter().fold(0_usize, |sum, (_, count)| sum.saturating_add(*count));
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

/// A value that is there.
pub fn named(cursor: &mut Cursor, names: &Names) -> Read<Value> {
    let name = cursor.value()?;
    names.get(name).copied().ok_or_else(|| cursor.error(format!("%{name} is not defined before")))
}
