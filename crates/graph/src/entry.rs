//! What the list of operators says of each: its text, its element types and the cases that every device is tested with.

use crate::operator::Operator;
use openmps_tile::DType;

/// One operator in the list [`crate::operators::ENTRIES`].
pub struct Entry {
    /// The operator's name, as [`Operator::name`] returns it.
    pub name: &'static str,
    /// One sentence for `docs/operators.md`.
    pub summary: &'static str,
    /// Element types of the input that the cases leave open.
    pub dtypes: &'static [DType],
    /// Calls that are run for each element type, on every device, in several layouts, and compared with the reference.
    pub cases: fn() -> Vec<Case>,
    /// Largest relative error against float64 in units of the output type's rounding; 0 demands equality.
    pub tolerance: f64,
}

/// One call of an operator.
pub struct Case {
    /// The operator with its attributes.
    pub operator: Box<dyn Operator>,
    /// The operands that the case hands over, in the operator's order.
    pub inputs: Vec<Input>,
}

/// One input of a case, described so that it can be made for every element type and layout.
#[derive(Clone, Debug)]
pub struct Input {
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// What it is filled with.
    pub values: Values,
    /// Its element type; `None` is the type under test.
    pub dtype: Option<DType>,
}

/// How an input is filled. Values are rounded to the input's element type before the reference sees them.
#[derive(Clone, Debug)]
pub enum Values {
    /// Pseudo-random numbers between the two bounds; integers where the type is an integer.
    Uniform(f64, f64),
    /// NaN, infinities, zeros of both signs, the largest and smallest numbers, ones and small numbers, repeated.
    Special,
    /// 0, 1, 2, ... in row-major order.
    Counting,
    /// These values, repeated when there are fewer than elements.
    Given(Vec<f64>),
}

impl Case {
    /// A case whose inputs all have the type under test.
    pub fn new(operator: impl Operator + 'static, inputs: Vec<Input>) -> Case {
        Case { operator: Box::new(operator), inputs }
    }
}

impl Input {
    /// Numbers between -3 and 3 (0 and 7 for unsigned types) of this shape.
    pub fn new(dims: &[usize]) -> Input {
        Input::of(dims, Values::Uniform(-3.0, 3.0))
    }

    /// An input of this shape and filling.
    pub fn of(dims: &[usize], values: Values) -> Input {
        Input { dims: dims.to_vec(), values, dtype: None }
    }

    /// The same with an element type of its own.
    pub fn typed(mut self, dtype: DType) -> Input {
        self.dtype = Some(dtype);
        self
    }
}
