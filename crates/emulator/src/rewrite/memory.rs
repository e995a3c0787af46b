//! Threadgroup variables. clang takes them in the outermost block of a kernel that is no template; those elsewhere in a kernel become
//! references to memory that belongs to the kernel, which the emulator finds by the kernel's tag.

use super::Rewriter;
use crate::source::parts;
use crate::token::{Token, closing, written};
use std::ops::Range;

/// A variable in the words of its declaration.
struct Variable {
    name: String,
    dimensions: String,
}

impl Rewriter<'_> {
    /// Rewrites the threadgroup variables of a body, those of its outermost block too where `outermost` says so; whether there were any.
    pub(super) fn threadgroup_variables(&mut self, body: Range<usize>, tag: &str, outermost: bool) -> bool {
        let (mut depth, mut at, mut found) = (0, body.start, false);
        while at < body.end {
            match self.word(at) {
                "{" => depth += 1,
                "}" => depth -= 1,
                "threadgroup" if (outermost || depth > 1) && self.begins_statement(at) => {
                    let end = (at..body.end).find(|&at| self.word(at) == ";").unwrap_or(body.end);
                    if let Some(text) = self.references(at + 1..end, tag) {
                        let range = self.bytes(at, end);
                        self.replace(range, text);
                        found = true;
                    }
                    at = end;
                }
                _ => {}
            }
            at += 1;
        }
        found
    }

    fn begins_statement(&self, at: usize) -> bool {
        matches!(self.word(at - 1), "{" | "}" | ";" | ":")
    }

    /// References in the place of a declaration, or none where it declares pointers or has an initial value, which clang judges.
    fn references(&mut self, declaration: Range<usize>, tag: &str) -> Option<String> {
        let declared = parts(&self.tokens[declaration]);
        let (kind, first) = split(declared.first()?)?;
        let rest = declared[1..].iter().map(|part| variable(part));
        let variables: Option<Vec<Variable>> = std::iter::once(Some(first)).chain(rest).collect();
        let mut text = String::new();
        for Variable { name, dimensions } in variables? {
            let number = self.variables;
            self.variables += 1;
            text += &format!(
                "threadgroup {kind} (&{name}){dimensions} = openmps::memory<{kind} {dimensions}, {tag}, {number}>();"
            );
        }
        Some(text)
    }
}

/// The type and the first variable.
fn split(tokens: &[Token]) -> Option<(String, Variable)> {
    let end = end_of_name(tokens)?;
    let variable = variable(&tokens[end - 1..])?;
    let kind = &tokens[..end - 1];
    let plain = !kind.is_empty() && !kind.iter().any(|token| matches!(token.text, "*" | "&"));
    plain.then(|| (written(without_alignment(kind)), variable))
}

/// Where the name ends: before the first dimension, or at the end.
fn end_of_name(tokens: &[Token]) -> Option<usize> {
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].text {
            "[" => return Some(at),
            "=" | "{" => return None,
            _ => at = closing(tokens, at).unwrap_or(at) + 1,
        }
    }
    Some(at).filter(|at| *at > 0)
}

fn variable(tokens: &[Token]) -> Option<Variable> {
    let (name, mut dimensions) = tokens.split_first()?;
    let whole = dimensions;
    while dimensions.first().is_some_and(|open| open.text == "[") {
        dimensions = &dimensions[closing(dimensions, 0)? + 1..];
    }
    // Zeros, as Apple's compiler takes them. The memory holds poison all the same: no kernel may count on an initial value.
    let zeros = dimensions.iter().all(|token| matches!(token.text, "=" | "{" | "0" | "}"));
    let text = written(&whole[..whole.len() - dimensions.len()]);
    (name.is_name() && zeros).then(|| Variable { name: name.text.to_owned(), dimensions: text })
}

/// The memory is aligned for every type.
fn without_alignment<'a, 'b>(kind: &'a [Token<'b>]) -> &'a [Token<'b>] {
    let aligned = kind.first().is_some_and(|token| token.text == "alignas");
    let end = if aligned { closing(kind, 1) } else { None };
    end.map_or(kind, |end| &kind[end + 1..])
}
