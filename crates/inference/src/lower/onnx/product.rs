//! Products of matrices, and attention where a model has it as one operator.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value};
use crate::program::Operation;
use openmps::operators::operators::elementwise::Binary;

pub(super) const TABLE: Table = &[("MatMul", matmul), ("Gemm", gemm)];

fn matmul(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    Ok(vec![lowering.matmul(&x, &y, [false; 2])?])
}

/// `alpha x y + beta c`
fn gemm(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let (x, y) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let transpose = [operation.flag("transA", false)?, operation.flag("transB", false)?];
    let product = lowering.matmul(&x, &y, transpose)?;
    let product = lowering.scaled(&product, operation.float("alpha", 1.0)?, 0.0)?;
    let Some(c) = lowering.optional(operation, 2)? else { return Ok(vec![product]) };
    let c = lowering.scaled(&c, operation.float("beta", 1.0)?, 0.0)?;
    Ok(vec![lowering.binary(Binary::Add, &product, &c)?])
}
