//! What Apple's compiler refuses and clang's OpenCL mode accepts: pointers and references without address space, which become generic here,
//! and `device` pointers taken as `constant`. Both show in clang's syntax tree.

use crate::error::{Error, Result};

/// How the names of the emulator's own files begin.
const OWN: [&str; 3] = ["/metal_stdlib/", "openmps_entries", "<"];

/// Checks the tree that `-ast-dump` prints.
pub(crate) fn check(tree: &str) -> Result<()> {
    let mut place = Place { inside: false, line: 0 };
    let mut conversion: Option<(u32, String)> = None;
    // A member function for `device` objects is one for `constant` objects here (crates/emulator/src/rewrite/members.rs).
    let mut is_object = false;
    for text in tree.lines() {
        place.follow(text);
        let of_member = std::mem::replace(&mut is_object, text.contains("'<bound member function type>'"));
        if !place.inside {
            conversion = None;
            continue;
        }
        if let Some((line, target)) = conversion.take()
            && text.contains("__global_device")
        {
            return Err(refuse(line, &format!("a `device` address is converted to {target}, which is `constant`")));
        }
        if text.contains("<AddressSpaceConversion>") && text.contains("ImplicitCastExpr") && !of_member {
            let target = quoted(text).unwrap_or_default();
            if !target.contains("__generic") && target.contains("__global ") {
                conversion = Some((place.line, spell(target)));
            }
        }
        if text.contains("-VarDecl ") && quoted(text).is_some_and(is_mutable_global) {
            let name = declared_name(text).unwrap_or_default();
            return Err(refuse(place.line, &format!("`{name}` lives outside of functions and is not `constant`")));
        }
        let declares = ["ParmVarDecl", "VarDecl", "FieldDecl"].iter().any(|kind| text.contains(&format!("-{kind} ")));
        if declares && !text.contains(" implicit ") && quoted(text).is_some_and(is_bare) {
            // Parameters that the compiler made for its own functions have no name.
            if let Some(name) = declared_name(text) {
                let kind = spell(quoted(text).unwrap_or_default());
                return Err(refuse(
                    place.line,
                    &format!("`{name}`, {kind}, has no address space (device, constant, threadgroup, thread)"),
                ));
            }
        }
    }
    Ok(())
}

/// Whether a type points or refers to something without address space. Types that depend on a template's parameters are as they were
/// written; others have become generic.
fn is_bare(kind: &str) -> bool {
    // The length of an array may be a product.
    let outside = kind.split_inclusive(['[', ']']).filter(|part| !part.ends_with(']')).collect::<String>();
    let kind = outside.as_str();
    let points = kind.contains('*') || kind.contains('&');
    let written = ["__", "auto", "&&", "(*"].iter().any(|part| kind.contains(part));
    kind.contains("__generic") || points && !written
}

/// Whether a variable of this type lives outside of functions (or is static in one) and may change.
fn is_mutable_global(kind: &str) -> bool {
    let points = kind.contains('*') || kind.contains('&');
    if points { kind.ends_with("*__global") } else { kind.starts_with("__global ") }
}

fn refuse(line: u32, what: &str) -> Error {
    Error::AddressSpace { line, what: what.to_owned() }
}

/// Where the tree's printer is: it names file and line only where they change.
struct Place {
    inside: bool,
    line: u32,
}

impl Place {
    fn follow(&mut self, text: &str) {
        let Some(begin) = text.find('<') else { return };
        // `<` opens the range; a second location follows it, outside, where the name stands.
        let Some(end) = text[begin..].find('>').map(|end| begin + end) else { return };
        let after = text[end + 1..].split_whitespace().next().unwrap_or_default();
        for location in text[begin + 1..end].split(", ").chain([after]) {
            self.step(location);
        }
    }

    fn step(&mut self, location: &str) {
        let mut parts = location.rsplitn(3, ':');
        let (Some(_column), Some(line)) = (parts.next(), parts.next()) else { return };
        match parts.next() {
            Some("line") => {}
            // The stand-in library and the entries are the emulator's; what else there is came with the text.
            Some(file) => self.inside = !OWN.iter().any(|own| file.starts_with(own)),
            None => return,
        }
        if let Ok(line) = line.parse() {
            self.line = line;
        }
    }
}

/// The first type in quotes.
fn quoted(text: &str) -> Option<&str> {
    let begin = text.find('\'')? + 1;
    Some(&text[begin..begin + text[begin..].find('\'')?])
}

/// The name that a declaration introduces: the word before its type.
fn declared_name(text: &str) -> Option<&str> {
    let before = &text[..text.find('\'')?];
    let word = before.split_whitespace().next_back()?;
    let plain = word.chars().all(|sign| sign.is_alphanumeric() || sign == '_') && !word.starts_with("col:");
    (plain && word != "used" && word != "referenced").then_some(word)
}

/// A type in the language's own words.
fn spell(kind: &str) -> String {
    let words =
        [("__global_device", "device"), ("__global", "constant"), ("__local", "threadgroup"), ("__private", "thread")];
    let plain = kind.replace("__generic ", "").replace("*__private", "*").replace("&__private", "&");
    let plain = words.iter().fold(plain, |text, (from, to)| text.replace(from, to));
    format!("`{}`", plain.trim())
}
