//! Functions of several blocks, as a `return` in the middle of a kernel makes them: branches become conditions with blocks inside.
//!
//! Two sides of a branch that come together again yield what the block there takes. Where a side may return before that, what follows is read
//! once for each side, so that nothing has to be said of values that a side has not.

use super::cursor::{Cursor, Read};
use super::function::{Names, Reader, named};
use super::operations::Simple;
use super::region;
use crate::kernel::{Operation, Value};
use std::collections::{HashMap, HashSet};

/// What ends a function, and a block that says something of single elements.
const RETURNS: [&str; 2] = ["tt.return", "tt.map_elementwise.return"];

/// A block of a function.
struct Flow<'t> {
    /// Where its arguments begin, or its operations.
    start: Cursor<'t>,
    /// Blocks that it goes on with.
    successors: Vec<&'t str>,
    returns: bool,
}

/// The blocks of a function, by label, and their order.
#[derive(Default)]
pub struct Flows<'t> {
    blocks: HashMap<&'t str, Flow<'t>>,
    order: Vec<&'t str>,
}

/// How reading block after block ended.
enum Ending {
    /// The function returns these.
    Returned(Vec<Value>),
    /// A block is next that somebody else reads, with these arguments.
    Joined(Vec<Value>),
}

impl<'t> Flows<'t> {
    /// The blocks behind the first one of a function whose body begins here.
    pub fn of(body: &Cursor<'t>) -> Flows<'t> {
        let mut flows = Flows::default();
        for (start, line) in body.own_lines() {
            let line = line.trim_start();
            if let Some(rest) = line.strip_prefix('^') {
                let label = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
                flows.order.push(label);
                flows.blocks.insert(label, Flow { start, successors: Vec::new(), returns: false });
            } else if let Some(block) = flows.order.last().and_then(|label| flows.blocks.get_mut(label)) {
                if line.starts_with("cf.") {
                    block.successors.extend(labels(line));
                }
                block.returns |= RETURNS.iter().any(|word| line.starts_with(word));
            }
        }
        flows
    }

    /// Whether there is one block only.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Blocks that can be reached from one, itself included, without passing another one.
    fn reached(&self, from: &'t str, without: Option<&str>) -> HashSet<&'t str> {
        let mut reached = HashSet::new();
        let mut next = vec![from];
        while let Some(label) = next.pop() {
            if Some(label) != without && reached.insert(label) {
                next.extend(self.blocks.get(label).map_or(&[][..], |block| &block.successors));
            }
        }
        reached
    }

    /// The block where two sides come together, if none of them can return before.
    fn join(&self, sides: [&'t str; 2]) -> Option<&'t str> {
        let [left, right] = sides.map(|side| self.reached(side, None));
        let join = self.order.iter().copied().find(|label| left.contains(label) && right.contains(label))?;
        let returns = |side: &'t str| {
            let before = self.reached(side, Some(join));
            before.iter().any(|label| self.blocks.get(label).is_none_or(|block| block.returns))
        };
        (!sides.into_iter().any(returns)).then_some(join)
    }
}

/// The labels in a line.
fn labels(line: &str) -> impl Iterator<Item = &str> {
    line.split('^')
        .skip(1)
        .map(|rest| &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())])
}

impl<'t> Reader<'t> {
    /// Reads a function's blocks from the beginning of its body; what it returns.
    pub fn branches(&mut self, body: Cursor<'t>, names: &mut Names, flows: &Flows<'t>) -> Read<Vec<Value>> {
        match self.flow(body, names, flows, None)? {
            Ending::Returned(values) | Ending::Joined(values) => Ok(values),
        }
    }

