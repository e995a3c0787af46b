//! TTIR, MLIR's text of a module, in the form in which MLIR prints each operation.

mod form;
mod names;
mod regions;

use crate::attribute::{Attribute, quoted, symbol};
use crate::build::function_type;
use crate::context::{BlockId, Context, OperationId, RegionId, ValueId};
use crate::location::Location;
use crate::types::{Type, list};
use form::{Form, Types};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// Whether a text says where each operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origins {
    /// At the end of each line, and values have the names of their variables.
    Written,
    /// Not at all; values have numbers.
    LeftOut,
}

/// The text of a module, or of one operation.
pub fn print(context: &Context, operation: OperationId, origins: Origins) -> String {
    let mut printer = Printer { context, origins, ..Printer::new(context) };
    match context.operation(operation).name {
        "builtin.module" => printer.module(operation),
        _ => printer.operation(operation, 0),
    }
    printer.aliases();
    printer.text
}

struct Printer<'c> {
    context: &'c Context,
    origins: Origins,
    text: String,
    /// Names of values, without the percent sign.
    names: HashMap<ValueId, String>,
    taken: HashSet<String>,
    /// The next number of a value without a name.
    next: usize,
    /// The next number of an argument without a name.
    next_argument: usize,
    locations: HashMap<Location, usize>,
    definitions: Vec<String>,
}

