//! Builder methods for branches, loops, and operations with blocks of their own.

use super::builder::{PyBuilder, ids, types};
use super::handles::{PyBlock, PyType, PyValue};
use super::operations::PyOperation;
use super::{locked, refused};
use openmps_triton_ir::Attribute;
use openmps_triton_ir::attribute::named;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

#[pymethods]
impl PyBuilder {
    fn create_branch(&self, to: &PyBlock, arguments: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        let branch = self.any("cf.br", &ids(&arguments)?, &[], Vec::new(), 0);
        locked(&self.shared).operation_mut(branch.1).successors = vec![to.1];
        Ok(branch)
    }

    fn create_cond_branch(&self, condition: &PyValue, yes: &PyBlock, no: &PyBlock) -> PyResult<PyOperation> {
        let branch = self.any("cf.cond_br", &[condition.id()?], &[], Vec::new(), 0);
        locked(&self.shared).operation_mut(branch.1).successors = vec![yes.1, no.1];
        Ok(branch)
    }

    fn create_for_op(
        &self,
        lower: &PyValue,
        upper: &PyValue,
        step: &PyValue,
        initial: Vec<PyRef<'_, PyValue>>,
    ) -> PyResult<PyOperation> {
        let (bounds, initial) = ([lower.id()?, upper.id()?, step.id()?], ids(&initial)?);
        Ok(self.operation(self.with(|builder, context| builder.for_loop(context, bounds, &initial))))
    }

    fn create_if_op(&self, results: Vec<PyType>, condition: &PyValue, has_else: bool) -> PyResult<PyOperation> {
        let (results, condition) = (types(results), condition.id()?);
        Ok(self.operation(self.with(|builder, context| builder.if_else(context, &results, condition, has_else))))
    }

    fn create_while_op(&self, results: Vec<PyType>, initial: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        Ok(self.any("scf.while", &ids(&initial)?, &types(results), Vec::new(), 2))
    }

    fn create_condition_op(&self, condition: &PyValue, values: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        let operands = [vec![condition.id()?], ids(&values)?].concat();
        Ok(self.any("scf.condition", &operands, &[], Vec::new(), 0))
    }

    fn create_yield_op(&self, values: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        Ok(self.any("scf.yield", &ids(&values)?, &[], Vec::new(), 0))
    }

    fn create_reduce(&self, operands: Vec<PyRef<'_, PyValue>>, axis: usize) -> PyResult<PyOperation> {
        let operands = ids(&operands)?;
        let reduce = self.with(|builder, context| builder.reduce(context, &operands, axis)).map_err(refused)?;
        Ok(self.operation(reduce))
    }

    fn create_scan(&self, operands: Vec<PyRef<'_, PyValue>>, axis: usize, reverse: bool) -> PyResult<PyOperation> {
        let operands = ids(&operands)?;
        Ok(self.operation(self.with(|builder, context| builder.scan(context, &operands, axis, reverse))))
    }

    fn create_map_elementwise(
        &self,
        operands: Vec<PyRef<'_, PyValue>>,
        results: Vec<PyType>,
        pack: i64,
    ) -> PyResult<PyOperation> {
        let attributes = vec![named("pack", Attribute::Integer(pack))];
        Ok(self.any("tt.map_elementwise", &ids(&operands)?, &types(results), attributes, 1))
    }

    #[pyo3(signature = (*values))]
    fn create_reduce_ret(&self, values: &Bound<'_, PyTuple>) -> PyResult<PyOperation> {
        Ok(self.any("tt.reduce.return", &ids(&values.extract::<Vec<_>>()?)?, &[], Vec::new(), 0))
    }

    #[pyo3(signature = (*values))]
    fn create_scan_ret(&self, values: &Bound<'_, PyTuple>) -> PyResult<PyOperation> {
        Ok(self.any("tt.scan.return", &ids(&values.extract::<Vec<_>>()?)?, &[], Vec::new(), 0))
    }

    fn create_map_elementwise_ret(&self, values: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        Ok(self.any("tt.map_elementwise.return", &ids(&values)?, &[], Vec::new(), 0))
    }
}
