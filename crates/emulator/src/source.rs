//! Reading kernel signatures out of Metal Shading Language text: names, and what fills each parameter. Types are left to the compiler.

use crate::error::{Error, Result};
use crate::limits;

/// What fills a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Binding {
    /// `[[buffer(i)]]`; the type that it points to, as text.
    Buffer { index: u32, pointee: String, reference: bool, constant: bool },
    /// `[[threadgroup(i)]]`.
    Threadgroup { index: u32 },
    /// A position or a size; named like its function in `msl/entry.h`.
    Builtin(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub binding: Binding,
    /// The declaration without attribute, for messages.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub name: String,
    pub line: u32,
    pub parameters: Vec<Parameter>,
    /// `[[max_total_threads_per_threadgroup(n)]]`.
    pub most_threads: Option<u32>,
}

/// Attributes that are positions or sizes.
const BUILTINS: [&str; 17] = [
    "dispatch_simdgroups_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "grid_origin",
    "quadgroup_index_in_threadgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_threadgroup",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_simdgroup",
    "threads_per_threadgroup",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token<'a> {
    text: &'a str,
    line: u32,
}

/// The kernels of a text, in its order.
pub(crate) fn kernels(text: &str) -> Result<Vec<Kernel>> {
    let tokens = tokens(text);
    let mut kernels = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at].text != "kernel" {
            at += 1;
            continue;
        }
        let begin = attributes_begin(&tokens, at);
        // The keyword may stand in an attribute, and attributes before and after it.
        let Some(void) = (at..tokens.len()).find(|&i| tokens[i].text == "void") else { break };
        let (mut kernel, end) = kernel(&tokens, void)?;
        if begin > 0 && tokens[begin - 1].text == ">" {
            let what = "kernels that are templates are not covered".to_owned();
            return Err(Error::Signature { kernel: kernel.name, line: kernel.line, what });
        }
        kernel.most_threads = most_threads(&tokens[begin..void]);
        kernels.push(kernel);
        at = end;
    }
    Ok(kernels)
}

/// Where the attributes begin that stand directly before a token.
fn attributes_begin(tokens: &[Token], mut at: usize) -> usize {
    let word = |at: usize| tokens[at].text;
    if at >= 2 && word(at - 1) == "[" && word(at - 2) == "[" {
        at -= 2;
    }
    while at >= 2 && word(at - 1) == "]" && word(at - 2) == "]" {
        let Some(opening) = (1..at).rev().find(|&i| word(i) == "[" && word(i - 1) == "[") else { break };
        at = opening - 1;
    }
    at
}

/// The number of `max_total_threads_per_threadgroup(n)`.
fn most_threads(tokens: &[Token]) -> Option<u32> {
    let at = tokens.iter().position(|token| token.text == "max_total_threads_per_threadgroup")?;
    tokens.get(at + 2)?.text.parse().ok()
}

/// The kernel whose `void` stands at `begin`, and where its parameters end.
fn kernel(tokens: &[Token], begin: usize) -> Result<(Kernel, usize)> {
    let line = tokens[begin].line;
    let name = tokens.get(begin + 1).map_or("", |token| token.text).to_owned();
    let wrong = |what: &str| Error::Signature { kernel: name.clone(), line, what: what.to_owned() };
    if tokens.get(begin + 2).map(|token| token.text) != Some("(") {
        return Err(wrong("its name is not followed by parameters"));
    }
    let (mut depth, mut parts, mut end) = (1, vec![Vec::new()], begin + 3);
    while depth > 0 {
        let token = *tokens.get(end).ok_or_else(|| wrong("its parameters have no end"))?;
        match token.text {
            "(" | "[" | "<" | "{" => depth += 1,
            ")" | "]" | ">" | "}" => depth -= 1,
            _ => {}
        }
        match token.text {
            "," if depth == 1 => parts.push(Vec::new()),
            _ if depth > 0 => parts.last_mut().expect("there is a part").push(token),
            _ => {}
        }
        end += 1;
    }
    let mut parameters: Vec<Parameter> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let used =
            |index: u32| parameters.iter().any(|p| matches!(p.binding, Binding::Buffer { index: i, .. } if i == index));
        let free = (0..).find(|&index| !used(index)).unwrap_or(0);
        parameters.push(parameter(part, free).map_err(|what| wrong(&what))?);
    }
    Ok((Kernel { name: name.clone(), line, parameters, most_threads: None }, end))
}

