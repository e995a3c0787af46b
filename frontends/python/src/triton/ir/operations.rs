//! Operations, functions and modules, as Python holds them.

use super::handles::{PyAttribute, PyBlock, PyRegion, PyType, PyValue};
use super::{Shared, locked, refused};
use openmps_triton_ir::build::function_type;
use openmps_triton_ir::print::{Origins, argument_attribute, print};
use openmps_triton_ir::{Attribute, Context, OperationId, Refused, Type, verify};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyOperation>()?;
    module.add_class::<PyFunction>()?;
    module.add_class::<PyModuleOperation>()?;
    for name in ["operation", "ForOp", "IfOp", "WhileOp", "YieldOp", "ConditionOp"] {
        module.add(name, module.getattr("OpState")?)?;
    }
    Ok(())
}

/// An operation.
#[pyclass(name = "OpState", module = "triton._C.libtriton.ir", frozen, subclass)]
pub struct PyOperation(pub Shared, pub OperationId);

impl PyOperation {
    /// Where the operation is, and its number.
    pub fn parts(&self) -> (&Shared, OperationId) {
        (&self.0, self.1)
    }

    fn block(&self, region: usize, index: usize) -> PyResult<PyBlock> {
        let context = locked(&self.0);
        let region = context.operation(self.1).regions.get(region).copied();
        let block = region.and_then(|region| context.region(region).blocks.get(index).copied());
        let missing = || PyIndexError::new_err(format!("{} has no such block", context.operation(self.1).name));
        Ok(PyBlock(self.0.clone(), block.ok_or_else(missing)?))
    }
}

