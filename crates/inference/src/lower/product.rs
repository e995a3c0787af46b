//! Products of matrices, and attention where a program has it as one operation.

use super::{Lowering, Table, Value, size_of, wrong};
use crate::error::Result;
use crate::program::Operation;
use openmps::operators::operators::attention::Attention;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::matmul::Matmul;

pub(super) const TABLE: Table = &[
    ("matmul", matmul),
    ("legacy_matmul", legacy_matmul),
    ("legacy_mul", legacy_mul),
    ("bmm", bmm),
    ("mv", bmm),
    ("dot", dot),
    ("addmm", addmm),
    ("flash_attn", flash_attention),
];

/// From so many rows of the left matrix on a weight is better turned, once where it is constant, than read as it lies: 32 x 56 by 56 x 336 took 42 us as it lies
/// and 14 turned (Zen 4, one thread).
const WORTH_TURNING: usize = 6;

impl Lowering<'_> {
    /// `x weight^T`.
    pub(super) fn by_turned(&mut self, x: &Value, weight: &Value) -> Result<Value> {
        let (shape, of_weight) = (self.shape(x)?, self.shape(weight)?);
        let rows: usize = shape.iter().rev().skip(1).product();
        if of_weight.len() != 2 || rows < WORTH_TURNING {
            return self.matmul(x, weight, [false, true]);
        }
        let turned = self.transpose(weight, &[1, 0])?;
        self.matmul(x, &turned, [false; 2])
    }

    /// As NumPy's: vectors are rows on the left and columns on the right.
    pub(super) fn matmul(&mut self, x: &Value, y: &Value, transpose: [bool; 2]) -> Result<Value> {
        let (mut x, mut y) = (x.clone(), y.clone());
        let (left, right) = (self.shape(&x)?, self.shape(&y)?);
        let [mut transpose_left, mut transpose_right] = transpose;
        if let [size] = left[..] {
            (x, transpose_left) = (self.reshape(&x, &[1, size])?, false);
        }
        if let [size] = right[..] {
            (y, transpose_right) = (self.reshape(&y, &[size, 1])?, false);
        }
        let product = self.one(Matmul { transpose_left, transpose_right }, &[x, y])?;
        let mut shape = self.shape(&product)?;
        let rank = shape.len();
        if right.len() == 1 {
            shape.remove(rank - 1);
        }
        if left.len() == 1 {
            shape.remove(rank - 2);
        }
        if shape.len() == rank { Ok(product) } else { self.reshape(&product, &shape) }
    }
}

fn both(operation: &Operation) -> Result<[bool; 2]> {
    Ok([operation.flag("transpose_x", false)?, operation.flag("transpose_y", false)?])
}

fn matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    Ok(vec![lowering.matmul(&x, &y, both(operation)?)?])
}

/// With a factor.
fn legacy_matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let product = matmul(lowering, operation)?.remove(0);
    Ok(vec![lowering.scaled(&product, operation.float("alpha", 1.0)?, 0.0)?])
}

/// Matrices made of the first and the other dimensions.
fn legacy_mul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let (left, right) = (lowering.shape(&x)?, lowering.shape(&y)?);
    let rows = size_of(operation, operation.integer("x_num_col_dims", 1)?)?.min(left.len());
    let depth = size_of(operation, operation.integer("y_num_col_dims", 1)?)?.min(right.len());
    let x = lowering.reshape(&x, &[left[..rows].iter().product(), left[rows..].iter().product()])?;
    let y = lowering.reshape(&y, &[right[..depth].iter().product(), right[depth..].iter().product()])?;
    let product = lowering.matmul(&x, &y, [false; 2])?;
    let shape: Vec<usize> = left[..rows].iter().chain(&right[depth..]).copied().collect();
    Ok(vec![lowering.reshape(&product, &shape)?])
}

fn bmm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    Ok(vec![lowering.matmul(&x, &y, [false; 2])?])
}

fn dot(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    use openmps::operators::operators::reduce::Reduction;
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let product = lowering.binary(Binary::Multiply, &x, &y)?;
    Ok(vec![lowering.reduce(Reduction::Sum, &product, &[-1], false)?])
}

/// `beta * input + alpha * x y`
fn addmm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let [input, x, y] = [0, 1, 2].map(|at| lowering.input(operation, at));
    let product = lowering.matmul(&x?, &y?, [false; 2])?;
    let product = lowering.scaled(&product, operation.float("alpha", 1.0)?, 0.0)?;
    let input = lowering.scaled(&input?, operation.float("beta", 1.0)?, 0.0)?;
    Ok(vec![lowering.binary(Binary::Add, &input, &product)?])
}

/// Queries, keys and values of [batch, length, heads, depth].
fn flash_attention(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    const HEADS_FIRST: [i64; 4] = [0, 2, 1, 3];
    let mut inputs = Vec::new();
    for at in 0..3 {
        let input = lowering.input(operation, at)?;
        inputs.push(lowering.transpose(&input, &HEADS_FIRST)?);
    }
    inputs.extend(lowering.optional(operation, 4)?);
    if operation.float("dropout", 0.0)? != 0.0 && !operation.flag("is_test", false)? {
        return Err(wrong(operation, "it drops elements: save the program in evaluation mode"));
    }
    let attention = Attention { causal: operation.flag("causal", false)?, ..Attention::default() };
    let found = lowering.one(attention, &inputs)?;
    Ok(vec![lowering.transpose(&found, &HEADS_FIRST)?])
}
