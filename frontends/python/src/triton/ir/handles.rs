//! Types, attributes, locations, values, blocks and regions, as Python holds them.

use super::{Shared, locked, refused};
use openmps_triton_ir::context::Definition;
use openmps_triton_ir::{self as ir, Attribute, BlockId, Location, Refused, RegionId, ValueId};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyContext>()?;
    module.add_class::<PyType>()?;
    module.add_class::<PyAttribute>()?;
    module.add_class::<PyLocation>()?;
    module.add_class::<PyValue>()?;
    module.add_class::<PyBlock>()?;
    module.add_class::<PyRegion>()?;
    // Python's files name these in annotations, and ask whether something is one of them.
    module.add("block_argument", module.getattr("value")?)?;
    module.add("op_result", module.getattr("value")?)?;
    for name in ["pointer_type", "block_type", "function_type"] {
        module.add(name, module.getattr("type")?)?;
    }
    for name in ["integer_attr", "bool_attr", "unit_attr"] {
        module.add(name, module.getattr("attribute")?)?;
    }
    module.add_function(wrap_pyfunction!(load_dialects, module)?)?;
    module.add_function(wrap_pyfunction!(make_attr, module)?)
}

/// Everything that one compilation makes.
#[pyclass(name = "context", module = "triton._C.libtriton.ir", frozen)]
pub struct PyContext(pub Shared);

#[pymethods]
impl PyContext {
    #[new]
    fn new() -> PyContext {
        PyContext(Arc::default())
    }
}

/// All operations are there from the beginning.
#[pyfunction]
fn load_dialects(_context: &PyContext) {}

/// Integers as a hint such as `tt.divisibility`.
#[pyfunction]
fn make_attr(values: Vec<i64>, _context: &PyContext) -> PyAttribute {
    PyAttribute(Attribute::Dense(values))
}

/// The type of a value.
#[pyclass(name = "type", module = "triton._C.libtriton.ir", eq, hash, frozen, from_py_object)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PyType(pub ir::Type);

#[pymethods]
impl PyType {
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn is_integer(&self, bits: u32) -> bool {
        self.0 == ir::Type::Integer(bits)
    }

    fn is_fp16(&self) -> bool {
        self.0 == ir::Type::Float(ir::Float::F16)
    }

    fn param_types(&self) -> Vec<PyType> {
        match &self.0 {
            ir::Type::Function(parameters, _) => parameters.iter().cloned().map(PyType).collect(),
            _ => Vec::new(),
        }
    }
}

/// What an operation says besides its operands.
#[pyclass(name = "attribute", module = "triton._C.libtriton.ir", frozen, from_py_object)]
#[derive(Clone)]
pub struct PyAttribute(pub Attribute);

/// Where something comes from.
#[pyclass(name = "location", module = "triton._C.libtriton.ir", frozen)]
pub struct PyLocation(Mutex<Location>);

impl PyLocation {
    pub fn new(location: Location) -> PyLocation {
        PyLocation(Mutex::new(location))
    }