#[pymethods]
impl PyOperation {
    fn get_name(&self) -> &'static str {
        locked(&self.0).operation(self.1).name
    }

    fn get_num_results(&self) -> usize {
        locked(&self.0).operation(self.1).results.len()
    }

    fn get_result(&self, index: usize) -> PyResult<PyValue> {
        let context = locked(&self.0);
        let operation = context.operation(self.1);
        let missing = || PyIndexError::new_err(format!("{} has no result {index}", operation.name));
        Ok(PyValue::new(&self.0, *operation.results.get(index).ok_or_else(missing)?))
    }

    fn get_num_operands(&self) -> usize {
        locked(&self.0).operation(self.1).operands.len()
    }

    fn get_operand(&self, index: usize) -> PyResult<PyValue> {
        let context = locked(&self.0);
        let operation = context.operation(self.1);
        let missing = || PyIndexError::new_err(format!("{} has no operand {index}", operation.name));
        Ok(PyValue::new(&self.0, *operation.operands.get(index).ok_or_else(missing)?))
    }

    fn append_operand(&self, value: &PyValue) -> PyResult<()> {
        locked(&self.0).operation_mut(self.1).operands.push(value.id()?);
        Ok(())
    }

    fn get_num_regions(&self) -> usize {
        locked(&self.0).operation(self.1).regions.len()
    }

    fn get_region(&self, index: usize) -> PyResult<PyRegion> {
        let context = locked(&self.0);
        let operation = context.operation(self.1);
        let missing = || PyIndexError::new_err(format!("{} has no region {index}", operation.name));
        Ok(PyRegion(self.0.clone(), *operation.regions.get(index).ok_or_else(missing)?))
    }

    fn get_block(&self) -> Option<PyBlock> {
        locked(&self.0).operation(self.1).block.map(|block| PyBlock(self.0.clone(), block))
    }

    fn get_body(&self, region: usize) -> PyResult<PyBlock> {
        self.block(region, 0)
    }

    fn get_then_block(&self) -> PyResult<PyBlock> {
        self.block(0, 0)
    }

    fn get_else_block(&self) -> PyResult<PyBlock> {
        self.block(1, 0)
    }

    fn get_induction_var(&self) -> PyResult<PyValue> {
        let body = self.block(0, 0)?;
        let induction = locked(&self.0).block(body.1).arguments[0];
        Ok(PyValue::new(&self.0, induction))
    }

    fn get_before(&self) -> PyResult<PyRegion> {
        self.get_region(0)
    }

    fn get_after(&self) -> PyResult<PyRegion> {
        self.get_region(1)
    }

    fn get_operation(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn set_attr(&self, name: &str, value: &PyAttribute) {
        locked(&self.0).operation_mut(self.1).set(name, value.0.clone());
    }

    fn get_int_attr(&self, name: &str) -> Option<i64> {
        locked(&self.0).operation(self.1).integer(name)
    }

    fn get_bool_attr(&self, name: &str) -> Option<bool> {
        match locked(&self.0).operation(self.1).attribute(name) {
            Some(Attribute::Truth(truth)) => Some(*truth),
            _ => None,
        }
    }

    fn get_str_attr(&self, name: &str) -> Option<String> {
        match locked(&self.0).operation(self.1).attribute(name) {
            Some(Attribute::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn get_flat_symbol_ref_attr(&self, name: &str) -> Option<String> {
        locked(&self.0).operation(self.1).symbol(name).map(str::to_owned)
    }

    /// Whether the operation is one; what is wrong goes to standard error, as MLIR's diagnostics do.
    fn verify(&self) -> bool {
        let context = locked(&self.0);
        let is_module = context.operation(self.1).name == "builtin.module";
        let result = if is_module { verify(&context, self.1) } else { Ok(()) };
        result.inspect_err(|problem| eprintln!("error: {problem}")).is_ok()
    }

    fn __str__(&self) -> String {
        print(&locked(&self.0), self.1, Origins::Written)
    }

    fn str_nodebug(&self) -> String {
        print(&locked(&self.0), self.1, Origins::LeftOut)
    }

    fn dump(&self) {
        eprintln!("{}", self.__str__());
    }
}

/// A function of a module.
#[pyclass(name = "function", module = "triton._C.libtriton.ir", frozen, extends = PyOperation)]
pub struct PyFunction;

impl PyFunction {
    pub fn new(shared: &Shared, id: OperationId) -> PyClassInitializer<PyFunction> {
        PyClassInitializer::from(PyOperation(shared.clone(), id)).add_subclass(PyFunction)
    }
}

#[pymethods]
impl PyFunction {
    fn add_entry_block(this: PyRef<'_, Self>) -> PyBlock {
        let (shared, id) = this.as_super().parts();
        let mut context = locked(shared);
        let parameters = function_type(&context, id).0.to_vec();
        let region = context.operation(id).regions[0];
        PyBlock(shared.clone(), context.append_block(region, &parameters))
    }

    fn args(this: PyRef<'_, Self>, index: usize) -> PyResult<PyValue> {
        this.as_super().block(0, 0)?.arg(index)
    }

    fn get_num_args(this: PyRef<'_, Self>) -> usize {
        let (shared, id) = this.as_super().parts();
        function_type(&locked(shared), id).0.len()
    }

    fn set_arg_attr(this: PyRef<'_, Self>, index: usize, name: &str, value: i64) {
        let (shared, id) = this.as_super().parts();
        locked(shared).operation_mut(id).set(&argument_attribute(index, name), Attribute::Integer(value));
    }

    fn reset_type(this: PyRef<'_, Self>, ty: PyType) {
        let (shared, id) = this.as_super().parts();
        locked(shared).operation_mut(id).set("function_type", Attribute::Type(ty.0));
    }

    #[getter(r#type)]
    fn ty(this: PyRef<'_, Self>) -> PyType {
        let (shared, id) = this.as_super().parts();
        let context = locked(shared);
        let (parameters, results) = function_type(&context, id);
        PyType(Type::Function(parameters.to_vec(), results.to_vec()))
    }
}

/// A module. Python keeps its context at it.
#[pyclass(name = "module", module = "triton._C.libtriton.ir", frozen, dict, extends = PyOperation)]
pub struct PyModuleOperation;

impl PyModuleOperation {
    pub fn new(shared: &Shared, id: OperationId) -> PyClassInitializer<PyModuleOperation> {
        PyClassInitializer::from(PyOperation(shared.clone(), id)).add_subclass(PyModuleOperation)
    }
}

/// The name of the function that is the kernel.
fn entry(context: &Context, module: OperationId) -> Option<String> {
    let is_public = |&&function: &&OperationId| {
        context.operation(function).attribute("sym_visibility") == Some(&Attribute::Word("public"))
    };
    let function = context.functions(module).iter().find(is_public)?;
    context.operation(*function).symbol("sym_name").map(str::to_owned)
}

#[pymethods]
impl PyModuleOperation {
    fn push_back(this: PyRef<'_, Self>, function: PyRef<'_, PyFunction>) {
        let ((shared, id), function) = (this.as_super().parts(), function.as_super().1);
        let mut context = locked(shared);
        if context.functions(id).contains(&function) {
            return;
        }
        let region = context.operation(id).regions[0];
        let body = context.region(region).blocks[0];
        context.append(function, body);
    }

    fn has_function(this: PyRef<'_, Self>, name: &str) -> bool {
        let (shared, id) = this.as_super().parts();
        locked(shared).function(id, name).is_some()
    }

    fn get_function(this: PyRef<'_, Self>, py: Python<'_>, name: &str) -> PyResult<Py<PyFunction>> {
        let (shared, id) = this.as_super().parts();
        let function = locked(shared).function(id, name);
        let function = function.ok_or_else(|| refused(Refused(format!("no function @{name} in the module"))))?;
        Py::new(py, PyFunction::new(shared, function))
    }

    fn get_entry_func_name(this: PyRef<'_, Self>) -> String {
        let (shared, id) = this.as_super().parts();
        entry(&locked(shared), id).unwrap_or_default()
    }

    fn get_tensordesc_metadata(this: PyRef<'_, Self>) -> Vec<i64> {
        let _ = this;
        Vec::new()
    }

    fn str(this: PyRef<'_, Self>) -> String {
        this.as_super().__str__()
    }
}
