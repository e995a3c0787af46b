//! What clang's OpenCL mode takes otherwise than Metal: a member function without address space works on objects of the thread's own, not on
//! those of any address space; a reference to a constant number of the thread's own may be bound to a value; a template may have a function
//! as a parameter.

use super::Rewriter;
use super::constructors::SPACES;
use crate::token::closing;
use std::collections::HashSet;
use std::ops::Range;

/// What may stand between a member function's parameters and its body.
const QUALIFIERS: [&str; 3] = ["const", "noexcept", "volatile"];
/// Words of statements in a class that are no member functions with an object.
const OTHERS: [&str; 6] = ["enum", "friend", "static", "static_assert", "typedef", "using"];
const NUMBERS: [&str; 14] = [
    "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat", "float", "size_t",
    "uint32_t",
];

impl Rewriter<'_> {
    /// Gives member functions without address space that of the thread.
    pub(super) fn place_members(&mut self) {
        for at in 0..self.tokens.len() {
            let named = self.tokens.get(at + 1).is_some_and(|token| token.is_name());
            let parameter = at > 0 && matches!(self.word(at - 1), "<" | "," | "enum");
            if !matches!(self.word(at), "struct" | "class") || !named || parameter {
                continue;
            }
            // A base, a specialization's arguments; no type of a variable or parameter.
            let body =
                (at + 1..self.tokens.len()).find(|&at| matches!(self.word(at), "{" | ";" | "(" | ")" | "=" | ">"));
            let body = match body {
                Some(sign) if self.word(sign) == ">" => {
                    (sign..self.tokens.len()).find(|&at| matches!(self.word(at), "{" | ";" | "(" | ")" | "=" | ","))
                }
                other => other,
            };
            if let Some(body) = body.filter(|&at| self.word(at) == "{")
                && let Some(end) = closing(&self.tokens, body)
            {
                self.place_members_of(self.word(at + 1), body + 1..end);
            }
        }
    }

    fn place_members_of(&mut self, class: &str, body: Range<usize>) {
        let mut at = body.start;
        while at < body.end {
            let begin = at;
            let mut parameters = None;
            let mut assigned = false;
            while at < body.end && !matches!(self.word(at), "{" | ";") {
                match self.word(at) {
                    "(" => {
                        let end = closing(&self.tokens, at).unwrap_or(at);
                        if !assigned {
                            parameters = Some((at, end));
                        }
                        at = end;
                    }
                    // A constructor's initial values follow.
                    ":" if self.word(at - 1) == ")"
                        || self.word(at - 2) == ")" && SPACES.contains(&self.word(at - 1)) =>
                    {
                        assigned = true;
                    }
                    "[" => at = closing(&self.tokens, at).unwrap_or(at),
                    "<" if self.word(at - 1) == "template" => at = closing(&self.tokens, at).unwrap_or(at),
                    "=" if !(begin..at).any(|at| self.word(at) == "operator") => assigned = true,
                    _ => {}
                }
                at += 1;
            }
            if let Some((open, close)) = parameters
                && self.is_member(class, begin..open)
                && !assigned
                && (close + 1..at).all(|at| QUALIFIERS.contains(&self.word(at)))
            {
                self.insert(self.tokens[at - 1].end(), " thread");
            }
            if self.word(at) == "{" {
                at = closing(&self.tokens, at).unwrap_or(at);
            }
            at += 1;
        }
    }

    /// Member functions for objects in `device` memory: clang knows that address space not here, but the whole that it is a part of, in which
    /// `constant` objects are too. Of two that would be one the first is left.
    pub(super) fn place_device_members(&mut self) {
        let (mut open, mut seen) = (Vec::new(), HashSet::new());
        for at in 0..self.tokens.len() {
            match self.word(at) {
                "{" => open.push(at),
                "}" => {
                    open.pop();
                }
                space @ ("device" | "constant") if matches!(self.word(at + 1), "{" | ";") => {
                    let parenthesis = (0..at).rev().find(|&at| !QUALIFIERS.contains(&self.word(at))).unwrap_or(0);
                    if self.word(parenthesis) != ")" {
                        continue;
                    }
                    let begin = (0..parenthesis).rev().find(|&at| matches!(self.word(at), "{" | "}" | ";"));
                    let begin = begin.map_or(0, |begin| begin + 1);
                    let is_const = space == "constant" || (parenthesis..at).any(|at| self.word(at) == "const");
                    let signature: Vec<&str> = (begin..=parenthesis).map(|at| self.word(at)).collect();
                    let end = if self.word(at + 1) == "{" { closing(&self.tokens, at + 1) } else { None };
                    if !seen.insert((open.last().copied(), signature, is_const)) {
                        let range = self.bytes(begin, end.unwrap_or(at + 1));
                        self.replace(range, "");
                    } else if space == "device" {
                        let range = self.bytes(at, at);
                        self.replace(range, "__global");
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether what stands before the parameters names a member function that has an object, and no constructor or destructor.
    fn is_member(&self, class: &str, before: Range<usize>) -> bool {
        let words: Vec<&str> = before.clone().map(|at| self.word(at)).collect();
        let is_class = words.last() == Some(&class) || words.last() == Some(&">") && !words.contains(&"operator");
        !words.is_empty() && !is_class && !words.iter().any(|word| OTHERS.contains(word) || *word == "~")
    }

    /// `thread const short& n` becomes `short n`: clang binds no such reference to a value that it must first convert.
    pub(super) fn pass_numbers(&mut self) {
        for at in 3..self.tokens.len() {
            let follows =
                self.tokens.get(at + 1).is_some_and(|token| token.is_name()) && matches!(self.word(at + 2), "," | ")");
            let before = [self.word(at - 3), self.word(at - 2), self.word(at - 1)];
            let number = before.iter().filter(|word| NUMBERS.contains(word)).count() == 1;
            if self.word(at) == "&" && follows && number && before.contains(&"thread") && before.contains(&"const") {
                let word = before.into_iter().find(|word| NUMBERS.contains(word)).unwrap_or_default().to_owned();
                let range = self.bytes(at - 3, at);
                self.replace(range, format!("{word} "));
            }
        }
    }

    /// `T values[N]`, a function's parameter, points to memory of the thread: arrays of functions are nowhere else.
    pub(super) fn place_arrays(&mut self) {
        for open in 1..self.tokens.len() {
            if self.word(open) != "(" || !self.tokens[open - 1].is_name() {
                continue;
            }
            let Some(close) = closing(&self.tokens, open) else { continue };
            if self.word(close + 1) != "{" {
                continue;
            }
            let mut begin = open + 1;
            for at in open + 1..=close {
                if at < close && self.word(at) != "," {
                    continue;
                }
                let parameter = begin..at;
                begin = at + 1;
                let bracket = parameter.clone().find(|&at| self.word(at) == "[");
                let Some(bracket) = bracket.filter(|_| self.word(at - 1) == "]") else { continue };
                let of_type = parameter.start..bracket - 1;
                let plain = |at: usize| self.tokens[at].is_name() || matches!(self.word(at), "<" | ">" | ":");
                if !of_type.is_empty() && of_type.clone().all(|at| plain(at) && !SPACES.contains(&self.word(at))) {
                    self.insert(self.tokens[parameter.start].at, "thread ");
                }
            }
        }
    }

    /// `device T*& p`, a function's parameter, refers to a pointer of the thread's own: as Apple's compiler takes it, which wants an address
    /// space of everything else.
    pub(super) fn place_references(&mut self) {
        for at in 1..self.tokens.len().saturating_sub(2) {
            let is_parameter = self.tokens[at + 1].is_name() && matches!(self.word(at + 2), "," | ")");
            if self.word(at) == "&" && self.word(at - 1) == "*" && is_parameter {
                self.insert(self.tokens[at].at, " thread");
            }
        }
    }

    /// `void (*f)(int)` among a template's parameters is the pointer that `void f(int)` stands for, but clang puts it in an address space.
    pub(super) fn plain_functions(&mut self) {
        for at in 0..self.tokens.len() {
            if self.word(at) != "template" || self.word(at + 1) != "<" {
                continue;
            }
            let Some(end) = closing(&self.tokens, at + 1) else { continue };
            for open in at + 2..end {
                if self.word(open) == "("
                    && self.word(open + 1) == "*"
                    && self.word(open + 3) == ")"
                    && self.word(open + 4) == "("
                {
                    let (range, name) = (self.bytes(open, open + 3), self.word(open + 2));
                    self.replace(range, name);
                }
            }
        }
    }
}
