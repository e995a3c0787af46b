//! Operations with regions.

use super::{Head, Printer, braces, parenthesized, written};
use crate::context::OperationId;
use crate::types::list;
use std::fmt::Write;

impl Printer<'_> {
    /// `"name"(%operands) <{attributes}> ({ regions }) : (types) -> types`
    pub(super) fn generic(&mut self, id: OperationId, depth: usize) {
        let context = self.context;
        let operation = context.operation(id);
        let (operands, results) = (self.operands(&operation.operands), self.results(&operation.results));
        let mut attributes: Vec<String> = operation.attributes.iter().map(|(n, a)| written(n, a)).collect();
        attributes.sort();
        let attributes =
            if attributes.is_empty() { String::new() } else { format!(" <{{{}}}>", attributes.join(", ")) };
        let _ = writeln!(self.text, "{results}\"{}\"({}){attributes} ({{", operation.name, operands.join(", "));
        for (index, &region) in operation.regions.iter().enumerate() {
            if index > 0 {
                self.text.push_str("}, {\n");
            }
            self.blocks_of(region, depth + 1, Head::Written);
        }
        let types = (context.types_of(&operation.operands), context.types_of(&operation.results));
        let indent = "  ".repeat(depth);
        let _ = write!(self.text, "{indent}}}) : ({}) -> {}", list(&types.0), parenthesized(&types.1));
    }

    pub(super) fn for_loop(&mut self, id: OperationId, depth: usize) {
        let context = self.context;
        let operation = context.operation(id);
        let operands = self.operands(&operation.operands);
        let body = context.region(operation.regions[0]).blocks[0];
        let results = self.results(&operation.results);
        let names: Vec<String> = context.block(body).arguments.iter().map(|&value| self.define(value, "arg")).collect();
        let _ = write!(
            self.text,
            "{results}scf.for %{} = {} to {} step {}",
            names[0], operands[0], operands[1], operands[2]
        );
        let pairs: Vec<String> =
            names[1..].iter().zip(&operands[3..]).map(|(name, initial)| format!("%{name} = {initial}")).collect();
        if !pairs.is_empty() {
            let types = list(&context.types_of(&operation.results));
            let _ = write!(self.text, " iter_args({}) -> ({types})", pairs.join(", "));
        }
        let _ = writeln!(self.text, "  : {} {{", context.type_of(operation.operands[0]));
        self.blocks_of(operation.regions[0], depth + 1, Head::LeftOut);
        self.close(id, depth);
    }

    pub(super) fn if_else(&mut self, id: OperationId, depth: usize) {
        let context = self.context;
        let operation = context.operation(id);
        let results = self.results(&operation.results);
        let condition = self.operands(&operation.operands).concat();
        let types = context.types_of(&operation.results);
        let arrow = if types.is_empty() { String::new() } else { format!(" -> ({})", list(&types)) };
        let _ = writeln!(self.text, "{results}scf.if {condition}{arrow} {{");
        self.blocks_of(operation.regions[0], depth + 1, Head::LeftOut);
        if !context.region(operation.regions[1]).blocks.is_empty() {
            let _ = writeln!(self.text, "{}}} else {{", "  ".repeat(depth));
            self.blocks_of(operation.regions[1], depth + 1, Head::LeftOut);
        }
        self.close(id, depth);
    }

    pub(super) fn while_loop(&mut self, id: OperationId, depth: usize) {
        let context = self.context;
        let operation = context.operation(id);
        let operands = self.operands(&operation.operands);
        let results = self.results(&operation.results);
        let before = context.region(operation.regions[0]).blocks[0];
        let names: Vec<String> =
            context.block(before).arguments.iter().map(|&value| self.define(value, "arg")).collect();
        let pairs: Vec<String> =
            names.iter().zip(&operands).map(|(name, initial)| format!("%{name} = {initial}")).collect();
        let start = if pairs.is_empty() { String::new() } else { format!(" ({})", pairs.join(", ")) };
        let types = (context.types_of(&operation.operands), context.types_of(&operation.results));
        let _ =
            writeln!(self.text, "{results}scf.while{start} : ({}) -> {} {{", list(&types.0), parenthesized(&types.1));
        self.blocks_of(operation.regions[0], depth + 1, Head::LeftOut);
        let _ = writeln!(self.text, "{}}} do {{", "  ".repeat(depth));
        self.blocks_of(operation.regions[1], depth + 1, Head::Written);
        self.close(id, depth);
    }

    pub(super) fn close(&mut self, id: OperationId, depth: usize) {
        let operation = self.context.operation(id);
        let mut attributes: Vec<String> = operation.attributes.iter().map(|(n, a)| written(n, a)).collect();
        attributes.sort();
        let kind = if operation.name == "scf.while" && !attributes.is_empty() { " attributes" } else { "" };
        let _ = write!(self.text, "{}}}{kind}{}", "  ".repeat(depth), braces(&attributes));
    }
}
