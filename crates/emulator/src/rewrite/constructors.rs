//! Constructors that are defaulted once for each address space, `S() threadgroup = default;`. The one that the compiler makes serves them all.

use super::Rewriter;
use std::collections::HashSet;

const SPACES: [&str; 4] = ["constant", "device", "thread", "threadgroup"];

impl Rewriter<'_> {
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
