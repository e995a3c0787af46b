//! Gradients of elementwise operators as operators: by the table in gradient.rs, and those of several tensors. The gradients of these are in
//! curvature.rs.

use super::gradient::{Rule, of_activation, of_unary};
use super::{Activation, Binary, Call, Elementwise, Gradient, Unary};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients, Node};
use crate::operator::Operator;
use crate::operators::words::Words;
use openmps_tile::Number;

impl Call {
    pub(super) fn differentiate(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        match self.operator {
            Elementwise::Unary(Unary::Cast) => self.cast_back(b),
            Elementwise::Unary(Unary::Negate) => one(b, |b, dy| b.unary(Unary::Negate, dy)),
            Elementwise::Unary(Unary::Scale) => {
                let factor = self.scalars[0];
                let zero = match factor {
                    Number::Integer(_) => Number::Integer(0),
                    Number::Float(_) => Number::Float(0.0),
                };
                one(b, |b, dy| b.map(Elementwise::Unary(Unary::Scale), &[dy], &[factor, zero]))
            }
            Elementwise::Activation(Activation::Swish) => self.swish_back(b),
            Elementwise::Unary(operator) => self.by_formula(of_unary(operator), b),
            Elementwise::Activation(operator) => self.by_formula(of_activation(operator), b),
            Elementwise::Binary(operator) => self.of_several(operator, b),
            Elementwise::Gradient(gradient) => self.of_gradient(gradient, b),
            Elementwise::Optimizer(_) | Elementwise::Recurrent(_) => Err(self.without_gradient()),
        }
    }

    pub(super) fn without_gradient(&self) -> Error {
        Error::NoGradient { operator: self.name() }
    }

    fn cast_back(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let from = b.dtype(b.inputs[0]);
        if !from.is_float() || !b.dtype(b.outputs[0]).is_float() {
            return Ok(b.nothing());
        }
        one(b, |b, dy| b.cast(dy, from))
    }

    /// `x sigmoid(beta x)` is silu of `beta x`, over beta.
    fn swish_back(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (scale, x) = (Elementwise::Unary(Unary::Scale), b.inputs[0]);
        let scaled = b.map(scale, &[x], &[self.scalars[0], Number::Float(0.0)])?;
        one(b, |b, dy| b.formula(Gradient::Silu, &[scaled, dy]))
    }

    fn by_formula(&self, rule: Option<Rule>, b: &mut Backward<'_>) -> Result<Gradients> {
        let (gradient, of) = match rule {
            None => return Err(self.without_gradient()),
            Some(Rule::Zero) => return Ok(b.nothing()),
            Some(Rule::Input(gradient)) => (gradient, b.inputs[0]),
            Some(Rule::Output(gradient)) => (gradient, b.outputs[0]),
        };
        if !b.dtype(b.inputs[0]).is_float() {
            return Ok(b.nothing());
        }
        let numbers = self.operator.numbers_of(gradient, &self.scalars);
        one(b, |b, dy| b.map(Elementwise::Gradient(gradient), &[of, dy], &numbers))
    }

    fn of_several(&self, operator: Binary, b: &mut Backward<'_>) -> Result<Gradients> {
        if !b.dtype(b.outputs[0]).is_float() {
            return Ok(b.nothing());
        }
        let dy = b.dy()?;
        let mut gradients = b.nothing();
        for index in 0..b.inputs.len() {
            if !b.wanted[index] {
                continue;
            }
            let Some(whole) = self.by_operand(operator, index, dy, b)? else { continue };
            let dims = b.shape(b.inputs[index]);
            gradients[index] = Some(b.sum_to(whole, &dims)?);
        }
        Ok(gradients)
    }

    /// The gradient by one operand before it is summed over what was broadcast.
    fn by_operand(&self, operator: Binary, index: usize, dy: Node, b: &mut Backward<'_>) -> Result<Option<Node>> {
        let (x, y) = (b.inputs[0], b.inputs[1]);
        let gradient = match (operator, index) {
            (Binary::Add, _) | (Binary::Subtract | Binary::Remainder, 0) => dy,
            (Binary::Subtract, _) => b.unary(Unary::Negate, dy)?,
            (Binary::Multiply, _) => b.multiply(dy, b.inputs[1 - index])?,
            (Binary::Divide, 0) => b.binary(Binary::Divide, dy, y)?,
            (Binary::Divide, _) => {
                let scaled = b.binary(Binary::Divide, dy, y)?;
                let product = b.multiply(scaled, b.outputs[0])?;
                b.unary(Unary::Negate, product)?
            }
            (Binary::Remainder, _) => b.formula(Gradient::RemainderY, &[x, y, dy])?,
            (Binary::Maximum, _) => b.formula(Gradient::WhereGreater, &[b.inputs[index], b.inputs[1 - index], dy])?,
            (Binary::Minimum, _) => b.formula(Gradient::WhereLess, &[b.inputs[index], b.inputs[1 - index], dy])?,
            (Binary::Fmax, 0) => b.formula(Gradient::FmaxX, &[x, y, dy])?,
            (Binary::Fmax, _) => b.formula(Gradient::FmaxY, &[x, y, dy])?,
            (Binary::Fmin, 0) => b.formula(Gradient::FminX, &[x, y, dy])?,
            (Binary::Fmin, _) => b.formula(Gradient::FminY, &[x, y, dy])?,
            (Binary::Power, 0) => b.formula(Gradient::PowerX, &[x, y, dy])?,
            (Binary::Power, _) => b.formula(Gradient::PowerY, &[x, y, dy])?,
            (Binary::Atan2, 0) => b.formula(Gradient::Atan2X, &[x, y, dy])?,
            (Binary::Atan2, _) => b.formula(Gradient::Atan2Y, &[x, y, dy])?,
            (Binary::Heaviside, 1) => b.formula(Gradient::Heaviside, &[x, dy])?,
            (Binary::Where, 1) => b.formula(Gradient::Chosen, &[x, dy])?,
            (Binary::Where, 2) => b.formula(Gradient::NotChosen, &[x, dy])?,
            (Binary::Lerp, 0) => b.formula(Gradient::LerpX, &[b.inputs[2], dy])?,
            (Binary::Lerp, 1) => b.multiply(dy, b.inputs[2])?,
            (Binary::Lerp, _) => {
                let difference = b.subtract(y, x)?;
                b.multiply(dy, difference)?
            }
            (Binary::ProductsSum, _) => b.multiply(dy, b.inputs[3 - index])?,
            (Binary::ProductsDifference, _) => {
                let product = b.multiply(dy, b.inputs[(index + 2) % 4])?;
                if index.is_multiple_of(2) { product } else { b.unary(Unary::Negate, product)? }
            }
            (Binary::Heaviside | Binary::Where, 0) | (Binary::FloorDivide, _) => return Ok(None),
            _ => return Err(self.without_gradient()),
        };
        Ok(Some(gradient))
    }
}

/// The gradient of an operator of one tensor.
fn one(b: &mut Backward<'_>, rule: impl FnOnce(&mut Backward<'_>, Node) -> Result<Node>) -> Result<Gradients> {
    let dy = b.dy()?;
    Ok(vec![Some(rule(b, dy)?)])
}
