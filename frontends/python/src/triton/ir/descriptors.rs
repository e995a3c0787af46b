//! Builder methods for descriptors of tensors in memory, foreign functions, and what is for the user's sake: assertions, printing.

use super::builder::{PyBuilder, ids, sign, types, word};
use super::handles::{PyAttribute, PyType, PyValue};
use super::memory::written_policy;
use super::operations::PyOperation;
use super::words::{DescriptorReduction, PaddingOption};
use openmps_triton_ir::attribute::named;
use openmps_triton_ir::{Attribute, Type};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pymethods]
impl PyBuilder {
    fn create_make_tensor_descriptor(
        &self,
        base: &PyValue,
        shape: Vec<PyRef<'_, PyValue>>,
        strides: Vec<PyRef<'_, PyValue>>,
        block_shape: Vec<i64>,
        is_signed: bool,
        padding: PaddingOption,
    ) -> PyResult<PyValue> {
        let base = base.id()?;
        let Type::Pointer(element, _) = self.type_of(base) else {
            return Err(PyValueError::new_err("tt.make_tensor_descriptor: of what is no address"));
        };
        let mut attributes = vec![named("rank", Attribute::Integer(shape.len() as i64))];
        if padding == PaddingOption::PAD_NAN {
            attributes.push(named("padding", Attribute::Integer(padding as i64)));
        }
        let operands = [vec![base], ids(&shape)?, ids(&strides)?].concat();
        let ty = Type::Descriptor(Box::new(Type::shaped(block_shape, *element)), sign(is_signed));
        self.one("tt.make_tensor_descriptor", &operands, ty, attributes)
    }

    fn create_descriptor_load(
        &self,
        descriptor: &PyValue,
        indices: Vec<PyRef<'_, PyValue>>,
        policy: Option<PyAttribute>,
    ) -> PyResult<PyValue> {
        let descriptor = descriptor.id()?;
        let Type::Descriptor(block, _) = self.type_of(descriptor) else {
            return Err(PyValueError::new_err("tt.descriptor_load: of what is no descriptor"));
        };
        let mut attributes = vec![named("rank", Attribute::Integer(indices.len() as i64))];
        attributes.extend(written_policy(policy).map(|policy| named("cachePolicy", policy)));
        self.one("tt.descriptor_load", &[vec![descriptor], ids(&indices)?].concat(), *block, attributes)
    }

    fn create_descriptor_store(
        &self,
        descriptor: &PyValue,
        value: &PyValue,
        indices: Vec<PyRef<'_, PyValue>>,
    ) -> PyResult<()> {
        let attributes = vec![named("rank", Attribute::Integer(indices.len() as i64))];
        let operands = [vec![descriptor.id()?], ids(&indices)?, vec![value.id()?]].concat();
        self.any("tt.descriptor_store", &operands, &[], attributes, 0);
        Ok(())
    }

    fn create_descriptor_reduce(
        &self,
        kind: DescriptorReduction,
        descriptor: &PyValue,
        value: &PyValue,
        indices: Vec<PyRef<'_, PyValue>>,
    ) -> PyResult<()> {
        let attributes = vec![word("kind", kind.word()), named("rank", Attribute::Integer(indices.len() as i64))];
        let operands = [vec![descriptor.id()?], ids(&indices)?, vec![value.id()?]].concat();
        self.any("tt.descriptor_reduce", &operands, &[], attributes, 0);
        Ok(())
    }

    fn create_descriptor_gather(
        &self,
        descriptor: &PyValue,
        rows: &PyValue,
        column: &PyValue,
        ty: PyType,
    ) -> PyResult<PyValue> {
        let operands = [descriptor.id()?, rows.id()?, column.id()?];
        self.one("tt.descriptor_gather", &operands, ty.0, vec![named("rank", Attribute::Integer(2))])
    }

    fn create_descriptor_scatter(
        &self,
        descriptor: &PyValue,
        value: &PyValue,
        rows: &PyValue,
        column: &PyValue,
    ) -> PyResult<()> {
        let operands = [descriptor.id()?, rows.id()?, column.id()?, value.id()?];
        self.any("tt.descriptor_scatter", &operands, &[], vec![named("rank", Attribute::Integer(2))], 0);
        Ok(())
    }

    fn create_extern_elementwise(
        &self,
        library: String,
        path: String,
        symbol: String,
        operands: Vec<PyRef<'_, PyValue>>,
        ty: PyType,
        is_pure: bool,
    ) -> PyResult<PyValue> {
        let attributes = vec![
            named("libname", Attribute::Text(library)),
            named("libpath", Attribute::Text(path)),
            named("pure", Attribute::Truth(is_pure)),
            named("symbol", Attribute::Text(symbol)),
        ];
        self.one("tt.extern_elementwise", &ids(&operands)?, ty.0, attributes)
    }

    fn create_inline_asm(
        &self,
        assembly: String,
        constraints: String,
        operands: Vec<PyRef<'_, PyValue>>,
        results: Vec<PyType>,
        is_pure: bool,
        pack: i64,
    ) -> PyResult<PyOperation> {
        let attributes = vec![
            named("asm_string", Attribute::Text(assembly)),
            named("constraints", Attribute::Text(constraints)),
            named("packed_element", Attribute::Integer(pack)),
            named("pure", Attribute::Truth(is_pure)),
        ];
        Ok(self.any("tt.elementwise_inline_asm", &ids(&operands)?, &types(results), attributes, 0))
    }

    fn create_print(
        &self,
        prefix: String,
        hex: bool,
        operands: Vec<PyRef<'_, PyValue>>,
        is_signed: Vec<i64>,
    ) -> PyResult<()> {
        let attributes = vec![
            named("hex", Attribute::Truth(hex)),
            named("isSigned", Attribute::Array(is_signed)),
            named("prefix", Attribute::Text(prefix)),
        ];
        self.any("tt.print", &ids(&operands)?, &[], attributes, 0);
        Ok(())
    }

    fn create_assert(&self, condition: &PyValue, message: String) -> PyResult<()> {
        self.any("tt.assert", &[condition.id()?], &[], vec![named("message", Attribute::Text(message))], 0);
        Ok(())
    }

    fn create_assume(&self, condition: &PyValue) -> PyResult<()> {
        self.any("llvm.intr.assume", &[condition.id()?], &[], Vec::new(), 0);
        Ok(())
    }

    fn create_barrier(&self) {
        self.any("ttg.barrier", &[], &[], vec![word("addrSpace", "all")], 0);
    }

    fn create_grid_dependency_wait(&self) {
        self.any("tt.grid_dependency_wait", &[], &[], Vec::new(), 0);
    }

    fn create_grid_dependency_launch_dependents(&self) {
        self.any("tt.grid_dependency_launch_dependents", &[], &[], Vec::new(), 0);
    }
}
