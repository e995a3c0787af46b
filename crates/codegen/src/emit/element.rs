//! One element of a tile as an expression: of registers, or of its index for what is rematerialized.

use super::control::constant;
use super::{Emitter, Result};
use crate::assign::Form;
use crate::layout::{Layout, bits_of, bits_of_axis, gathered};
use openmps_tile::{Instruction, Operation, Type, Value};
use std::collections::HashMap;

/// The body of a loop over registers, while it is written.
#[derive(Default)]
pub(super) struct Body {
    locals: HashMap<(Value, Layout), String>,
    taken: HashMap<Value, usize>,
}

impl Body {
    /// Notes that a value's element of this iteration has a name.
    pub fn define(&mut self, value: Value, layout: &Layout, name: String) {
        self.locals.insert((value, layout.clone()), name);
    }

    /// A name for a value that is not taken in this body.
    pub fn name(&mut self, value: Value) -> String {
        let count = self.taken.entry(value).or_insert(0);
        *count += 1;
        if *count == 1 { format!("e{}", value.0) } else { format!("e{}_{count}", value.0) }
    }
}

impl<'k> Emitter<'k> {
    /// The element that belongs to register `k` of a layout. What it is computed from is written before.
    pub(super) fn element(&mut self, body: &mut Body, value: Value, layout: &Layout) -> Result<String> {
        if self.type_of(value).is_scalar() {
            return self.scalar_name(value);
        }
        if let Some(name) = body.locals.get(&(value, layout.clone())) {
            return Ok(name.clone());
        }
        match self.forms.of(value) {
            Form::Materialized { .. } => self.register(value, layout),
            Form::View => {
                let (source, of_source) = self.through_view(value, layout);
                self.element(body, source, &of_source)
            }
            _ => self.virtual_element(body, value, layout),
        }
    }

    /// The register of a kept tile.
    fn register(&mut self, value: Value, layout: &Layout) -> Result<String> {
        let (dense, kept) = layout.dense();
        let Some(name) = self.array(value, &dense) else {
            return Err(self.unsupported(format!("the layout of %{}", value.0)));
        };
        Ok(match dense.registers() {
            1 => name.to_owned(),
            // A tile that repeats along the higher registers has fewer than the loop.
            registers if registers == self.registers && registers == layout.registers() => format!("{name}[k]"),
            _ => format!("{name}[{}]", gathered(&kept)),
        })
    }

    /// What a view shows, and the layout in which it is read.
    pub(super) fn through_view(&self, value: Value, layout: &Layout) -> (Value, Layout) {
        let Some(instruction) = self.forms.definition(value) else { return (value, layout.clone()) };
        let source = instruction.operands[0];
        let (from, to) = (&self.type_of(source).dims, &self.type_of(value).dims);
        let bits: Vec<usize> = match instruction.operation {
            // Dimensions of size 1 have no bits.
            Operation::Permute { ref order } => {
                let place = |axis: usize| order.iter().position(|&other| other == axis).unwrap_or(0);
                (0..from.len()).rev().flat_map(|axis| bits_of_axis(to, place(axis))).collect()
            }
            Operation::Broadcast => (0..to.len())
                .rev()
                .filter(|&axis| from[axis] == to[axis])
                .flat_map(|axis| bits_of_axis(to, axis))
                .collect(),
            _ => (0..layout.bits().len()).collect(),
        };
        (source, layout.select(&bits))
    }

    fn virtual_element(&mut self, body: &mut Body, value: Value, layout: &Layout) -> Result<String> {
        let Some(instruction) = self.forms.definition(value) else {
            return Err(self.unsupported(format!("%{}", value.0)));
        };
        let ty = self.type_of(value);
        let text = match &instruction.operation {
            Operation::Constant(number) => return Ok(self.literal(*number, self.number(value))),
            Operation::Splat => return self.scalar_name(instruction.operands[0]),
            Operation::ExpandDims { .. } | Operation::Broadcast | Operation::Reshape | Operation::Permute { .. } => {
                let (source, of_source) = self.through_view(value, layout);
                return self.element(body, source, &of_source);
            }
            Operation::Range { start } => {
                let index = layout.index(0, layout.bits().len());
                if *start == 0 { index } else { format!("{}u + ({index})", *start as u32) }
            }
            _ => self.computed(body, instruction, layout)?,
        };
        let name = body.name(value);
        self.line(format!("{} {name} = {text};", constant(&self.register_type(ty))));
        body.define(value, layout, name.clone());
        Ok(name)
    }

    /// An operation on the elements of its operands.
    pub(super) fn computed(
        &mut self,
        body: &mut Body,
        instruction: &'k Instruction,
        layout: &Layout,
    ) -> Result<String> {
        let operands: Vec<String> =
            (instruction.operands.iter()).map(|&operand| self.element(body, operand, layout)).collect::<Result<_>>()?;
        self.arithmetic(instruction, &operands)
    }

    /// Whether register `k` stands for an element: not for those that pad a size to a power of two. None when all do.
    pub(super) fn inside(&self, ty: &Type, layout: &Layout) -> Option<String> {
        let conditions: Vec<String> = (0..ty.dims.len())
            .filter(|&axis| ty.dims[axis] != 1 << bits_of(ty.dims[axis]))
            .map(|axis| {
                let bits = bits_of_axis(&ty.dims, axis);
                format!("({}) < {}", layout.index(bits.start, bits.end), ty.dims[axis])
            })
            .collect();
        if conditions.is_empty() { None } else { Some(conditions.join(" && ")) }
    }

    /// Whether this is the first of the threads that hold the same elements. None when each thread's are its own.
    pub(super) fn first_of_replicas(&self, layout: &Layout) -> Option<String> {
        let free = layout.free_threads(self.target.thread_bits());
        let mask: usize = free.iter().map(|&bit| 1 << bit).sum();
        match mask {
            0 => None,
            mask if mask + 1 == self.target.threads => Some("thread_index == 0".to_owned()),
            mask => Some(format!("(thread_index & {mask}) == 0")),
        }
    }

    /// The name or literal of a number that is the same in every thread.
    pub(super) fn scalar_name(&self, value: Value) -> Result<String> {
        self.scalars.get(&value).cloned().ok_or_else(|| self.unsupported(format!("the number %{}", value.0)))
    }
}
