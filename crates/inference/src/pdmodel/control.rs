//! Loops and branches of the legacy format: blocks that write variables of the blocks around them.
//!
//! Here a block hands back what it wrote, as in the new representation. A variable that holds nothing yet is a list of no members.

use super::{Block, BlockDesc, Error, OpDesc, Operation, Reader, Result, ValueId, slot};
use std::collections::{BTreeSet, HashMap};

/// Blocks inside blocks at most.
const DEPTH: usize = 32;

/// Refuses blocks that are in more than one place, or inside themselves.
pub(super) fn check(blocks: &[BlockDesc]) -> Result<()> {
    let mut depths: Vec<Option<usize>> = vec![None; blocks.len()];
    depths[0] = Some(0);
    for (at, block) in blocks.iter().enumerate() {
        let depth = depths[at].unwrap_or(0) + 1;
        for inner in block.ops.iter().filter_map(block_of) {
            let place = depths.get_mut(inner).filter(|place| place.is_none() && inner > at && depth <= DEPTH);
            let place = place.ok_or_else(|| Error::program(format!("block {inner} inside block {at}")))?;
            *place = Some(depth);
        }
    }
    Ok(())
}

/// The number of an operation's block; a negative one is none's.
fn block_of(operation: &OpDesc) -> Option<usize> {
    let inner = operation.attrs.iter().find(|attribute| attribute.name == "sub_block")?.block_idx?;
    Some(usize::try_from(inner).unwrap_or(usize::MAX))
}

impl<'a> Reader<'a> {
    /// `while`: a loop whose condition, and whatever else its block writes, goes round.
    pub(super) fn repeat(&mut self, operation: &'a OpDesc) -> Result<()> {
        let condition = one(operation, "Condition")?;
        let body = self.block(operation)?;
        let written: Vec<&str> = self.written(body).into_iter().collect();
        let mut inputs = vec![Some(self.read(condition)?)];
        inputs.extend(written.iter().map(|name| Some(self.held(name))).collect::<Vec<_>>());
        let outer = self.current.clone();
        let arguments = written.iter().map(|name| self.write(name)).collect();
        let operations = self.operations(body)?;
        let mut yields = vec![self.read(condition)?];
        yields.extend(written.iter().map(|name| self.current[name]));
        let body = Block { arguments, operations, yields, released: Vec::new() };
        self.push("while", inputs, vec![body], written, outer);
        Ok(())
    }

    /// `conditional_block`: an `if` whose other side leaves everything as it is.
    pub(super) fn branch(&mut self, operation: &'a OpDesc) -> Result<()> {
        use super::Attribute::Flag;
        if super::attributes(operation).get("is_scalar_condition") != Some(&Flag(true)) {
            return Err(Error::program("a conditional_block whose condition is not one truth value"));
        }
        let inputs = vec![Some(self.read(one(operation, "Cond")?)?)];
        let body = self.block(operation)?;
        let written: Vec<&str> = self.written(body).into_iter().collect();
        let kept = written.iter().map(|name| self.held(name)).collect();
        let outer = self.current.clone();
        let operations = self.operations(body)?;
        let yields = written.iter().map(|name| self.held(name)).collect();
        let taken = Block { operations, yields, ..Block::default() };
        let other = Block { yields: kept, ..Block::default() };
        self.push("if", inputs, vec![taken, other], written, outer);
        Ok(())
    }

    /// An operation with blocks, whose outputs are new values of these variables.
    fn push(
        &mut self,
        name: &str,
        inputs: Vec<Option<ValueId>>,
        blocks: Vec<Block>,
        written: Vec<&'a str>,
        outer: HashMap<&'a str, ValueId>,
    ) {
        self.current = outer;
        let outputs = written.into_iter().map(|name| Some(self.write(name))).collect();
        self.operations.push(Operation { name: name.to_owned(), inputs, outputs, blocks, ..Operation::default() });
    }

    fn block(&self, operation: &OpDesc) -> Result<&'a BlockDesc> {
        let block = block_of(operation).and_then(|at| self.blocks.get(at));
        block.ok_or_else(|| Error::program(format!("{} without a block", operation.kind)))
    }

    /// The variables of other blocks that a block writes.
    fn written(&self, block: &'a BlockDesc) -> BTreeSet<&'a str> {
        let mut written = BTreeSet::new();
        for operation in &block.ops {
            match self.block(operation) {
                Ok(inner) => written.extend(self.written(inner)),
                Err(_) => {
                    written.extend(operation.outputs.iter().flat_map(|slot| &slot.arguments).map(|name| &name[..]))
                }
            }
        }
        block.vars.iter().for_each(|variable| {
            written.remove(&variable.name[..]);
        });
        written
    }

    /// What a variable holds at this place.
    fn held(&mut self, name: &str) -> ValueId {
        let held = self.current.get(name).copied();
        held.unwrap_or_else(|| self.combine(Vec::new()))
    }
}

/// The only variable of an input slot.
fn one<'a>(operation: &'a OpDesc, name: &str) -> Result<&'a str> {
    let found = slot(&operation.inputs, name).first().map(|name| &name[..]);
    found.ok_or_else(|| Error::program(format!("{} without {name}", operation.kind)))
}
