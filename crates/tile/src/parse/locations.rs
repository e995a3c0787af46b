//! The source locations of a text: `#loc12 = loc("add"(#loc3))`, resolved to `file:line:column`.

use std::collections::HashMap;

/// Aliases of a text.
pub struct Locations<'t> {
    aliases: HashMap<&'t str, &'t str>,
}

/// Aliases refer to each other; a chain longer than this is not followed.
const DEEPEST: usize = 64;

/// Longer definitions are not followed; a path has at most 4096 bytes.
const LONGEST: usize = 16 << 10;

impl<'t> Locations<'t> {
    /// Collects the lines that define aliases.
    pub fn of(text: &'t str) -> Locations<'t> {
        let definition = |line: &'t str| line.strip_prefix("#loc")?.split_once(" = ");
        let aliases = text.lines().filter(|line| line.len() <= LONGEST).filter_map(definition).collect();
        Locations { aliases }
    }

    /// `file:line:column` of what stands in `loc(..)`. Of an inlined operation it is the place of the outermost call.
    pub fn resolve(&self, mut location: &'t str) -> Option<String> {
        for _ in 0..DEEPEST {
            location = location.trim();
            if let Some((_, caller)) = location.strip_prefix("callsite(").and_then(|inner| inner.rsplit_once(" at ")) {
                location = caller.strip_suffix(')').unwrap_or(caller);
                continue;
            }
            if let Some(alias) = location.strip_prefix("#loc") {
                let alias = alias.trim_end_matches(')');
                location = self.aliases.get(alias)?.strip_prefix("loc(")?.trim_end().strip_suffix(')')?;
                continue;
            }
            let (name, rest) = location.strip_prefix('"')?.split_once('"')?;
            match rest.strip_prefix(':') {
                Some(place) => return Some(format!("{name}:{place}")),
                None => location = rest.strip_prefix('(')?.strip_suffix(')')?,
            }
        }
        None
    }
}