impl<'c> Printer<'c> {
    fn new(context: &'c Context) -> Printer<'c> {
        Printer {
            context,
            origins: Origins::LeftOut,
            text: String::new(),
            names: HashMap::new(),
            taken: HashSet::new(),
            next: 0,
            next_argument: 0,
            locations: HashMap::new(),
            definitions: Vec::new(),
        }
    }

    fn module(&mut self, module: OperationId) {
        self.text.push_str("module {\n");
        for &function in self.context.functions(module) {
            self.names.clear();
            self.taken.clear();
            (self.next, self.next_argument) = (0, 0);
            self.function(function);
        }
        self.text.push_str("}\n");
    }

    fn function(&mut self, function: OperationId) {
        let context = self.context;
        let operation = context.operation(function);
        let visibility = operation.attribute("sym_visibility").map(Attribute::to_string).unwrap_or_default();
        let name = operation.symbol("sym_name").unwrap_or_default();
        let _ = write!(self.text, "  tt.func {visibility} {}(", symbol(name));
        let region = operation.regions[0];
        let entry = context.region(region).blocks[0];
        for (index, &argument) in context.block(entry).arguments.iter().enumerate() {
            let value = self.define(argument, "arg");
            let ty = context.type_of(argument);
            let of_argument = |(name, attribute): &(String, Attribute)| {
                let name = name.strip_prefix(&argument_prefix(index))?;
                Some(written(name, attribute))
            };
            let attributes: Vec<String> = operation.attributes.iter().filter_map(of_argument).collect();
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(self.text, "{comma}%{value}: {ty}{}", braces(&attributes));
            self.location(&context.value(argument).location);
        }
        self.text.push(')');
        let (_, results) = function_type(context, function);
        self.text.push_str(&match results {
            [] => String::new(),
            [one] => format!(" -> {one}"),
            several => format!(" -> ({})", list(several)),
        });
        let noinline = operation.attribute("noinline") == Some(&Attribute::Truth(true));
        let _ = writeln!(self.text, " attributes {{noinline = {noinline}}} {{");
        self.blocks_of(region, 2, Head::LeftOut);
        self.text.push_str("  }");
        self.location(&operation.location);
        self.text.push('\n');
    }

    /// The blocks of a region; the first one's arguments may stand elsewhere.
    fn blocks_of(&mut self, region: RegionId, depth: usize, first: Head) {
        let context = self.context;
        for (index, &block) in context.region(region).blocks.iter().enumerate() {
            if index > 0 || first == Head::Written && !context.block(block).arguments.is_empty() {
                let label = self.label(block);
                let _ = write!(self.text, "{}{label}", "  ".repeat(depth - 1));
                let arguments = context.block(block).arguments.clone();
                if !arguments.is_empty() {
                    self.text.push('(');
                    for (index, argument) in arguments.into_iter().enumerate() {
                        let name = self.define(argument, "arg");
                        let comma = if index == 0 { "" } else { ", " };
                        let _ = write!(self.text, "{comma}%{name}: {}", context.type_of(argument));
                        self.location(&context.value(argument).location);
                    }
                    self.text.push(')');
                }
                self.text.push_str(":\n");
            }
            for &operation in &context.block(block).operations {
                self.operation(operation, depth);
            }
        }
    }

    /// `^bb1`: the block's index in its region.
    fn label(&self, block: BlockId) -> String {
        let region = self.context.block(block).region.map(|region| self.context.region(region));
        let index = region.and_then(|region| region.blocks.iter().position(|&other| other == block));
        format!("^bb{}", index.unwrap_or(0))
    }

    fn operation(&mut self, id: OperationId, depth: usize) {
        let operation = self.context.operation(id);
        self.text.push_str(&"  ".repeat(depth));
        match operation.name {
            "scf.for" => self.for_loop(id, depth),
            "scf.if" => self.if_else(id, depth),
            "scf.while" => self.while_loop(id, depth),
            "cf.br" | "cf.cond_br" => self.branch(id),
            "arith.constant" => self.constant(id),
            _ if !operation.regions.is_empty() => self.generic(id, depth),
            _ => self.plain(id),
        }
        self.location(&operation.location);
        self.text.push('\n');
    }

    /// `%a, %b = name words, %operands {attributes} : types`
    fn plain(&mut self, id: OperationId) {
        let operation = self.context.operation(id);
        let form = Form::of(operation.name);
        let operands = self.operands(&operation.operands);
        let word = |name: &&str| operation.attribute(name).map(Attribute::to_string);
        let mut parts: Vec<String> = form.leading.iter().filter_map(word).collect();
        match form.types {
            Types::Indexed => {
                let (first, rest) = operands.split_first().map_or((String::new(), &[][..]), |(f, r)| (f.clone(), r));
                parts.push(format!("{first}[{}]", rest.join(", ")));
            }
            Types::Call => {
                let callee = operation.attribute("callee").map(Attribute::to_string).unwrap_or_default();
                parts.push(format!("{callee}({})", operands.join(", ")));
            }
            Types::Condition => {
                let (condition, rest) = operands.split_first().map_or(("", &[][..]), |(c, rest)| (c.as_str(), rest));
                let space = if rest.is_empty() { "" } else { " " };
                parts.push(format!("({condition}){space}{}", rest.join(", ")));
            }
            Types::Descriptor => parts.push(form::descriptor_operands(operation, &operands)),
            Types::Print | Types::Assembly => {}
            Types::Poll => parts.push(match &operands[..] {
                [pointer, expected, limit] => format!("{pointer}, {expected} timeout {limit}"),
                _ => operands.join(", "),
            }),
            _ => parts.extend(operands.clone()),
        }
        for (name, label) in form.trailing {
            parts.extend(word(name).map(|value| format!("{label}{value}")));
        }
        if operation.attribute("allow_reorder").is_some() {
            parts[0].push_str(" allow_reorder");
        }
        let hidden = |name: &str| form.leading.contains(&name) || form.trailing.iter().any(|(known, _)| *known == name);
        let mut attributes: Vec<(&str, &Attribute)> =
            operation.attributes.iter().map(|(n, a)| (n.as_str(), a)).collect();
        attributes.retain(|(name, _)| !hidden(name) && !form.hidden.contains(name));
        attributes.sort_by_key(|(name, _)| *name);
        let attributes: Vec<String> = attributes.into_iter().map(|(name, value)| written(name, value)).collect();
        let results = match (operation.name, &operation.results[..]) {
            ("tt.split", &[left, right]) => {
                format!("%{}, %{} = ", self.define(left, "outLHS"), self.define(right, "outRHS"))
            }
            (_, results) => self.results(results),
        };
        let body = parts.join(", ");
        let body = match form.types {
            Types::Scaled => form::scaled_product(operation, &operands),
            _ => body,
        };
        let space = if body.is_empty() || form.types == Types::Condition { "" } else { " " };
        let types = self.types(&form, id);
        let tail = if form.types == Types::Print && !operands.is_empty() {
            format!(" : {}", operands.join(", "))
        } else if form.types == Types::Assembly {
            format!(" {}", operands.join(", "))
        } else {
            String::new()
        };
        let _ = write!(self.text, "{results}{}{space}{body}{}{tail}{types}", operation.name, braces(&attributes));
    }

    /// The types behind the colon.
    fn types(&self, form: &Form, id: OperationId) -> String {
        let operation = self.context.operation(id);
        let operands = self.context.types_of(&operation.operands);
        let results = self.context.types_of(&operation.results);
        let text = match form.types {
            Types::None => return String::new(),
            Types::First => operands.first().or(results.first()).map(Type::to_string).unwrap_or_default(),
            Types::Arrow => form::between(&operands, &results, " -> "),
            Types::To => form::between(&operands, &results, " to "),
            Types::Operands if operands.is_empty() => return String::new(),
            Types::Condition if operands.len() == 1 => return String::new(),
            Types::Condition => list(&operands[1..]),
            Types::Operands | Types::Print => list(&operands),
            Types::Call | Types::Functional | Types::Indexed => {
                format!("({}) -> {}", list(&operands), parenthesized(&results))
            }
            Types::Assembly => format!("{} -> {}", list(&operands), list(&results)),
            Types::Poll => format!("{} -> {}", list(&operands[..operands.len().min(2)]), list(&results)),
            Types::Select => match operands.as_slice() {
                [Type::Integer(1), value, _] => value.to_string(),
                [condition, value, ..] => format!("{condition}, {value}"),
                _ => String::new(),
            },
            Types::Dot | Types::Scaled => form::product_types(operation, &operands, &results),
            Types::Descriptor => form::descriptor_types(operation, &operands, &results),
        };
        if text.is_empty() { text } else { format!(" : {text}") }
    }

    fn constant(&mut self, id: OperationId) {
        let operation = self.context.operation(id);
        let result = operation.results[0];
        let ty = self.context.type_of(result);
        let Some(Attribute::Number(number)) = operation.attribute("value") else { return };
        let literal = number.literal(ty);
        let name = match ty {
            Type::Integer(1) => literal.clone(),
            Type::Integer(bits) => format!("c{literal}_i{bits}"),
            _ => "cst".to_owned(),
        };
        let name = self.define(result, &name);
        let _ = match ty {
            Type::Tensor(..) => write!(self.text, "%{name} = arith.constant dense<{literal}> : {ty}"),
            Type::Integer(1) => write!(self.text, "%{name} = arith.constant {literal}"),
            _ => write!(self.text, "%{name} = arith.constant {literal} : {ty}"),
        };
    }

    fn branch(&mut self, id: OperationId) {
        let operation = self.context.operation(id);
        let operands = self.operands(&operation.operands);
        let labels: Vec<String> = operation.successors.iter().map(|&block| self.label(block)).collect();
        if let ("cf.cond_br", [condition], [yes, no]) = (operation.name, &operands[..], &labels[..]) {
            let _ = write!(self.text, "cf.cond_br {condition}, {yes}, {no}");
            return;
        }
        let types = list(&self.context.types_of(&operation.operands));
        let arguments =
            if operands.is_empty() { String::new() } else { format!("({} : {types})", operands.join(", ")) };
        let _ = write!(self.text, "cf.br {}{arguments}", labels.concat());
    }

    /// ` loc(#loc3)`
    fn location(&mut self, location: &Location) {
        if self.origins == Origins::Written {
            let alias = self.alias(location);
            let _ = write!(self.text, " loc({alias})");
        }
    }

    fn alias(&mut self, location: &Location) -> String {
        if let Some(number) = self.locations.get(location) {
            return format!("#loc{number}");
        }
        let definition = match location {
            Location::Unknown => return "unknown".to_owned(),
            Location::Place { file, line, column } => format!("{}:{line}:{column}", quoted(file)),
            Location::Named(name, inner) => {
                let inner = self.alias(inner);
                format!("{}({inner})", quoted(name))
            }
            Location::Inlined { callee, caller } => {
                let (callee, caller) = (self.alias(callee), self.alias(caller));
                format!("callsite({callee} at {caller})")
            }
        };
        self.definitions.push(definition);
        self.locations.insert(location.clone(), self.definitions.len());
        format!("#loc{}", self.definitions.len())
    }

    fn aliases(&mut self) {
        for (index, definition) in self.definitions.iter().enumerate() {
            let _ = writeln!(self.text, "#loc{} = loc({definition})", index + 1);
        }
    }
}

/// Whether the arguments of a region's first block stand at its beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Written,
    LeftOut,
}

/// What the name of an attribute of a function's parameter begins with.
fn argument_prefix(index: usize) -> String {
    format!("arg{index}:")
}

/// The name under which a function keeps an attribute of one of its parameters.
pub fn argument_attribute(index: usize, name: &str) -> String {
    argument_prefix(index) + name
}

fn written(name: &str, attribute: &Attribute) -> String {
    if *attribute == Attribute::Unit { name.to_owned() } else { format!("{name} = {attribute}") }
}

fn braces(attributes: &[String]) -> String {
    if attributes.is_empty() { String::new() } else { format!(" {{{}}}", attributes.join(", ")) }
}

fn parenthesized(types: &[Type]) -> String {
    if let [one] = types { one.to_string() } else { format!("({})", list(types)) }
}
