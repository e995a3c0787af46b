//! Reading kernel signatures out of Metal Shading Language text: names, and what fills each parameter. Types are left to the compiler.

use crate::limits;
use crate::token::{Token, closing, join, written};

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
    /// The constant of `[[function_constant(name)]]`: without it there is no such parameter.
    pub condition: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// The name that the host asks for.
    pub name: String,
    /// What the entry function calls.
    pub callee: String,
    /// The type that tells the threadgroup variables of this kernel from others'.
    pub tag: String,
    /// Whether it is the instance of a template, whose parameters' types are then not in the text.
    pub instance: bool,
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

/// The parameters between two tokens, or what is wrong with them.
pub(crate) fn parameters(tokens: &[Token]) -> Result<Vec<Parameter>, String> {
    let mut parameters: Vec<Parameter> = Vec::new();
    for part in parts(tokens).into_iter().filter(|part| !part.is_empty()) {
        let used =
            |index: u32| parameters.iter().any(|p| matches!(p.binding, Binding::Buffer { index: i, .. } if i == index));
        let free = (0..).find(|&index| !used(index)).unwrap_or(0);
        parameters.push(parameter(part, free)?);
    }
    Ok(parameters)
}

/// What stands between commas.
pub(crate) fn parts<'a, 'b>(tokens: &'a [Token<'b>]) -> Vec<&'a [Token<'b>]> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        if tokens[at].text == "," {
            parts.push(&tokens[begin..at]);
            begin = at + 1;
        }
        at = closing(tokens, at).unwrap_or(at) + 1;
    }
    parts.push(&tokens[begin..]);
    parts
}

/// Whether an attribute begins here.
pub(crate) fn opens_attribute(tokens: &[Token], at: usize) -> bool {
    let follows = |next: &Token| next.text == "[" && next.at == tokens[at].end();
    tokens[at].text == "[" && tokens.get(at + 1).is_some_and(follows)
}

/// The attributes of a list, each with what stands in its brackets.
pub(crate) fn attributes<'a, 'b>(list: &'a [Token<'b>]) -> Vec<(&'b str, &'a [Token<'b>])> {
    let inner = |part: &'a [Token<'b>]| match part.len() {
        0..=2 => &part[part.len()..],
        length => &part[2..length - 1],
    };
    parts(list).into_iter().filter_map(|part| Some((part.first()?.text, inner(part)))).collect()
}

/// One parameter; a buffer without attribute takes index `free`, as in Metal.
fn parameter(tokens: &[Token], free: u32) -> Result<Parameter, String> {
    let attribute = (0..tokens.len()).find(|&at| opens_attribute(tokens, at));
    let declaration = &tokens[..attribute.unwrap_or(tokens.len())];
    let text = join(declaration);
    let (declaration, is_array) = without_length(declaration);
    let Some((_name, of_type)) = declaration.split_last() else { return Err("a parameter without type".to_owned()) };
    let last = of_type.iter().rposition(|token| token.text == "*" || token.text == "&");
    // An array of numbers stands for a pointer to them, as in C; one of pointers would be several arguments.
    if is_array && last.is_some() || declaration.iter().any(|token| token.text == "[") {
        return Err(format!("`{text}`: arrays of arguments are not covered"));
    }
    let last = if is_array { Some(of_type.len()) } else { last };
    let (binding, condition) = attribute_list(tokens, attribute);
    let (name, inner) = binding.unwrap_or(("", &[]));
    let index = || -> Result<u32, String> {
        let number = join(inner);
        number.parse().map_err(|_| format!("`{text}`: {name}({number}): the index is not a number"))
    };
    let binding = match (name, last) {
        ("buffer" | "", Some(last)) => {
            let index = if name.is_empty() { free } else { index()? };
            if index as usize >= limits::BUFFERS {
                return Err(format!("`{text}`: buffer({index}) is beyond buffer({})", limits::BUFFERS - 1));
            }
            let constant = of_type.iter().any(|token| token.text == "constant");
            Binding::Buffer {
                index,
                pointee: written(&of_type[..last]),
                reference: of_type.get(last).is_some_and(|token| token.text == "&"),
                constant,
            }
        }
        ("threadgroup", _) => Binding::Threadgroup { index: index()? },
        (name, _) => match BUILTINS.iter().find(|builtin| **builtin == name) {
            Some(builtin) => Binding::Builtin(builtin),
            None if name.is_empty() => return Err(format!("`{text}` has no attribute")),
            None => return Err(format!("`{text}`: the attribute {name} is not covered")),
        },
    };
    Ok(Parameter { binding, text, condition })
}