    /// Reads block after block until the function returns, or until a branch to a block that is read elsewhere.
    fn flow(
        &mut self,
        mut cursor: Cursor<'t>,
        names: &mut Names,
        flows: &Flows<'t>,
        stop: Option<&'t str>,
    ) -> Read<Ending> {
        self.enter(&cursor)?;
        let ending = loop {
            self.count(&cursor)?;
            let at = cursor.mark();
            if cursor.take("cf.br") {
                let (label, values) = target(&mut cursor, names)?;
                if Some(label) == stop {
                    break Ending::Joined(values);
                }
                cursor = self.begin(flows, label, values, names, &cursor)?;
            } else if cursor.take("cf.cond_br") {
                self.builder.at(cursor.source_line());
                let condition = named(&mut cursor, names)?;
                cursor.expect(",")?;
                let yes = target(&mut cursor, names)?;
                cursor.expect(",")?;
                let no = target(&mut cursor, names)?;
                let join = flows.join([yes.0, no.0]);
                let end = join.or(stop);
                let first = self.side(yes, names, flows, end, &cursor)?;
                let second = self.side(no, names, flows, end, &cursor)?;
                let (first, second, ending) = match (first, second) {
                    ((a, Ending::Returned(x)), (b, Ending::Returned(_))) => (a, b, Ending::Returned(x)),
                    ((a, Ending::Joined(x)), (b, Ending::Joined(_))) => (a, b, Ending::Joined(x)),
                    _ => return Err(at.refuse(&cursor, "cf.cond_br", "one side returns, the other goes on")),
                };
                let (Ending::Returned(values) | Ending::Joined(values)) = &ending;
                let types = self.types_of(values);
                let blocks = vec![first, second];
                let results = self.builder.emit_with_blocks(Operation::If, &[condition], &types, blocks);
                match (ending, join.filter(|join| Some(*join) != stop)) {
                    (Ending::Joined(_), Some(join)) => cursor = self.begin(flows, join, results, names, &cursor)?,
                    (Ending::Joined(_), None) => break Ending::Joined(results),
                    (Ending::Returned(_), _) => break Ending::Returned(results),
                }
            } else if RETURNS.iter().any(|word| cursor.take(word)) {
                break Ending::Returned(Simple::read(&mut cursor, names)?.operands);
            } else {
                self.one(&mut cursor, names)?;
            }
        };
        self.leave();
        Ok(ending)
    }

    /// One side of a branch as a block of a condition, and how it ended.
    fn side(
        &mut self,
        (label, values): (&'t str, Vec<Value>),
        names: &mut Names,
        flows: &Flows<'t>,
        stop: Option<&'t str>,
        cursor: &Cursor<'t>,
    ) -> Read<(crate::kernel::Block, Ending)> {
        self.builder.begin_block(&[]);
        let ending = if Some(label) == stop {
            Ending::Joined(values)
        } else {
            let start = self.begin(flows, label, values, names, cursor)?;
            self.flow(start, names, flows, stop)?
        };
        let (Ending::Returned(values) | Ending::Joined(values)) = &ending;
        Ok((self.builder.end_block(Operation::Yield, values), ending))
    }

    /// Gives a block its arguments; where its operations begin.
    fn begin(
        &mut self,
        flows: &Flows<'t>,
        label: &str,
        values: Vec<Value>,
        names: &mut Names,
        from: &Cursor<'t>,
    ) -> Read<Cursor<'t>> {
        let Some(block) = flows.blocks.get(label) else { return Err(from.error(format!("no block ^{label}"))) };
        let mut cursor = block.start.clone();
        let arguments = self.labelled(&mut cursor)?;
        if arguments.len() != values.len() {
            return Err(from.error(format!("{} values for ^{label}, expected {}", values.len(), arguments.len())));
        }
        names.extend(arguments.into_iter().map(|(name, _)| name.to_owned()).zip(values));
        Ok(cursor)
    }
}

/// `^bb1`, `^bb1(%a, %b : types)`
fn target<'t>(cursor: &mut Cursor<'t>, names: &Names) -> Read<(&'t str, Vec<Value>)> {
    cursor.expect("^")?;
    let label = cursor.word();
    let mut values = Vec::new();
    if cursor.take("(") {
        while cursor.looking_at("%") {
            values.push(named(cursor, names)?);
            let _ = cursor.take(",");
        }
        cursor.expect(":")?;
        region::list(cursor)?;
        cursor.expect(")")?;
    }
    cursor.skip_location()?;
    Ok((label, values))
}
