//! Chains of single-element formulas, with a reduction at the end, become one step: what lies between them is never stored.

use super::{Graph, Source, Step};
use openmps_graph::Operator;
use openmps_graph::operators::elementwise::{Call, Chain, Fused, Operand, Stage};
use openmps_graph::operators::reduce::Reduce;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// Formulas of a chain at most: their tiles are all in the first-level cache.
const MAX_FORMULAS: usize = 16;

/// What a step is to those before and after it in a chain.
enum Part<'s> {
    /// A kernel of its own.
    Alone,
    /// A formula of single elements.
    Formula(&'s Call),
    /// A reduction, which a chain may end in.
    Reduction(&'s Reduce),
}

impl Part<'_> {
    fn of(step: &Step) -> Part<'_> {
        let operator: &dyn Any = &*step.operator;
        let reduction = || operator.downcast_ref().map(Part::Reduction);
        operator.downcast_ref().map(Part::Formula).or_else(reduction).unwrap_or(Part::Alone)
    }
}

/// Steps that become one: places in the list of needed steps, in order.
type Group = Vec<usize>;

/// The needed steps, with chains made one.
pub(super) fn fuse(graph: &Graph, needed: &[usize], results: &[usize]) -> Vec<Step> {
    let steps: Vec<&Step> = needed.iter().map(|&step| &graph.steps[step]).collect();
    let readers = readers(graph, &steps, results);
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of: Vec<Option<usize>> = vec![None; steps.len()];
    // From the last step on, each joins the group of those that read it, or begins one.
    for at in (0..steps.len()).rev() {
        let joined = group_to_join(graph, &steps, at, &readers, &group_of, &groups);
        let group = joined.unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].insert(0, at);
        group_of[at] = Some(group);
    }
    // A group runs where its last step stood; everything that it reads is there by then.
    (0..steps.len())
        .filter_map(|at| {
            let group = &groups[group_of[at]?];
            match &group[..] {
                [single] => Some(steps[*single].clone()),
                [.., last] if *last == at => Some(joined(&steps, group)),
                _ => None,
            }
        })
        .collect()
}

/// The steps that read each value; none where it is a result or has another shape's name, and so must be stored.
fn readers(graph: &Graph, steps: &[&Step], results: &[usize]) -> Vec<Option<Vec<usize>>> {
    let mut readers = vec![Some(Vec::new()); graph.values.len()];
    for (at, step) in steps.iter().enumerate() {
        for &input in &step.inputs {
            if let Some(readers) = &mut readers[input] {
                readers.push(at);
            }
        }
    }
    for value in &graph.values {
        if let Source::Reshape(from) = value.source {
            readers[from] = None;
        }
    }
    results.iter().for_each(|&result| readers[result] = None);
    readers
}

/// The one group that reads a formula's result, where it can take the formula in.
fn group_to_join(
    graph: &Graph,
    steps: &[&Step],
    at: usize,
    readers: &[Option<Vec<usize>>],
    group_of: &[Option<usize>],
    groups: &[Group],
) -> Option<usize> {
    let Part::Formula(_) = Part::of(steps[at]) else { return None };
    let output = steps[at].outputs[0];
    let readers = readers[output].as_ref()?;
    let group = group_of[*readers.first()?]?;
    if readers.iter().any(|&reader| group_of[reader] != Some(group)) {
        return None;
    }
    let members = &groups[group];
    let last = steps[*members.last()?];
    let walked = match Part::of(last) {
        Part::Formula(_) => last.outputs[0],
        Part::Reduction(_) => last.inputs[0],
        Part::Alone => return None,
    };
    let same_shape = graph.values[output].meta.shape == graph.values[walked].meta.shape;
    let with_it: Group = std::iter::once(at).chain(members.iter().copied()).collect();
    let fits = with_it.len() <= MAX_FORMULAS && inputs_of(steps, &with_it).len() <= Chain::MAX_INPUTS;
    (same_shape && fits).then_some(group)
}

/// The values that a group reads from elsewhere, each once.
fn inputs_of(steps: &[&Step], group: &[usize]) -> Vec<usize> {
    let made = |value: &usize| group.iter().any(|&at| steps[at].outputs.contains(value));
    let mut inputs = Vec::new();
    for value in group.iter().flat_map(|&at| &steps[at].inputs).filter(|value| !made(value)) {
        if !inputs.contains(value) {
            inputs.push(*value);
        }
    }
    inputs
}

/// A group as one step.
fn joined(steps: &[&Step], group: &[usize]) -> Step {
    let inputs = inputs_of(steps, group);
    let mut stages: Vec<Stage> = Vec::new();
    let mut made: HashMap<usize, usize> = HashMap::new();
    let mut reduction = None;
    for &at in group {
        let step = steps[at];
        match Part::of(step) {
            Part::Formula(call) => {
                let operand = |value: &usize| match made.get(value) {
                    Some(&stage) => Operand::Stage(stage),
                    None => Operand::Input(inputs.iter().position(|input| input == value).unwrap_or(0)),
                };
                stages.push(Stage { call: call.clone(), operands: step.inputs.iter().map(operand).collect() });
                made.insert(step.outputs[0], stages.len() - 1);
            }
            Part::Reduction(reduce) => reduction = Some(reduce.clone()),
            Part::Alone => {}
        }
    }
    let outputs = group.last().map_or_else(Vec::new, |&last| steps[last].outputs.clone());
    let operator: Arc<dyn Operator> = Arc::new(Fused { chain: Chain::new(stages), reduction });
    Step { operator, inputs, outputs }
}