    pub fn get(&self) -> Location {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[pymethods]
impl PyLocation {
    fn get_name(&self) -> Option<String> {
        self.get().name().map(str::to_owned)
    }

    fn set_name(&self, name: &str) {
        let mut location = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *location = location.named(name);
    }

    fn __str__(&self) -> String {
        format!("{:?}", self.get())
    }
}

/// A value; one made by Python itself is none.
#[pyclass(name = "value", module = "triton._C.libtriton.ir", frozen)]
pub struct PyValue(pub Option<(Shared, ValueId)>);

impl PyValue {
    pub fn new(shared: &Shared, id: ValueId) -> PyValue {
        PyValue(Some((shared.clone(), id)))
    }

    /// Where the value is, and its number.
    pub fn parts(&self) -> PyResult<(&Shared, ValueId)> {
        let (shared, id) = self.0.as_ref().ok_or_else(|| refused(Refused("a value that is none".to_owned())))?;
        Ok((shared, *id))
    }

    pub fn id(&self) -> PyResult<ValueId> {
        self.parts().map(|(_, id)| id)
    }
}

#[pymethods]
impl PyValue {
    #[new]
    fn none() -> PyValue {
        PyValue(None)
    }

    fn get_type(&self) -> PyResult<PyType> {
        let (shared, id) = self.parts()?;
        Ok(PyType(locked(shared).type_of(id).clone()))
    }

    fn get_shape(&self) -> PyResult<Option<Vec<i64>>> {
        let (shared, id) = self.parts()?;
        let context = locked(shared);
        let ty = context.type_of(id);
        Ok(matches!(ty, ir::Type::Tensor(..)).then(|| ty.shape().to_vec()))
    }

    fn get_context(&self) -> PyResult<PyContext> {
        Ok(PyContext(self.parts()?.0.clone()))
    }

    #[pyo3(name = "id")]
    fn number(&self) -> PyResult<usize> {
        Ok(self.id()?.index())
    }

    fn get_loc(&self) -> PyResult<PyLocation> {
        let (shared, id) = self.parts()?;
        Ok(PyLocation::new(locked(shared).value(id).location.clone()))
    }

    fn set_loc(&self, location: &PyLocation) -> PyResult<()> {
        let (shared, id) = self.parts()?;
        let mut context = locked(shared);
        let location = location.get();
        if let Some(operation) = context.defining(id) {
            context.operation_mut(operation).location = location.clone();
        }
        context.value_mut(id).location = location;
        Ok(())
    }

    /// A hint on the operation that defines the value, or on the function's parameter that it is.
    fn set_attr(&self, name: &str, value: &PyAttribute) -> PyResult<()> {
        let (shared, id) = self.parts()?;
        let mut context = locked(shared);
        let (operation, name) = match context.value(id).definition {
            Definition::Result(operation, _) => (Some(operation), name.to_owned()),
            Definition::Argument(block, index) => {
                let owner = context.block(block).region.map(|region| context.region(region).owner);
                (owner, ir::print::argument_attribute(index, name))
            }
        };
        if let Some(operation) = operation {
            context.operation_mut(operation).set(&name, value.0.clone());
        }
        Ok(())
    }

    fn replace_all_uses_with(&self, other: &PyValue) -> PyResult<()> {
        let (shared, id) = self.parts()?;
        locked(shared).replace_uses(id, other.id()?);
        Ok(())
    }
}

/// A list of operations.
#[pyclass(name = "block", module = "triton._C.libtriton.ir", frozen)]
pub struct PyBlock(pub Shared, pub BlockId);

#[pymethods]
impl PyBlock {
    pub fn arg(&self, index: usize) -> PyResult<PyValue> {
        let context = locked(&self.0);
        let argument = context.block(self.1).arguments.get(index).copied();
        let argument = argument.ok_or_else(|| refused(Refused(format!("a block without argument {index}"))))?;
        Ok(PyValue::new(&self.0, argument))
    }

    fn get_argument(&self, index: usize) -> PyResult<PyValue> {
        self.arg(index)
    }

    fn get_num_arguments(&self) -> usize {
        locked(&self.0).block(self.1).arguments.len()
    }

    fn add_argument(&self, ty: PyType) {
        locked(&self.0).add_argument(self.1, ty.0, Location::Unknown);
    }

    fn add_argument_at(&self, ty: PyType, location: &PyLocation) {
        locked(&self.0).add_argument(self.1, ty.0, location.get());
    }

    fn get_parent(&self) -> Option<PyRegion> {
        locked(&self.0).block(self.1).region.map(|region| PyRegion(self.0.clone(), region))
    }

    fn has_terminator(&self) -> bool {
        let context = locked(&self.0);
        context.block(self.1).operations.last().is_some_and(|&last| context.operation(last).is_terminator())
    }

    fn has_return(&self) -> bool {
        let context = locked(&self.0);
        context.block(self.1).operations.iter().any(|&operation| context.operation(operation).name == "tt.return")
    }

    fn id(&self) -> usize {
        self.1.index()
    }

    fn erase(&self) {
        locked(&self.0).remove_block(self.1);
    }

    /// Moves its operations to the beginning of another block, and goes.
    fn merge_block_before(&self, other: &PyBlock) {
        let mut context = locked(&self.0);
        let moved = std::mem::take(&mut context.block_mut(self.1).operations);
        for (index, operation) in moved.into_iter().enumerate() {
            context.place(operation, other.1, index);
        }
        context.remove_block(self.1);
    }
}

/// A list of blocks.
#[pyclass(name = "region", module = "triton._C.libtriton.ir", frozen)]
pub struct PyRegion(pub Shared, pub RegionId);

#[pymethods]
impl PyRegion {
    fn push_back(&self, block: &PyBlock) {
        let mut context = locked(&self.0);
        context.remove_block(block.1);
        context.place_block(self.1, block.1);
    }

    fn size(&self) -> usize {
        locked(&self.0).region(self.1).blocks.len()
    }

    fn empty(&self) -> bool {
        self.size() == 0
    }

    fn id(&self) -> usize {
        self.1.index()
    }

    fn get_parent_region(&self) -> Option<PyRegion> {
        let context = locked(&self.0);
        let block = context.operation(context.region(self.1).owner).block?;
        context.block(block).region.map(|region| PyRegion(self.0.clone(), region))
    }
}
