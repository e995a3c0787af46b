//! A hook at the beginning of a function: the function is found by its name, and its text checked, so that only what was read is changed.

use crate::edits::Edit;
use crate::result::Result;
use sha2::{Digest, Sha256};
use std::ops::Range;
use syn::{ImplItem, Item, Signature, Type};

/// Where a function stands in its file.
struct Place {
    /// From `fn` to the closing brace.
    text: Range<usize>,
    /// Behind the opening brace.
    inside: usize,
}

/// The file's text with a hook in each of these functions of it.
pub fn rewrite<'a>(text: &str, edits: impl Iterator<Item = &'a Edit>) -> Result<String> {
    let file = syn::parse_file(text).map_err(|error| format!("not Rust: {error}"))?;
    let mut insertions = Vec::new();
    for edit in edits {
        let place = find(&file, edit.function)?;
        let found = digest(&text[place.text]);
        if found != edit.digest {
            let Edit { function, digest, .. } = edit;
            return Err(format!("{function} is not the text that is known here: its SHA-256 is {found}, not {digest}"));
        }
        insertions.push((place.inside, edit.hook()));
    }
    let mut rewritten = text.to_owned();
    // From the end, so that the places before stay where they are.
    insertions.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    insertions.iter().for_each(|(at, hook)| rewritten.insert_str(*at, hook));
    Ok(rewritten)
}

/// SHA-256 in hexadecimal.
fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The one function `name`, or method `Type::name`, of a file.
fn find(file: &syn::File, function: &str) -> Result<Place> {
    let places: Vec<Place> = match function.split_once("::") {
        None => file.items.iter().filter_map(|item| free(item, function)).collect(),
        Some((of, name)) => file.items.iter().flat_map(|item| methods(item, of, name)).collect(),
    };
    let count = places.len();
    match <[Place; 1]>::try_from(places) {
        Ok([place]) => Ok(place),
        Err(_) => Err(format!("{count} functions are called {function}, expected one")),
    }
}

fn free(item: &Item, name: &str) -> Option<Place> {
    match item {
        Item::Fn(item) if item.sig.ident == name => Some(place(&item.sig, &item.block)),
        _ => None,
    }
}

fn methods(item: &Item, of: &str, name: &str) -> Vec<Place> {
    let Item::Impl(block) = item else { return Vec::new() };
    let Type::Path(path) = &*block.self_ty else { return Vec::new() };
    if !path.path.is_ident(of) {
        return Vec::new();
    }
    let called = |item: &ImplItem| match item {
        ImplItem::Fn(method) if method.sig.ident == name => Some(place(&method.sig, &method.block)),
        _ => None,
    };
    block.items.iter().filter_map(called).collect()
}

fn place(signature: &Signature, block: &syn::Block) -> Place {
    let braces = &block.brace_token.span;
    let text = signature.fn_token.span.byte_range().start..braces.close().byte_range().end;
    Place { text, inside: braces.open().byte_range().end }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A made-up source: the same name as a method and as a function, and braces in text and comments.
    const TEXT: &str = r#"
// A comment with a ü, so that bytes are not characters, and a }.
pub fn halve(x: f64) -> f64 {
    let _ = "}";
    x / 2.0
}
struct Layer;
impl Layer {
    fn other(&self) -> f64 { 1.0 }
    fn halve(&self, x: f64) -> f64 { x * 0.5 /* } */ }
}
"#;

    fn edit(function: &'static str, text: &str) -> Edit {
        let digest = Box::leak(digest(text).into_boxed_str());
        Edit { file: "lib.rs", function, digest, before: "", call: "halve(x)" }
    }

    fn edits() -> [Edit; 2] {
        [
            edit("halve", "fn halve(x: f64) -> f64 {\n    let _ = \"}\";\n    x / 2.0\n}"),
            edit("Layer::halve", "fn halve(&self, x: f64) -> f64 { x * 0.5 /* } */ }"),
        ]
    }

    #[test]
    fn a_hook_comes_first_and_the_rest_stays() {
        let rewritten = rewrite(TEXT, edits().iter()).unwrap();
        let hook = edits()[0].hook();
        assert!(hook.contains("openmps_candle::hooks::halve(x)?"), "{hook}");
        assert_eq!(rewritten.matches(&hook).count(), 2);
        assert!(rewritten.contains(&format!("pub fn halve(x: f64) -> f64 {{{hook}\n    let _ =")));
        assert!(rewritten.contains(&format!("fn halve(&self, x: f64) -> f64 {{{hook} x * 0.5")));
        assert_eq!(rewritten.replace(&hook, ""), TEXT);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let changed = TEXT.replace("x / 2.0", "x / 3.0");
        let error = rewrite(&changed, edits().iter()).unwrap_err();
        assert!(error.contains("halve is not the text that is known here"), "{error}");
        let missing = [edit("Layer::double", "")];
        assert!(rewrite(TEXT, missing.iter()).unwrap_err().contains("0 functions are called Layer::double"));
        assert!(rewrite("fn (", edits().iter()).unwrap_err().contains("not Rust"));
    }
}
