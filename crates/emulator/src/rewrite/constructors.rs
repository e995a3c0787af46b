//! Constructors that are written once for each address space, `S() threadgroup = default;` or `S(T x) device : x(x) {}`. One without address
//! space serves them all: clang takes it for objects of any.

use super::Rewriter;
use crate::token::closing;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

pub(super) const SPACES: [&str; 4] = ["constant", "device", "thread", "threadgroup"];

/// What may stand before a constructor's name.
const SPECIFIERS: [&str; 4] = ["METAL_FUNC", "constexpr", "explicit", "inline"];

impl Rewriter<'_> {
    /// Leaves one constructor with a body, without address space, of those that differ in nothing else.
    pub(super) fn share_constructors(&mut self) {
        let mut heads = HashMap::new();
        let (mut open, mut rounds, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        let mut parameters = None;
        for at in 0..self.tokens.len() {
            match self.word(at) {
                "template" if self.word(at + 1) == "<" => {
                    if let Some(end) = closing(&self.tokens, at + 1) {
                        heads.insert(end, at);
                    }
                }
                "{" => open.push(at),
                "}" => {
                    open.pop();
                }
                "(" => rounds.push(at),
                ")" => parameters = rounds.pop().map(|open| open..at),
                space if SPACES.contains(&space) && self.word(at - 1) == ")" => {
                    let Some(parameters) = parameters.clone() else { continue };
                    let Some(begin) = self.constructor(&parameters, &heads) else { continue };
                    let Some(end) = self.end_of_constructor(at + 1) else { continue };
                    let signature: Vec<&str> = (begin..at).map(|at| self.word(at)).collect();
                    let first = seen.insert((open.last().copied(), signature));
                    let range = if first { self.bytes(at, at) } else { self.bytes(begin, end) };
                    self.replace(range, "");
                }
                _ => {}
            }
        }
    }

    /// Where the constructor begins that has these parameters, with its template's head, or none where they are another function's.
    fn constructor(&self, parameters: &Range<usize>, heads: &HashMap<usize, usize>) -> Option<usize> {
        let name = parameters.start.checked_sub(1).filter(|name| self.tokens[*name].is_name())?;
        let mut begin = name;
        while begin > 0 && SPECIFIERS.contains(&self.word(begin - 1)) {
            begin -= 1;
        }
        let before = begin.checked_sub(1)?;
        match self.word(before) {
            ">" => heads.get(&before).copied(),
            "{" | "}" | ";" | ":" => Some(begin),
            _ => None,
        }
    }

    /// The end of a body, before which members may get their values.
    fn end_of_constructor(&self, mut at: usize) -> Option<usize> {
        if self.word(at) == ":" {
            loop {
                at = (at + 1..self.tokens.len()).find(|&at| matches!(self.word(at), "(" | "{"))?;
                at = closing(&self.tokens, at)? + 1;
                if self.word(at) != "," {
                    break;
                }
            }
        }
        (self.word(at) == "{").then(|| closing(&self.tokens, at)).flatten()
    }

    /// Leaves one defaulted constructor without address space to each class.
    pub(super) fn merge_constructors(&mut self) {
        let (mut open, mut seen) = (Vec::new(), HashSet::new());
        for at in 0..self.tokens.len() {
            match self.word(at) {
                "{" => open.push(at),
                "}" => {
                    open.pop();
                }
                "default" if self.word(at + 1) == ";" => {
                    if let Some((begin, name, has_space)) = self.defaulted(at) {
                        let first = seen.insert((open.last().copied(), name.to_owned()));
                        if has_space || !first {
                            let text = if first { format!("{name}() = default;") } else { String::new() };
                            let range = self.bytes(begin, at + 1);
                            self.replace(range, text);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Where the defaulted constructor that ends at `default` begins, its name, and whether it is for an address space.
    fn defaulted(&self, default: usize) -> Option<(usize, &str, bool)> {
        let has_space = SPACES.contains(&self.word(default.checked_sub(2)?));
        let parenthesis = default.checked_sub(2 + usize::from(has_space))?;
        if self.word(default - 1) != "="
            || self.word(parenthesis) != ")"
            || self.word(parenthesis.checked_sub(1)?) != "("
        {
            return None;
        }
        let mut name = parenthesis.checked_sub(2)?;
        if self.word(name) == ">" {
            // A class template may be named with its arguments.
            name = (0..name).rev().find(|&at| self.word(at) == "<")?.checked_sub(1)?;
        }
        let begin = if name > 0 && self.word(name - 1) == "constexpr" { name - 1 } else { name };
        (self.tokens[name].is_name() && self.word(begin.checked_sub(1)?) != "~")
            .then(|| (begin, self.word(name), has_space))
    }
}
