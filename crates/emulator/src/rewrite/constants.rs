//! Function constants: `constant bool causal [[function_constant(0)]];` gets the value that was given, and
//! `is_function_constant_defined(causal)` says whether one was.

use super::Rewriter;
use crate::options::Value;
use crate::source::{attributes, opens_attribute};
use crate::token::{closing, written};
use std::collections::{BTreeMap, HashMap};

/// A declaration: its index, type, name, and where the attribute ends.
struct Declared<'a> {
    index: u32,
    kind: String,
    name: &'a str,
    end: usize,
}

impl<'a> Rewriter<'a> {
    /// Gives function constants their values; those that have none are zero, and returned.
    pub(super) fn set_constants(&mut self, values: &BTreeMap<u32, Value>) -> Vec<(u32, String)> {
        let (mut unset, mut defined) = (Vec::new(), HashMap::new());
        let found: Vec<Declared> = (0..self.tokens.len()).filter_map(|at| self.constant(at)).collect();
        for Declared { index, kind, name, end } in found {
            let value = values.get(&index);
            defined.insert(name, value.is_some());
            if value.is_none() {
                unset.push((index, name.to_owned()));
            }
            let value = value.map_or_else(|| "0".to_owned(), Value::text);
            self.insert(self.tokens[end].end(), format!(" = ({kind})({value})"));
        }
        self.answer_questions(&defined);
        unset
    }

    /// The constant whose attribute begins at a token.
    fn constant(&self, at: usize) -> Option<Declared<'a>> {
        let end = opens_attribute(&self.tokens, at).then(|| closing(&self.tokens, at)).flatten()?;
        let list = attributes(&self.tokens[at + 2..end - 1]);
        let (_, index) = list.into_iter().find(|(name, _)| *name == "function_constant")?;
        // Parameters, which have such attributes too, are not followed by this.
        if self.word(end + 1) != ";" || at == 0 {
            return None;
        }
        let begin = (0..at).rev().find(|&at| matches!(self.word(at), ";" | "}" | "{")).map_or(0, |at| at + 1);
        let kind: Vec<_> = self.tokens[begin..at - 1]
            .iter()
            .filter(|token| !matches!(token.text, "constant" | "const" | "static"))
            .copied()
            .collect();
        let index = written(index).parse().ok()?;
        Some(Declared { index, kind: written(&kind), name: self.word(at - 1), end })
    }

    fn answer_questions(&mut self, defined: &HashMap<&str, bool>) {
        for at in 0..self.tokens.len().saturating_sub(3) {
            if self.word(at) == "is_function_constant_defined"
                && let Some(answer) = defined.get(self.word(at + 2))
            {
                let range = self.bytes(at, at + 3);
                self.replace(range, answer.to_string());
            }
        }
    }
}
