//! Products of matrices, and determinants.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value};
use crate::program::Operation;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::linear_algebra::{Algorithm, LinearAlgebra};

pub(super) const TABLE: Table = &[("MatMul", matmul), ("Gemm", gemm), ("Det", determinant)];

fn matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    Ok(vec![lowering.matmul(&x, &y, [false; 2])?])
}

/// `alpha x y + beta c`
fn gemm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    Ok(vec![lowering.product_and_addend(operation)?])
}

/// Of each matrix.
fn determinant(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.one(LinearAlgebra(Algorithm::Determinant), &[x])?])
}

impl Lowering<'_> {
    /// An operation's `alpha x y + beta c`.
    pub(super) fn product_and_addend(&mut self, operation: &Operation) -> Result<Value> {
        let (x, y) = (self.input(operation, 0)?, self.input(operation, 1)?);
        let transpose = [operation.flag("transA", false)?, operation.flag("transB", false)?];
        let product = match transpose {
            [false, true] => self.by_turned(&x, &y)?,
            _ => self.matmul(&x, &y, transpose)?,
        };
        let product = self.scaled(&product, operation.float("alpha", 1.0)?, 0.0)?;
        let Some(c) = self.optional(operation, 2)? else { return Ok(product) };
        let c = self.scaled(&c, operation.float("beta", 1.0)?, 0.0)?;
        self.binary(Binary::Add, &product, &c)
    }
}
