//! What one run of a compiled graph reads and writes: feeds, results and variables, and the buffers that they lie in.

use super::plan::Plan;
use super::{Source, TensorData};
use crate::buffer::{Access, Buffer, Contents};
use crate::device::Device;
use crate::encode::Resource;
use crate::error::{Error, Result};
use openmps_graph::Meta;

/// The memory of a plan's values, as far as it comes from outside of the run or leaves it. Constants of the plan's own are read by nobody else
/// and written by nobody at all: they need no lock.
pub(super) struct Bindings {
    /// Addresses by value.
    pub brought: Vec<Option<usize>>,
    pub resources: Vec<Resource>,
    pub results: Vec<TensorData>,
    /// Results that are there before the first step: the value, and the address that it is copied to.
    pub copies: Vec<(usize, usize)>,
    /// What new buffers hold.
    contents: Contents,
}

impl Bindings {
    /// Those of a run with these tensors for the placeholders.
    pub fn new(plan: &Plan, device: &Device, feeds: &[(&str, &TensorData)], contents: Contents) -> Result<Bindings> {
        let brought = vec![None; plan.values.len()];
        let resources = Vec::with_capacity(plan.shared.len() + plan.results.len() + plan.assignments.len());
        let results = Vec::with_capacity(plan.results.len());
        let mut bindings = Bindings { brought, resources, results, copies: Vec::new(), contents };
        // What the results do not need may be fed all the same; a name that is misspelt leaves another one without its tensor.
        for (at, &(name, _)) in feeds.iter().enumerate() {
            if feeds[..at].iter().any(|&(other, _)| other == name) {
                return Err(Error::Feed { name: name.to_owned(), what: "it was given two tensors" });
            }
        }
        for &value in &plan.shared {
            match &plan.values[value].source {
                Source::Placeholder(name) => bindings.feed(plan, value, name, feeds)?,
                _ => bindings.constant(plan, value)?,
            }
        }
        for &value in &plan.results {
            bindings.result(plan, device, value)?;
        }
        for &[value, _] in &plan.assignments {
            bindings.assigned(plan, device, plan.roots[value])?;
        }
        Ok(bindings)
    }

    fn uses(&mut self, what: &'static str, buffer: &Buffer, access: Access, range: (usize, usize)) {
        self.resources.push(Resource { what, buffer: buffer.clone(), access, range });
    }

    /// A new buffer that the run writes.
    fn made(&mut self, what: &'static str, device: &Device, meta: &Meta) -> Result<Buffer> {
        let buffer = Buffer::holding(self.contents, device, meta.bytes()?)?;
        self.uses(what, &buffer, Access::Write, (0, buffer.len()));
        Ok(buffer)
    }

    /// The tensor of a placeholder.
    fn feed(&mut self, plan: &Plan, value: usize, name: &str, feeds: &[(&str, &TensorData)]) -> Result<()> {
        let Some((_, feed)) = feeds.iter().find(|(other, _)| *other == name) else {
            if plan.needs(value) {
                return Err(Error::Feed { name: name.to_owned(), what: "no tensor was given" });
            }
            return Ok(());
        };
        let meta = &plan.values[value].meta;
        check_feed(meta, feed)?;
        self.brought[value] = Some(feed.address());
        self.uses("a feed", &feed.buffer, Access::Read, (feed.offset, meta.bytes()?));
        Ok(())
    }

    /// A tensor of the graph's user, or a variable as it is now.
    fn constant(&mut self, plan: &Plan, value: usize) -> Result<()> {
        let Some(tensor) = &plan.constants[value] else { return Ok(()) };
        self.brought[value] = Some(tensor.address());
        let (what, access) =
            if plan.is_set[value] { ("a variable", Access::Write) } else { ("a constant", Access::Read) };
        self.uses(what, &tensor.buffer, access, (tensor.offset, plan.values[value].meta.bytes()?));
        Ok(())
    }

    /// A buffer for a result.
    fn result(&mut self, plan: &Plan, device: &Device, value: usize) -> Result<()> {
        let (root, meta) = (plan.roots[value], &plan.values[value].meta);
        let buffer = self.made("a result", device, meta)?;
        if self.brought[root].is_some() || plan.constants[root].is_some() {
            // Fed, constant, or a result before this one: there is nothing to compute into this buffer.
            self.copies.push((value, buffer.address(0)));
        } else {
            self.brought[root] = Some(buffer.address(0));
        }
        self.results.push(TensorData::new(&buffer, 0, &meta.shape, meta.dtype)?);
        Ok(())
    }

    /// A buffer for what a variable becomes, where it has none.
    fn assigned(&mut self, plan: &Plan, device: &Device, root: usize) -> Result<()> {
        if self.brought[root].is_some() || plan.constants[root].is_some() {
            return Ok(());
        }
        let buffer = self.made("a variable's new value", device, &plan.values[root].meta)?;
        self.brought[root] = Some(buffer.address(0));
        Ok(())
    }
}

fn check_feed(meta: &Meta, feed: &TensorData) -> Result<()> {
    let (operation, what) = ("Executable", "a feed");
    if feed.meta.shape != meta.shape {
        let (got, expected) = (format!("{:?}", feed.meta.shape), format!("{:?}", meta.shape));
        return Err(Error::Shape { operation, what, got, expected });
    }
    if feed.meta.dtype != meta.dtype {
        return Err(Error::DataType { operation, what, got: feed.meta.dtype, expected: meta.dtype.to_string() });
    }
    Ok(())
}
