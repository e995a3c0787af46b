//! From Metal Shading Language text to text that clang's "C++ for OpenCL" takes, without a change of lines: kernels are found, templates of
//! kernels become function templates, their explicit instantiations are taken out and remembered, function constants get their values,
//! and threadgroup variables that clang would refuse become references to memory of the kernel's own.

use crate::error::{Error, Result};
use crate::options::Value;
use crate::source::{Kernel, Parameter, attributes, opens_attribute, parameters};
use crate::token::{Token, closing, tokens, written};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

mod constants;
mod constructors;
mod expressions;
mod members;
mod memory;

/// A text ready for the compiler.
#[derive(Debug)]
pub(crate) struct Unit {
    pub text: String,
    pub kernels: Vec<Kernel>,
    /// Function constants without value: index and name.
    pub unset: Vec<(u32, String)>,
}

/// Attributes that clang knows and that mean something to it.
const STANDARD: [&str; 6] = ["fallthrough", "likely", "maybe_unused", "nodiscard", "noreturn", "unlikely"];
/// What a kernel template is marked with instead.
const FUNCTION: &str = "METAL_FUNC";
/// The first parameter of every function template that was a kernel template: which kernel runs.
const TAG: &str = "openmps_kernel";

/// One replacement.
struct Edit {
    range: Range<usize>,
    text: String,
}

/// A kernel template.
struct Template {
    line: u32,
    parameters: std::result::Result<Vec<Parameter>, String>,
    most_threads: Option<u32>,
}

/// What stands before a kernel's `void`: attributes and the keyword.
#[derive(Default)]
struct Marks {
    is_kernel: bool,
    host_name: Option<String>,
    most_threads: Option<u32>,
}

struct Rewriter<'a> {
    tokens: Vec<Token<'a>>,
    edits: Vec<Edit>,
    kernels: Vec<Kernel>,
    templates: HashMap<String, Template>,
    /// Threadgroup variables so far.
    variables: usize,
}

/// Rewrites a text; `values` are those of the function constants, by index.
pub(crate) fn rewrite(text: &str, values: &BTreeMap<u32, Value>) -> Result<Unit> {
    let mut rewriter = Rewriter {
        tokens: tokens(text),
        edits: Vec::new(),
        kernels: Vec::new(),
        templates: HashMap::new(),
        variables: 0,
    };
    rewriter.find_kernels()?;
    rewriter.name_templates();
    rewriter.blank_attributes();
    let unset = rewriter.set_constants(values);
    rewriter.merge_constructors();
    rewriter.share_constructors();
    rewriter.take_elements();
    rewriter.place_strings();
    rewriter.replace_casts();
    rewriter.mark_floats();
    rewriter.place_members();
    rewriter.place_device_members();
    rewriter.pass_numbers();
    rewriter.place_arrays();
    rewriter.place_references();
    rewriter.plain_functions();
    rewriter.check_names()?;
    Ok(Unit { text: apply(text, rewriter.edits), kernels: rewriter.kernels, unset })
}

/// The text with replacements, each with as many ends of lines as what it replaces. One inside another is dropped.
fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end)));
    let (mut result, mut at) = (String::with_capacity(text.len() * 2), 0);
    for edit in edits {
        if edit.range.start < at {
            continue;
        }
        result.push_str(&text[at..edit.range.start]);
        result.push_str(&edit.text);
        let replaced = &text[edit.range.clone()];
        let lost = replaced.matches('\n').count().saturating_sub(edit.text.matches('\n').count());
        result.extend(std::iter::repeat_n('\n', lost));
        at = edit.range.end;
    }
    result.push_str(&text[at..]);
    result
}

