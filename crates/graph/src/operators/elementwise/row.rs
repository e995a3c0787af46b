//! One row of an elementwise table: an operator that is a single formula.

use super::Elementwise;
use super::expression::Expr;
use openmps_tile::{DType, dtype};

/// Which element types an operator takes.
pub type DTypes = &'static [DType];

/// What an input is when it is not of the operator's common type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The common type of the inputs.
    Common,
    /// A boolean: any type, compared with zero.
    Truth,
}

/// The output's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The inputs' common type.
    Same,
    /// The inputs' common type where it is a float, else float32.
    Float,
    /// Booleans.
    Bool,
    /// Whatever the caller's output tensor has.
    Given,
}

/// An operator that computes each element of its output from the same element of its inputs.
pub struct Row {
    /// Its name in every layer.
    pub name: &'static str,
    /// One sentence for the documents.
    pub summary: &'static str,
    /// One entry an input.
    pub operands: &'static [Operand],
    /// Names of the numbers it takes besides tensors.
    pub scalars: &'static [&'static str],
    /// Element types of the common inputs.
    pub dtypes: DTypes,
    /// The output's type.
    pub output: Output,
    /// The formula, on tiles of the compute type.
    pub expression: Formula,
    /// The same in float64: inputs, scalars.
    pub reference: fn(&[f64], &[f64]) -> f64,
    /// Values for the scalars in tests.
    pub sample: &'static [f64],
    /// Largest error in units of the output type's rounding; 0 demands equality.
    pub tolerance: f64,
}

/// An elementwise operator as a type: for frontends that need a function of its own for each.
pub trait ElementwiseType: 'static {
    /// The operator.
    const OPERATOR: Elementwise;
}

/// What is shown every operator of a table.
pub trait Visitor {
    /// Called once for each.
    fn visit<Operator: ElementwiseType>(&mut self);
}

/// A formula: tiles and scalars in, a tile out.
pub type Formula = for<'s> fn(&[Expr<'s>], &[Expr<'s>]) -> Expr<'s>;

impl Row {
    /// The type in which the formula is computed for these inputs.
    pub fn compute(&self, inputs: &[DType]) -> DType {
        let common = self.common(inputs);
        match self.output {
            Output::Float if !common.is_float() => DType::F32,
            _ => common.compute(),
        }
    }

    /// The inputs' common type: the first that is not a condition.
    pub fn common(&self, inputs: &[DType]) -> DType {
        let common = inputs.iter().zip(self.operands).find(|(_, operand)| **operand == Operand::Common);
        common.map_or(DType::Bool, |(&dtype, _)| dtype)
    }

    /// The output's type, where it follows from the inputs'.
    pub fn output_dtype(&self, inputs: &[DType]) -> Option<DType> {
        let common = self.common(inputs);
        match self.output {
            Output::Same => Some(common),
            Output::Float => Some(if common.is_float() { common } else { DType::F32 }),
            Output::Bool => Some(DType::Bool),
            Output::Given => None,
        }
    }
}

pub(super) const ONE: &[Operand] = &[Operand::Common];
pub(super) const TWO: &[Operand] = &[Operand::Common, Operand::Common];
pub(super) const THREE: &[Operand] = &[Operand::Common, Operand::Common, Operand::Common];
pub(super) const MASKED: &[Operand] = &[Operand::Truth, Operand::Common];
pub(super) const FOUR: &[Operand] = &[Operand::Common; 4];
pub(super) const FIVE: &[Operand] = &[Operand::Common; 5];
pub(super) const FLOATS: DTypes = dtype::FLOATS;
pub(super) const NUMBERS: DTypes = dtype::NUMBERS;
pub(super) const ALL: DTypes = dtype::ALL;
pub(super) const EVERY: DTypes = dtype::EVERY;
/// Floats as they are, integers through float32.
pub(super) const PROMOTED: DTypes = &[DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
pub(super) const SIGNED: DTypes =
    &[DType::I8, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64];
pub(super) const BITS: DTypes = &[DType::Bool, DType::U8, DType::I8, DType::I16, DType::I32, DType::I64];

pub(super) const INTEGERS: DTypes = &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64];

/// Makes an enum with one member a row, and the table of rows in the same order.
macro_rules! rows {
    ($(#[$meta:meta])* $name:ident {
        $($variant:ident $text:literal, $summary:literal, $operands:expr, [$($scalar:literal = $sample:expr),*],
          $dtypes:expr => $output:ident, $tolerance:literal,
          $formula:expr, $reference:expr;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $(#[doc = $summary] $variant,)+ }

        impl $name {
            /// Every member, in the order of the table.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The table.
            pub const ROWS: &'static [$crate::operators::elementwise::row::Row] = &[$($crate::operators::elementwise::row::Row {
                name: $text,
                summary: $summary,
                operands: $operands,
                scalars: &[$($scalar),*],
                dtypes: $dtypes,
                output: $crate::operators::elementwise::row::Output::$output,
                expression: $formula,
                reference: $reference,
                sample: &[$($sample),*],
                tolerance: $tolerance,
            },)+];

            /// Shows a visitor every member, each as a type.
            pub fn each(visitor: &mut impl $crate::operators::elementwise::Visitor) {
                use $crate::operators::elementwise::{Elementwise, ElementwiseType};
                $({
                    struct Member;
                    impl ElementwiseType for Member {
                        const OPERATOR: Elementwise = Elementwise::$name($name::$variant);
                    }
                    visitor.visit::<Member>();
                })+
            }
        }
    };
}
pub(super) use rows;
