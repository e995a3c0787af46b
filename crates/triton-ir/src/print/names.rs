//! Names of values: as their variables are called, or numbers.

use super::{Origins, Printer};
use crate::context::ValueId;

impl Printer<'_> {
    /// `%a, %b = `; results of one call or loop share a name, `%a:2 = `.
    pub(super) fn results(&mut self, results: &[ValueId]) -> String {
        match results {
            [] => String::new(),
            &[one] => format!("%{} = ", self.define(one, "")),
            several => {
                let name = self.fresh(several[0], "");
                for (index, &value) in several.iter().enumerate() {
                    self.names.insert(value, format!("{name}#{index}"));
                }
                format!("%{name}:{} = ", several.len())
            }
        }
    }

    pub(super) fn operands(&self, operands: &[ValueId]) -> Vec<String> {
        let name = |value: &ValueId| match self.names.get(value) {
            Some(name) => format!("%{name}"),
            None => format!("%<<{value:?}: {:?}>>", self.context.value(*value).definition),
        };
        operands.iter().map(name).collect()
    }

    /// Names a value: as its variable, or by a number.
    pub(super) fn define(&mut self, value: ValueId, prefix: &str) -> String {
        let name = self.fresh(value, prefix);
        self.names.insert(value, name.clone());
        name
    }

    fn fresh(&mut self, value: ValueId, prefix: &str) -> String {
        let value = self.context.value(value);
        let variable = value.location.name().filter(|_| self.origins == Origins::Written);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
        let variable =
            variable.filter(|name| name.chars().all(is_plain) && !name.starts_with(|c: char| c.is_ascii_digit()));
        let stem = match variable {
            Some(name) => name.to_owned(),
            None if prefix.is_empty() => {
                self.next += 1;
                format!("{}", self.next - 1)
            }
            None if prefix == "arg" => {
                self.next_argument += 1;
                format!("arg{}", self.next_argument - 1)
            }
            None => prefix.to_owned(),
        };
        let mut name = stem.clone();
        let mut suffix = 0;
        while !self.taken.insert(name.clone()) {
            name = format!("{stem}_{suffix}");
            suffix += 1;
        }
        name
    }
}
