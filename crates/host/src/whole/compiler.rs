//! The state of the walk from a kernel to steps: a place in the frame for every value, the steps so far.

use super::{Step, Whole};
use crate::error::Error;
use openmps_tile::kernel::Instruction;
use openmps_tile::{Block, Element, Kernel, Scalar, Type, Value};

/// Bytes of one element in a frame.
pub(super) fn element_size(ty: &Type) -> usize {
    match ty.element {
        Element::Scalar(scalar) => scalar.size(),
        Element::Pointer(_) => 8,
    }
}

/// Makes the steps of one instruction.
pub(super) type MakeSteps = for<'k> fn(&mut Compiler<'k>, &'k Instruction) -> Result<(), Error>;

/// The state of the walk over a kernel.
pub(super) struct Compiler<'k> {
    pub kernel: &'k Kernel,
    make_steps: MakeSteps,
    /// By value; none yet where it has not been defined.
    places: Vec<Option<usize>>,
    frame_bytes: usize,
    prologue: Vec<Step>,
    /// Steps under construction, the innermost block's last.
    open: Vec<Vec<Step>>,
    /// Elements that each scalar of a combination's block stands for; one elsewhere.
    pub lanes: usize,
    ns: f64,
    ns_scale: f64,
    /// Whether programs must run one after the other.
    pub is_ordered: bool,
}

impl<'k> Compiler<'k> {
    /// The kernel as steps, each instruction's by `make_steps`.
    pub fn compile(kernel: &'k Kernel, make_steps: MakeSteps) -> Result<Whole, Error> {
        let mut compiler = Compiler {
            kernel,
            make_steps,
            places: vec![None; kernel.types.len()],
            frame_bytes: 0,
            prologue: Vec::new(),
            open: vec![Vec::new()],
            lanes: 1,
            ns: 50.0,
            ns_scale: 1.0,
            is_ordered: false,
        };
        let parameters = kernel.parameters.iter().map(|parameter| compiler.define(parameter.value, 8)).collect();
        compiler.block(&kernel.body)?;
        Ok(Whole {
            name: kernel.name.clone(),
            parameters,
            prologue: compiler.prologue,
            body: compiler.open.pop().unwrap_or_default(),
            frame_bytes: compiler.frame_bytes,
            ns_per_program: compiler.ns as usize,
            is_ordered: compiler.is_ordered,
        })
    }

    pub fn type_of(&self, value: Value) -> &'k Type {
        self.kernel.type_of(value)
    }

    /// The number type of a value; i64 for addresses.
    pub fn number(&self, value: Value) -> Scalar {
        self.type_of(value).number().unwrap_or(Scalar::I64)
    }

    /// How many elements a value has here.
    pub fn len(&self, value: Value) -> usize {
        self.type_of(value).len() * self.lanes
    }

    pub fn bytes(&self, value: Value) -> usize {
        self.len(value) * element_size(self.type_of(value))
    }

    /// A place of this size, aligned for vectors.
    pub fn reserve(&mut self, bytes: usize) -> usize {
        let place = self.frame_bytes;
        self.frame_bytes += bytes.next_multiple_of(64);
        place
    }

    fn define(&mut self, value: Value, least: usize) -> usize {
        let place = self.reserve(self.bytes(value).max(least));
        self.places[value.0 as usize] = Some(place);
        place
    }

    /// A place for an instruction's result.
    pub fn result(&mut self, value: Value) -> usize {
        self.define(value, 8)
    }

    /// Lets a value be where another one is.
    pub fn alias(&mut self, value: Value, place: usize) {
        self.places[value.0 as usize] = Some(place);
    }

    /// Where a value is. Verified kernels define before they read.
    pub fn place(&self, value: Value) -> usize {
        self.places[value.0 as usize].unwrap_or(0)
    }

    pub fn push(&mut self, elements: usize, ns_per_element: f64, step: Step) {
        self.ns += (10.0 + elements as f64 * ns_per_element) * self.ns_scale;
        if let Some(open) = self.open.last_mut() {
            open.push(step);
        }
    }

    /// A step whose result is the same in every program.
    pub fn push_once(&mut self, step: Step) {
        self.prologue.push(step);
    }

    /// The steps of a block, without its end, which `end` handles.
    pub fn inner(
        &mut self,
        block: &'k Block,
        repeats: f64,
        end: impl FnOnce(&mut Self, &'k Instruction) -> Result<(), Error>,
    ) -> Result<Vec<Step>, Error> {
        self.open.push(Vec::new());
        let scale = self.ns_scale;
        self.ns_scale *= repeats;
        let (last, rest) = block.instructions.split_last().ok_or_else(|| self.unsupported("an empty block"))?;
        rest.iter().try_for_each(|instruction| (self.make_steps)(self, instruction))?;
        end(self, last)?;
        self.ns_scale = scale;
        Ok(self.open.pop().unwrap_or_default())
    }

    fn block(&mut self, block: &'k Block) -> Result<(), Error> {
        block.instructions.iter().try_for_each(|instruction| (self.make_steps)(self, instruction))
    }

    pub fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Unsupported { kernel: self.kernel.name.clone(), what: what.into(), by: "the host" }
    }
}
