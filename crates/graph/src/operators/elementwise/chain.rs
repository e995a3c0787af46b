//! Formulas one after the other in one kernel: what lies between them is never stored.

use super::layout::MAX_TENSORS;
use super::{Call, Elementwise, Unary, kernel};
use crate::error::{Error, Result};
use crate::operator::{Meta, Operator};
use crate::program::scalar_bits;
use crate::reference::Array;
use openmps_tile::{Builder, DType, Number, Scalar, Value};
use std::fmt::Write;
use std::sync::Arc;

/// What a formula of a chain reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An input of the chain.
    Input(usize),
    /// The result of an earlier formula.
    Stage(usize),
}

/// One formula of a chain.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The operator with its numbers.
    pub call: Call,
    /// One for each of its inputs.
    pub operands: Vec<Operand>,
}

impl Stage {
    /// A formula of these operands, with its numbers.
    pub fn new(operator: Elementwise, operands: &[Operand], numbers: &[f64]) -> Stage {
        let scalars = numbers.iter().map(|&number| Number::Float(number)).collect();
        Stage { call: Call { operator, scalars, output: None }, operands: operands.to_vec() }
    }

    /// The operand in another type.
    pub fn cast(operand: Operand, dtype: DType) -> Stage {
        let mut stage = Stage::new(Elementwise::Unary(Unary::Cast), &[operand], &[]);
        stage.call.output = Some(dtype);
        stage
    }

    /// What the operands stand for, of the chain's inputs and the results of the formulas before.
    fn read<T: Clone>(&self, inputs: &[T], results: &[T]) -> Vec<T> {
        let of = |operand: &Operand| match *operand {
            Operand::Input(index) => inputs[index].clone(),
            Operand::Stage(index) => results[index].clone(),
        };
        self.operands.iter().map(of).collect()
    }
}

/// Formulas one after the other; the last one's result is the chain's. Every result is rounded to its element type, as if it were stored.
#[derive(Clone, Debug)]
pub struct Chain {
    stages: Vec<Stage>,
    text: Arc<str>,
}

impl Chain {
    /// A chain of at least one formula; operands name inputs below [`Chain::MAX_INPUTS`], or earlier formulas. Others are refused when the chain
    /// meets its inputs.
    pub fn new(stages: Vec<Stage>) -> Chain {
        let mut text = String::new();
        for Stage { call, operands } in &stages {
            // Writing to a string cannot fail.
            let _ = write!(text, "{:?}{operands:?}{:?};", call.operator, call.output);
        }
        Chain { stages, text: text.into() }
    }

    /// The formulas' operators.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.stages.iter().map(|stage| stage.call.operator.row().name)
    }

    /// Inputs that a chain has at most.
    pub const MAX_INPUTS: usize = MAX_TENSORS - 1;

    /// Operators and what they read, without numbers.
    pub fn text(&self) -> Arc<str> {
        self.text.clone()
    }

    /// Refuses operands that no input and no earlier formula is.
    fn check_operands(&self, inputs: usize) -> Result<()> {
        let refused = |attribute, got: String, expected: String| {
            Err(Error::Attribute { operator: "fused", attribute, got, expected })
        };
        if inputs > Chain::MAX_INPUTS {
            let expected = format!("at most {}", Chain::MAX_INPUTS);
            return refused("number of inputs", inputs.to_string(), expected);
        }
        for (number, stage) in self.stages.iter().enumerate() {
            let is_missing = |operand: &&Operand| match **operand {
                Operand::Input(index) => index >= inputs,
                Operand::Stage(index) => index >= number,
            };
            if let Some(missing) = stage.operands.iter().find(is_missing) {
                let expected = format!("one of {inputs} inputs or of {number} formulas before formula {number}");
                return refused("operand", format!("{missing:?}"), expected);
            }
        }
        Ok(())
    }

    /// Shape and element type of every formula's result.
    pub(super) fn metas(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        self.check_operands(inputs.len())?;
        let mut metas: Vec<Meta> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            metas.extend(stage.call.infer(&stage.read(inputs, &metas))?);
        }
        Ok(metas)
    }

    /// Element types of every formula's result.
    fn dtypes(&self, inputs: &[DType]) -> Vec<DType> {
        let mut results: Vec<DType> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            results.push(stage.call.output_dtype(&stage.read(inputs, &results)));
        }
        results
    }

    /// The element type of the result.
    pub fn dtype(&self, inputs: &[DType]) -> DType {
        self.dtypes(inputs).last().copied().unwrap_or(DType::F32)
    }

    /// The types that each formula reads.
    fn read(&self, inputs: &[DType]) -> Vec<Vec<DType>> {
        let results = self.dtypes(inputs);
        self.stages.iter().map(|stage| stage.read(inputs, &results)).collect()
    }

    /// Names and types of all formulas' numbers.
    pub(crate) fn scalar_types(&self, inputs: &[DType]) -> Vec<(String, Scalar)> {
        let of_stage = |(index, (stage, read)): (usize, (&Stage, Vec<DType>))| {
            let row = stage.call.operator.row();
            let ty = kernel::scalar_type(row.compute(&read));
            row.scalars.iter().map(|name| (format!("{name}{index}"), ty)).collect::<Vec<_>>()
        };
        self.stages.iter().zip(self.read(inputs)).enumerate().flat_map(of_stage).collect()
    }

    /// All formulas' numbers as arguments.
    pub(crate) fn numbers(&self, inputs: &[DType]) -> Vec<u64> {
        let of_stage = |(stage, read): (&Stage, Vec<DType>)| {
            let compute = stage.call.operator.row().compute(&read);
            stage.call.scalars.iter().map(|&scalar| scalar_bits(scalar, compute)).collect::<Vec<_>>()
        };
        self.stages.iter().zip(self.read(inputs)).flat_map(of_stage).collect()
    }

    /// The formulas on loaded tiles; the result as it lies in memory.
    pub(crate) fn apply(&self, b: &mut Builder, loaded: &[Value], inputs: &[DType], scalars: &[Value]) -> Value {
        let (results, read) = (self.dtypes(inputs), self.read(inputs));
        let mut values: Vec<Value> = Vec::with_capacity(self.stages.len());
        let mut scalars = scalars;
        for ((stage, read), &result) in self.stages.iter().zip(read).zip(&results) {
            let row = stage.call.operator.row();
            let (own, rest) = scalars.split_at(row.scalars.len());
            scalars = rest;
            let operands: Vec<(Value, DType)> = stage.read(loaded, &values).into_iter().zip(read).collect();
            values.push(kernel::formula(b, row, &operands, own, result));
        }
        values[values.len() - 1]
    }

    /// The same in float64.
    pub(super) fn reference(&self, inputs: &[Array]) -> Option<Array> {
        let mut results: Vec<Array> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            results.extend(stage.call.reference(&stage.read(inputs, &results)));
        }
        results.pop()
    }
}