/// A declaration without the length of the array that it declares, and whether it declares one.
fn without_length<'a, 'b>(declaration: &'a [Token<'b>]) -> (&'a [Token<'b>], bool) {
    let open = declaration.iter().rposition(|token| token.text == "[");
    let ends = open.and_then(|open| closing(declaration, open)).is_some_and(|end| end + 1 == declaration.len());
    match open {
        Some(open) if ends => (&declaration[..open], true),
        _ => (declaration, false),
    }
}

/// An attribute's name and what stands in its brackets.
type Attribute<'a, 'b> = (&'b str, &'a [Token<'b>]);

/// The attribute that says what fills a parameter, and the constant that it depends on.
fn attribute_list<'a, 'b>(tokens: &'a [Token<'b>], from: Option<usize>) -> (Option<Attribute<'a, 'b>>, Option<String>) {
    let (mut binding, mut condition) = (None, None);
    let mut at = from.unwrap_or(tokens.len());
    while at < tokens.len() && opens_attribute(tokens, at) {
        let Some(end) = closing(tokens, at) else { break };
        for (name, inner) in attributes(&tokens[at + 2..end - 1]) {
            match name {
                "function_constant" => condition = Some(written(inner)),
                _ => binding = binding.or(Some((name, inner))),
            }
        }
        at = end + 1;
    }
    (binding, condition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    #[test]
    fn parameters_are_read() {
        let text = "device const vec<float, 4>* a [[buffer(2)]], constant Params& p [[ buffer(3), function_constant(some) ]],\n\
                    device float* free, threadgroup half *t [[threadgroup(1)]], uint2 g [[thread_position_in_grid]]";
        let tokens = tokens(text);
        let parameters = parameters(&tokens).unwrap();
        let buffer = |index, pointee: &str, reference, constant| Binding::Buffer {
            index,
            pointee: pointee.to_owned(),
            reference,
            constant,
        };
        let bindings: Vec<_> = parameters.iter().map(|parameter| parameter.binding.clone()).collect();
        assert_eq!(bindings[0], buffer(2, "device const vec<float, 4>", false, false));
        assert_eq!(bindings[1], buffer(3, "constant Params", true, true));
        assert_eq!(bindings[2], buffer(0, "device float", false, false));
        assert_eq!(bindings[3], Binding::Threadgroup { index: 1 });
        assert_eq!(bindings[4], Binding::Builtin("thread_position_in_grid"));
        assert_eq!(parameters[1].condition.as_deref(), Some("some"));
    }

    #[test]
    fn what_cannot_be_filled_is_named() {
        let of = |parameter: &str| parameters(&tokens(parameter)).unwrap_err();
        assert!(of("texture2d<float> t [[texture(0)]]").contains("the attribute texture is not covered"));
        assert!(of("device float* a [[buffer(31)]]").contains("buffer(31) is beyond buffer(30)"));
        assert!(of("device float* a [[buffer(N)]]").contains("buffer(N): the index is not a number"));
        assert_eq!(of("uint i"), "`uint i` has no attribute");
        assert!(of("device float* a[2] [[buffer(0)]]").contains("arrays of arguments are not covered"));
        assert!(of("array<texture2d<float>, 2> t[2][2]").contains("arrays of arguments are not covered"));
    }

    #[test]
    fn an_array_of_numbers_is_a_pointer_to_them() {
        let tokens = tokens("constant const long strides[3] [[buffer(4)]]");
        let [parameter] = &parameters(&tokens).unwrap()[..] else { panic!("one parameter") };
        let expected =
            Binding::Buffer { index: 4, pointee: "constant const long".to_owned(), reference: false, constant: true };
        assert_eq!(parameter.binding, expected);
    }
}
