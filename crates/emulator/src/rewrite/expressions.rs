//! Expressions that clang's OpenCL mode takes otherwise than Metal: an element of memory as one of the two values of `?:`, and strings.

use super::Rewriter;
use crate::token::closing;
use std::ops::Range;

impl Rewriter<'_> {
    /// `c ? a[i] : T(0)` becomes `c ? openmps::element(a[i]) : T(0)`: where T is a class, clang makes no value of an object in another address
    /// space here. Of two elements, which may be assigned to, none is changed.
    pub(super) fn take_elements(&mut self) {
        for at in 0..self.tokens.len() {
            if self.word(at) != "?" {
                continue;
            }
            let Some(colon) = self.end_of_operand(at + 1).filter(|&end| self.word(end) == ":") else { continue };
            let Some(end) = self.end_of_operand(colon + 1) else { continue };
            let [first, second] = [at + 1..colon, colon + 1..end];
            match [&first, &second].map(|operand| self.is_element(operand)) {
                [true, false] => self.wrap_both(first, second),
                [false, true] => self.wrap_both(second, first),
                // A constant of a class beside what a function gives.
                [false, false] if self.word(colon - 1) == ")" && self.is_path(&second) => self.wrap(second),
                [false, false] if self.word(end - 1) == ")" && self.is_path(&first) => self.wrap(first),
                _ => {}
            }
        }
    }

    /// The sign that ends an operand of `?:`.
    fn end_of_operand(&self, mut at: usize) -> Option<usize> {
        while at < self.tokens.len() {
            match self.word(at) {
                "(" | "[" | "{" => at = closing(&self.tokens, at)? + 1,
                ":" if self.word(at + 1) == ":" && self.tokens[at + 1].at == self.tokens[at].end() => at += 2,
                ")" | "]" | "}" | "," | ";" | ":" | "?" => return Some(at),
                _ => at += 1,
            }
        }
        None
    }

    /// A name with an index: `a[i]`, `p.a[i][j]`.
    fn is_element(&self, operand: &Range<usize>) -> bool {
        let mut at = operand.start;
        let is_path = |word: &str| matches!(word, "." | "->");
        while at < operand.end && (self.tokens[at].is_name() || is_path(self.word(at))) {
            at += 1;
        }
        let indexed = at > operand.start && at < operand.end;
        while at < operand.end && self.word(at) == "[" {
            let Some(end) = closing(&self.tokens, at) else { return false };
            at = end + 1;
        }
        indexed && at == operand.end
    }

    /// A name beside an element is an object of the thread or a constant, which is no value either.
    fn wrap_both(&mut self, element: Range<usize>, other: Range<usize>) {
        self.wrap(element);
        if self.is_path(&other) {
            self.wrap(other);
        }
    }

    /// `a`, `a.b`, `A::b`, `A<B>::c`.
    fn is_path(&self, operand: &Range<usize>) -> bool {
        let count = |sign: &str| operand.clone().filter(|&at| self.word(at) == sign).count();
        let is_part = |at: usize| self.tokens[at].is_name() || matches!(self.word(at), ":" | "." | "->" | "<" | ">");
        operand.clone().all(is_part) && count("<") == count(">")
    }

    fn wrap(&mut self, operand: Range<usize>) {
        let range = self.bytes(operand.start, operand.end - 1);
        self.insert(range.start, "openmps::element(");
        self.insert(range.end, ")");
    }

    /// A string is in `constant` memory, which has a name of its own here.
    pub(super) fn place_strings(&mut self) {
        for at in 1..self.tokens.len() {
            let is_argument =
                matches!(self.word(at - 1), "(" | "," | "=") && matches!(self.word(at + 1), ")" | "," | ";");
            if self.word(at).starts_with('"') && is_argument && !self.is_message(at) {
                self.insert(self.tokens[at].at, "(constant char*)(ulong)");
            }
        }
    }

    /// Whether a string is a part of a `static_assert` or of other words that are no expressions.
    fn is_message(&self, string: usize) -> bool {
        let statement = (0..string).rev().find(|&at| matches!(self.word(at), ";" | "{" | "}")).map_or(0, |at| at + 1);
        let words = ["static_assert", "_Static_assert", "asm", "__asm__", "extern", "[", "__attribute__", "_Pragma"];
        (statement..string).any(|at| words.contains(&self.word(at)))
    }
}