impl<'a> Rewriter<'a> {
    fn word(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    /// The bytes from one token to the end of another.
    fn bytes(&self, first: usize, last: usize) -> Range<usize> {
        self.tokens[first].at..self.tokens[last].end()
    }

    fn replace(&mut self, range: Range<usize>, text: impl Into<String>) {
        self.edits.push(Edit { range, text: text.into() });
    }

    fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at..at, text);
    }

    fn find_kernels(&mut self) -> Result<()> {
        let (mut at, mut head) = (0, None);
        while at < self.tokens.len() {
            if self.word(at) == "template" {
                if self.word(at + 1) != "<" {
                    at = self.instantiation(at)?;
                } else {
                    head = Some(at + 1);
                    at = closing(&self.tokens, at + 1).map_or(at + 2, |end| end + 1);
                    continue;
                }
            } else {
                let (marks, end) = self.marks(at);
                at = if marks.is_kernel { self.kernel(at..end, &marks, head)? } else { end.max(at + 1) };
            }
            head = None;
        }
        Ok(())
    }

    /// The attributes and the keyword that begin at a token, and where they end.
    fn marks(&self, begin: usize) -> (Marks, usize) {
        let (mut marks, mut at) = (Marks::default(), begin);
        loop {
            match self.word(at) {
                "kernel" => marks.is_kernel = true,
                "[" if opens_attribute(&self.tokens, at) => {
                    let Some(end) = closing(&self.tokens, at) else { return (marks, at) };
                    for (name, inner) in attributes(&self.tokens[at + 2..end - 1]) {
                        match name {
                            "kernel" => marks.is_kernel = true,
                            "host_name" => marks.host_name = Some(literal(inner)),
                            "max_total_threads_per_threadgroup" => marks.most_threads = written(inner).parse().ok(),
                            _ => {}
                        }
                    }
                    at = end;
                }
                _ => return (marks, at),
            }
            at += 1;
        }
    }

    /// A kernel or a template of kernels, whose marks are given; where to go on.
    fn kernel(&mut self, marked: Range<usize>, marks: &Marks, head: Option<usize>) -> Result<usize> {
        let Some(void) = (marked.end..self.tokens.len()).find(|&at| self.word(at) == "void") else {
            return Ok(marked.end);
        };
        let (name, line) = (self.word(void + 1).to_owned(), self.tokens[void].line);
        let wrong = |what: &str| Error::Signature { kernel: name.clone(), line, what: what.to_owned() };
        if self.word(void + 2) != "(" {
            return Err(wrong("its name is not followed by parameters"));
        }
        let end = closing(&self.tokens, void + 2).ok_or_else(|| wrong("its parameters have no end"))?;
        let parameters = parameters(&self.tokens[void + 3..end]);
        let body = (end..self.tokens.len()).find(|&at| matches!(self.word(at), "{" | ";"));
        let (Some(body), true) = (body, body.is_some_and(|at| self.word(at) == "{")) else {
            // A declaration; the definition follows.
            self.replace_marks(marked, if head.is_some() { FUNCTION } else { "kernel" });
            return Ok(end + 1);
        };
        let close = closing(&self.tokens, body).unwrap_or(self.tokens.len() - 1);
        let most_threads = marks.most_threads;
        if let Some(head) = head {
            let comma = if self.word(head + 1) == ">" { "" } else { ", " };
            self.replace_marks(marked, FUNCTION);
            self.insert(self.tokens[head].end(), format!("class {TAG}{comma}"));
            self.threadgroup_variables(body..close, TAG, true);
            self.templates.insert(name, Template { line, parameters, most_threads });
        } else {
            let tag = self.tag();
            let some = self.threadgroup_variables(body..close, &tag, false);
            self.replace_marks(marked, &if some { format!("struct {tag}; kernel") } else { "kernel".to_owned() });
            let parameters = parameters.map_err(|what| wrong(&what))?;
            let (callee, host) = (format!("::{name}"), marks.host_name.clone().unwrap_or(name));
            self.kernels.push(Kernel { name: host, callee, tag, instance: false, line, parameters, most_threads });
        }
        Ok(close + 1)
    }

    fn tag(&self) -> String {
        format!("{TAG}_{}", self.kernels.len())
    }

    /// Puts one word where a kernel's attributes and keyword stand.
    fn replace_marks(&mut self, marked: Range<usize>, word: &str) {
        let range = self.bytes(marked.start, marked.end - 1);
        // Columns stay where the word is not longer.
        let width = range.len();
        self.replace(range, format!("{word:width$}"));
    }

    /// `template [[host_name("x")]] [[kernel]] decltype(f<A>) f<A>;`: the kernel x is taken down, the line out. Where to go on.
    fn instantiation(&mut self, at: usize) -> Result<usize> {
        let (marks, begin) = self.marks(at + 1);
        if !marks.is_kernel {
            return Ok(at + 1);
        }
        let line = self.tokens[at].line;
        let wrong =
            |kernel: &str, what: &str| Error::Signature { kernel: kernel.to_owned(), line, what: what.to_owned() };
        let begin =
            if self.word(begin) == "decltype" { closing(&self.tokens, begin + 1).unwrap_or(begin) } else { begin };
        let semicolon = (begin..self.tokens.len()).find(|&at| self.word(at) == ";");
        let end = semicolon.ok_or_else(|| wrong("of a template", "its instantiation has no end"))?;
        let open = (begin..end).find(|&at| self.word(at) == "<" && self.tokens[at - 1].is_name());
        let close = open.and_then(|open| closing(&self.tokens, open));
        let (Some(open), Some(close)) = (open, close) else {
            return Err(wrong(
                &written(&self.tokens[begin..end]),
                "an instantiation without arguments in angle brackets",
            ));
        };
        let name = self.word(open - 1);
        let Some(template) = self.templates.get(name) else {
            return Err(wrong(name, "there is no kernel template of this name before its instantiation"));
        };
        let parameters = template.parameters.clone().map_err(|what| Error::Signature {
            kernel: name.to_owned(),
            line: template.line,
            what,
        })?;
        let (tag, arguments) = (self.tag(), written(&self.tokens[open + 1..close]));
        let comma = if arguments.is_empty() { "" } else { ", " };
        self.kernels.push(Kernel {
            name: marks.host_name.unwrap_or_else(|| name.to_owned()),
            callee: format!("{}<{tag}{comma}{arguments}>", self.qualified(open - 1)),
            tag,
            instance: true,
            line,
            parameters,
            most_threads: template.most_threads,
        });
        self.replace(self.bytes(at, end), "");
        Ok(end + 1)
    }

    /// A name with the namespaces that are written before it.
    fn qualified(&self, name: usize) -> String {
        let mut begin = name;
        while begin >= 3
            && self.word(begin - 1) == ":"
            && self.word(begin - 2) == ":"
            && self.tokens[begin - 3].is_name()
        {
            begin -= 3;
        }
        format!("::{}", self.tokens[begin..=name].iter().map(|token| token.text).collect::<String>())
    }

    /// A kernel template that is named elsewhere, as in a typedef of its type, has one argument more too.
    fn name_templates(&mut self) {
        for at in 1..self.tokens.len() {
            if self.word(at) == "<" && self.templates.contains_key(self.word(at - 1)) {
                let comma = if self.word(at + 1) == ">" { "" } else { ", " };
                self.insert(self.tokens[at].end(), format!("void{comma}"));
            }
        }
    }

    /// Takes attributes out that only Metal knows.
    fn blank_attributes(&mut self) {
        for at in 0..self.tokens.len() {
            if !opens_attribute(&self.tokens, at) || STANDARD.contains(&self.word(at + 2)) {
                continue;
            }
            let Some(end) = closing(&self.tokens, at) else { continue };
            let range = self.bytes(at, end);
            let blank = " ".repeat(range.len());
            self.replace(range, blank);
        }
    }

    /// `static_cast<T>(x)` becomes a function that also converts between half and bfloat, but for pointers and references.
    fn replace_casts(&mut self) {
        for at in 0..self.tokens.len() {
            if self.word(at) == "static_cast"
                && let Some(end) = closing(&self.tokens, at + 1)
                && !matches!(self.word(end - 1), "*" | "&")
            {
                let range = self.bytes(at, at);
                self.replace(range, "openmps::cast");
            }
        }
    }

    /// A number without suffix is float. clang forgets that in templates.
    fn mark_floats(&mut self) {
        for at in 0..self.tokens.len() {
            let text = self.word(at);
            let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
            let exponent: &[char] = if hexadecimal { &['p', 'P'] } else { &['e', 'E'] };
            let number = text.starts_with(|sign: char| sign.is_ascii_digit() || sign == '.') && text.len() > 1;
            let bare = text.ends_with(|sign: char| sign.is_ascii_digit() || sign == '.');
            if number && bare && (text.contains('.') || text.contains(exponent)) {
                self.insert(self.tokens[at].end(), "f");
            }
        }
    }

    /// Two kernels of one name would be one.
    fn check_names(&self) -> Result<()> {
        let mut lines = HashMap::new();
        for kernel in &self.kernels {
            if let Some(first) = lines.insert(&kernel.name, kernel.line) {
                let what = format!("there is a kernel of this name in line {first} already");
                return Err(Error::Signature { kernel: kernel.name.clone(), line: kernel.line, what });
            }
        }
        Ok(())
    }
}

/// What string literals in a row say.
fn literal(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text.trim_matches('"')).collect()
}

#[cfg(test)]
mod tests;
