//! Builder methods for what changes shapes and types, and for what begins a kernel: program numbers, ranges.

use super::builder::{PyBuilder, word};
use super::handles::{PyType, PyValue};
use super::refused;
use super::words::{PropagateNan, RoundingMode};
use pyo3::prelude::*;

#[pymethods]
impl PyBuilder {
    fn create_get_program_id(&self, axis: i64) -> PyResult<PyValue> {
        let value = self.with(|builder, context| builder.program(context, "tt.get_program_id", axis));
        Ok(self.handle(value.map_err(refused)?))
    }

    fn create_get_num_programs(&self, axis: i64) -> PyResult<PyValue> {
        let value = self.with(|builder, context| builder.program(context, "tt.get_num_programs", axis));
        Ok(self.handle(value.map_err(refused)?))
    }

    fn create_make_range(&self, ty: PyType, start: i64, end: i64) -> PyResult<PyValue> {
        Ok(self.handle(self.with(|builder, context| builder.range(context, ty.0, start, end))))
    }

    fn create_int_cast(&self, x: &PyValue, to: PyType, is_signed: bool) -> PyResult<PyValue> {
        let x = x.id()?;
        Ok(self.handle(self.with(|builder, context| builder.convert_integer(context, x, to.0, is_signed))))
    }

    #[allow(non_snake_case)]
    #[pyo3(signature = (src, dstType, roundingMode = None))]
    fn create_fp_to_fp(&self, src: &PyValue, dstType: PyType, roundingMode: Option<RoundingMode>) -> PyResult<PyValue> {
        let (x, rounding) = (src.id()?, roundingMode.map(RoundingMode::word));
        Ok(self.handle(self.with(|builder, context| builder.convert_float(context, x, dstType.0, rounding))))
    }

    fn create_clampf(&self, x: &PyValue, low: &PyValue, high: &PyValue, nan: PropagateNan) -> PyResult<PyValue> {
        let operands = [x.id()?, low.id()?, high.id()?];
        self.one("tt.clampf", &operands, self.type_of(operands[0]), vec![word("propagateNan", nan.word())])
    }

    fn create_select(&self, condition: &PyValue, x: &PyValue, y: &PyValue) -> PyResult<PyValue> {
        let operands = [condition.id()?, x.id()?, y.id()?];
        self.one("arith.select", &operands, self.type_of(operands[1]), Vec::new())
    }

    fn create_splat(&self, ty: PyType, x: &PyValue) -> PyResult<PyValue> {
        let x = x.id()?;
        Ok(self.handle(self.with(|builder, context| builder.splat(context, x, ty.0))))
    }

    fn create_unsplat(&self, x: &PyValue) -> PyResult<PyValue> {
        let x = x.id()?;
        Ok(self.handle(self.with(|builder, context| builder.unsplat(context, x))))
    }

    fn create_broadcast(&self, x: &PyValue, shape: Vec<i64>) -> PyResult<PyValue> {
        let x = x.id()?;
        Ok(self.handle(self.with(|builder, context| builder.broadcast(context, x, shape))))
    }

    fn create_expand_dims(&self, x: &PyValue, axis: usize) -> PyResult<PyValue> {
        let x = x.id()?;
        let value = self.with(|builder, context| builder.expand_dims(context, x, axis)).map_err(refused)?;
        Ok(self.handle(value))
    }

    fn create_reshape(&self, x: &PyValue, shape: Vec<i64>, any_order: bool) -> PyResult<PyValue> {
        let x = x.id()?;
        let value = self.with(|builder, context| builder.reshape(context, x, shape, any_order)).map_err(refused)?;
        Ok(self.handle(value))
    }

    fn create_trans(&self, x: &PyValue, order: Vec<i64>) -> PyResult<PyValue> {
        let x = x.id()?;
        let value = self.with(|builder, context| builder.transpose(context, x, &order)).map_err(refused)?;
        Ok(self.handle(value))
    }

    fn create_join(&self, x: &PyValue, y: &PyValue) -> PyResult<PyValue> {
        let (x, y) = (x.id()?, y.id()?);
        Ok(self.handle(self.with(|builder, context| builder.join(context, x, y))))
    }

    fn create_split(&self, x: &PyValue) -> PyResult<Vec<PyValue>> {
        let x = x.id()?;
        let halves = self.with(|builder, context| builder.split(context, x)).map_err(refused)?;
        Ok(halves.into_iter().map(|half| self.handle(half)).collect())
    }

    fn create_cat(&self, x: &PyValue, y: &PyValue) -> PyResult<PyValue> {
        let (x, y) = (x.id()?, y.id()?);
        let value = self.with(|builder, context| builder.concatenate(context, x, y)).map_err(refused)?;
        Ok(self.handle(value))
    }

    fn create_gather(&self, x: &PyValue, indices: &PyValue, axis: usize) -> PyResult<PyValue> {
        let (x, indices) = (x.id()?, indices.id()?);
        Ok(self.handle(self.with(|builder, context| builder.gather(context, x, indices, axis))))
    }

    #[allow(non_snake_case)]
    #[pyo3(signature = (operand, numBins, mask = None))]
    fn create_histogram(&self, operand: &PyValue, numBins: i64, mask: Option<&PyValue>) -> PyResult<PyValue> {
        let (x, mask) = (operand.id()?, mask.map(PyValue::id).transpose()?);
        Ok(self.handle(self.with(|builder, context| builder.histogram(context, x, numBins, mask))))
    }
}