/// One parameter; a buffer without attribute takes index `free`, as in Metal.
fn parameter(tokens: &[Token], free: u32) -> std::result::Result<Parameter, String> {
    let opening = |i: usize| tokens[i].text == "[" && tokens.get(i + 1).is_some_and(|next| next.text == "[");
    let attribute = (0..tokens.len()).find(|&i| opening(i));
    let declaration = &tokens[..attribute.unwrap_or(tokens.len())];
    let text = join(declaration);
    let Some((_name, of_type)) = declaration.split_last() else { return Err("a parameter without type".to_owned()) };
    if declaration.iter().any(|token| token.text == "[") {
        return Err(format!("`{text}`: arrays of arguments are not covered"));
    }
    let last = of_type.iter().rposition(|token| token.text == "*" || token.text == "&");
    let attribute = attribute.map(|at| &tokens[at + 2..]);
    let name = attribute.and_then(|words| words.first()).map_or("", |token| token.text);
    let index = || -> std::result::Result<u32, String> {
        let number = attribute.and_then(|words| words.get(2)).map_or("", |token| token.text);
        number.parse().map_err(|_| format!("`{text}`: {name}({number}): the index is not a number"))
    };
    let binding = match (name, last) {
        ("buffer" | "", Some(last)) => {
            let index = if name.is_empty() { free } else { index()? };
            if index as usize >= limits::BUFFERS {
                return Err(format!("`{text}`: buffer({index}) is beyond buffer({})", limits::BUFFERS - 1));
            }
            let constant = of_type.iter().any(|token| token.text == "constant");
            Binding::Buffer { index, pointee: join(&of_type[..last]), reference: of_type[last].text == "&", constant }
        }
        ("threadgroup", _) => Binding::Threadgroup { index: index()? },
        (name, _) => match BUILTINS.iter().find(|builtin| **builtin == name) {
            Some(builtin) => Binding::Builtin(builtin),
            None if name.is_empty() => return Err(format!("`{text}` has no attribute")),
            None => return Err(format!("`{text}`: the attribute {name} is not covered")),
        },
    };
    Ok(Parameter { binding, text })
}

fn join(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
}

/// Words, numbers and single signs; comments, strings and lines of the preprocessor are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    while at < bytes.len() {
        let begin = at;
        let skipped = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => until(text, at, "\n"),
            b'/' if bytes.get(at + 1) == Some(&b'*') => until(text, at + 2, "*/") + 2,
            b'#' => line_end(text, at),
            b'"' => until(text, at + 1, "\"") + 1,
            byte if byte.is_ascii_whitespace() => at + 1,
            _ => at,
        }
        .min(bytes.len());
        if skipped > at {
            line += bytes[begin..skipped].iter().filter(|byte| **byte == b'\n').count() as u32;
            at = skipped;
            continue;
        }
        at += 1;
        if is_word(bytes[begin]) {
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
        } else {
            while !text.is_char_boundary(at) {
                at += 1;
            }
        }
        tokens.push(Token { text: &text[begin..at], line });
    }
    tokens
}

/// The end of a preprocessor's line, which goes on after a backslash.
fn line_end(text: &str, from: usize) -> usize {
    let mut end = until(text, from, "\n");
    while text[..end].trim_end_matches('\r').ends_with('\\') && end < text.len() {
        end = until(text, end + 1, "\n");
    }
    end
}

fn until(text: &str, from: usize, end: &str) -> usize {
    text.as_bytes()[from.min(text.len())..]
        .windows(end.len())
        .position(|window| window == end.as_bytes())
        .map_or(text.len(), |at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read() {
        let text = "// kernel void not_this(\n#include <metal_stdlib>\nkernel void add(device const vec<float, 4>* a [[buffer(2)]],\n  \
                    constant Params& p [[ buffer(3) ]], device float* free, threadgroup half *t [[threadgroup(1)]],\n\
                    uint2 g [[thread_position_in_grid]]) { }\n[[kernel]] [[max_total_threads_per_threadgroup(64)]] void two() {}";
        let kernels = kernels(text).unwrap();
        assert_eq!(kernels[1].most_threads, Some(64));
        assert_eq!((kernels[0].name.as_str(), kernels[0].line, kernels.len()), ("add", 3, 2));
        let bindings: Vec<_> = kernels[0].parameters.iter().map(|parameter| parameter.binding.clone()).collect();
        let buffer = |index, pointee: &str, reference, constant| Binding::Buffer {
            index,
            pointee: pointee.to_owned(),
            reference,
            constant,
        };
        assert_eq!(bindings[0], buffer(2, "device const vec < float , 4 >", false, false));
        assert_eq!(bindings[1], buffer(3, "constant Params", true, true));
        assert_eq!(bindings[2], buffer(0, "device float", false, false));
        assert_eq!(bindings[3], Binding::Threadgroup { index: 1 });
        assert_eq!(bindings[4], Binding::Builtin("thread_position_in_grid"));
    }

    #[test]
    fn what_cannot_be_filled_is_named() {
        let of = |parameter: &str| kernels(&format!("\nkernel void k({parameter}) {{}}")).unwrap_err().to_string();
        assert!(of("texture2d<float> t [[texture(0)]]").contains("the attribute texture is not covered"));
        assert!(of("device float* a [[buffer(31)]]").contains("buffer(31) is beyond buffer(30)"));
        assert!(of("uint i").contains("program_source:2: kernel k: `uint i` has no attribute"));
        let template = kernels("template <typename T>\nkernel void k(device T* a) {}").unwrap_err().to_string();
        assert_eq!(template, "program_source:2: kernel k: kernels that are templates are not covered");
        assert!(kernels("kernel void k(").unwrap_err().to_string().contains("no end"));
    }
}
