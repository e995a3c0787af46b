//! The builder, as Python holds it: places, types, attributes, constants, modules and functions. Methods for operations are in the files beside.

use super::handles::{PyAttribute, PyBlock, PyContext, PyLocation, PyRegion, PyType, PyValue};
use super::operations::{PyFunction, PyModuleOperation, PyOperation};
use super::words::{CacheModifier, EvictionPolicy, ScaledForm};
use super::{Shared, locked, refused};
use openmps_triton_ir::attribute::{Number, named};
use openmps_triton_ir::build::all_ones;
use openmps_triton_ir::{Attribute, Builder, Context, Location, OperationId, Point, Sign, Space, Type, ValueId};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyInsertPoint>()?;
    module.add_class::<PyBuilder>()?;
    module.add_function(wrap_pyfunction!(deduce_scale_factor, module)?)
}

/// Where the next operation goes.
#[pyclass(name = "InsertPoint", module = "triton._C.libtriton.ir", frozen)]
struct PyInsertPoint(Option<Point>);

/// Appends operations; Python keeps its options at it.
#[pyclass(name = "builder", module = "triton._C.libtriton.ir", frozen, dict, subclass)]
pub struct PyBuilder {
    pub shared: Shared,
    builder: Mutex<Builder>,
}

/// Elements behind each other that share a scale.
const SCALED_TOGETHER: [i64; 2] = [32, 16];

/// How many elements of a scaled product's factor share a scale: along the depth, as many as there are elements for each scale.
#[pyfunction]
#[pyo3(signature = (lhs, lhs_scale, lhs_format, lhs_k_pack, rhs, rhs_scale, rhs_format, rhs_k_pack))]
fn deduce_scale_factor(
    lhs: Vec<i64>,
    lhs_scale: Option<Vec<i64>>,
    lhs_format: ScaledForm,
    lhs_k_pack: bool,
    rhs: Vec<i64>,
    rhs_scale: Option<Vec<i64>>,
    rhs_format: ScaledForm,
    rhs_k_pack: bool,
) -> PyResult<i64> {
    let packed = |form: ScaledForm, k_pack: bool| if form == ScaledForm::E2M1 && k_pack { 2 } else { 1 };
    let factor =
        |depth: Option<i64>, scale: Option<Vec<i64>>| Some(depth? / scale?.last().copied().filter(|&n| n > 0)?);
    let left = factor(lhs.last().map(|depth| depth * packed(lhs_format, lhs_k_pack)), lhs_scale);
    let depth = rhs.len().checked_sub(2).and_then(|axis| rhs.get(axis));
    let right = factor(depth.map(|depth| depth * packed(rhs_format, rhs_k_pack)), rhs_scale);
    match (left, right) {
        (Some(left), Some(right)) if left != right => Err(PyValueError::new_err(format!(
            "Operands must have the same scale factor; (lhs: {left} vs rhs: {right})"
        ))),
        (factor, other) => {
            let factor = factor.or(other).unwrap_or(SCALED_TOGETHER[0]);
            if SCALED_TOGETHER.contains(&factor) {
                return Ok(factor);
            }
            Err(PyValueError::new_err(format!("a scale for {factor} elements; there are scales for 32 and for 16")))
        }
    }
}

pub fn word(name: &str, word: &'static str) -> (String, Attribute) {
    named(name, Attribute::Word(word))
}

pub fn ids(values: &[PyRef<'_, PyValue>]) -> PyResult<Vec<ValueId>> {
    values.iter().map(|value| value.id()).collect()
}

pub fn types(types: Vec<PyType>) -> Vec<Type> {
    types.into_iter().map(|ty| ty.0).collect()
}

impl PyBuilder {
    /// Something done with the context, at the current point.
    pub fn with<T>(&self, work: impl FnOnce(&mut Builder, &mut Context) -> T) -> T {
        let mut builder = self.builder.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut builder, &mut locked(&self.shared))
    }

    pub fn handle(&self, id: ValueId) -> PyValue {
        PyValue::new(&self.shared, id)
    }

    pub fn operation(&self, id: OperationId) -> PyOperation {
        PyOperation(self.shared.clone(), id)
    }

    pub fn alike(&self, name: &'static str, operands: &[&PyValue]) -> PyResult<PyValue> {
        let operands: Vec<ValueId> = operands.iter().map(|operand| operand.id()).collect::<PyResult<_>>()?;
        let value = self.with(|builder, context| builder.alike(context, name, &operands)).map_err(refused)?;
        Ok(self.handle(value))
    }

    pub fn compare(&self, name: &'static str, predicate: &'static str, [x, y]: [&PyValue; 2]) -> PyResult<PyValue> {
        let operands = [x.id()?, y.id()?];
        let value = self.with(|builder, context| builder.compare(context, name, predicate, operands));
        Ok(self.handle(value.map_err(refused)?))
    }

    pub fn convert(&self, name: &'static str, x: &PyValue, to: PyType) -> PyResult<PyValue> {
        let x = x.id()?;
        Ok(self.handle(self.with(|builder, context| builder.convert(context, name, x, to.0))))
    }

    /// A number of Python in every element of a type.
    pub fn number(&self, number: &Bound<'_, PyAny>, ty: Type) -> PyResult<PyValue> {
        let number = match ty {
            Type::Float(_) => Number::Float(number.extract()?),
            Type::Integer(1) => Number::Integer(number.is_truthy()?.into()),
            _ => Number::Integer(number.extract::<i64>().or_else(|_| number.extract::<u64>().map(|n| n as i64))?),
        };
        Ok(self.handle(self.with(|builder, context| builder.constant(context, number, ty))))
    }

    /// An operation with one result of a type that is known.
    pub fn one(
        &self,
        name: &'static str,
        operands: &[ValueId],
        ty: Type,
        attributes: Vec<(String, Attribute)>,
    ) -> PyResult<PyValue> {
        Ok(self.handle(self.with(|builder, context| builder.value(context, name, operands, ty, attributes))))
    }

    /// An operation, of which nothing is known here but what it says.
    pub fn any(
        &self,
        name: &'static str,
        operands: &[ValueId],
        results: &[Type],
        attributes: Vec<(String, Attribute)>,
        regions: usize,
    ) -> PyOperation {
        let emit = |b: &mut Builder, c: &mut Context| b.emit(c, name, operands, results, attributes, regions);
        self.operation(self.with(emit))
    }

    pub fn type_of(&self, value: ValueId) -> Type {
        locked(&self.shared).type_of(value).clone()
    }
}

/// Places, types, attributes, constants, modules and functions.
#[pymethods]
impl PyBuilder {
    #[new]
    fn new(context: &PyContext) -> PyBuilder {
        PyBuilder { shared: context.0.clone(), builder: Mutex::default() }
    }

    #[pyo3(signature = (place, line = None, column = None))]
    fn set_loc(&self, place: &Bound<'_, PyAny>, line: Option<u32>, column: Option<u32>) -> PyResult<()> {
        let location = match (line, column) {
            (Some(line), Some(column)) => self.create_loc(place.extract()?, line, column).get(),
            _ => match place.cast::<PyLocation>() {
                Ok(location) => location.get().get(),
                Err(_) => Location::Unknown.named(place.extract()?),
            },
        };
        self.with(|builder, _| builder.location = location);
        Ok(())
    }

    fn get_loc(&self) -> PyLocation {
        PyLocation::new(self.with(|builder, _| builder.location.clone()))
    }

    fn create_loc(&self, file: &str, line: u32, column: u32) -> PyLocation {
        PyLocation::new(Location::Place { file: file.into(), line, column })
    }

    #[pyo3(signature = (name, child = None))]
    fn create_name_loc(&self, name: &str, child: Option<&PyLocation>) -> PyLocation {
        PyLocation::new(child.map_or(Location::Unknown, PyLocation::get).named(name))
    }

    fn get_insertion_block(&self) -> Option<PyBlock> {
        let point = self.with(|builder, _| builder.point)?;
        Some(PyBlock(self.shared.clone(), point.block))
    }

    fn get_insertion_point(&self) -> PyInsertPoint {
        PyInsertPoint(self.with(|builder, _| builder.point))
    }

    fn restore_insertion_point(&self, point: &PyInsertPoint) {
        self.with(|builder, _| builder.point = point.0);
    }

    fn set_insertion_point_to_start(&self, block: &PyBlock) {
        self.with(|builder, context| builder.at_start(context, block.1));
    }

    fn set_insertion_point_to_end(&self, block: &PyBlock) {
        self.with(|builder, _| builder.at_end(block.1));
    }

    fn set_insertion_point_after(&self, operation: &PyOperation) {
        self.with(|builder, context| {
            let Some(block) = context.operation(operation.1).block else { return };
            let operations = &context.block(block).operations;
            let index = operations.iter().position(|&other| other == operation.1);
            let before = index.and_then(|index| operations.get(index + 1)).copied();
            builder.point = Some(Point { block, before });
        });
    }

    /// A block behind those of the current region, and the next operation's.
    fn create_block(&self) -> PyResult<PyBlock> {
        self.with(|builder, context| {
            let region = builder.point.and_then(|point| context.block(point.block).region);
            let region = region.ok_or_else(|| PyRuntimeError::new_err("create_block: outside of a function"))?;
            let block = context.append_block(region, &[]);
            builder.at_end(block);
            Ok(PyBlock(self.shared.clone(), block))
        })
    }

    fn create_block_with_parent(&self, region: &PyRegion, arguments: Vec<PyType>) -> PyBlock {
        self.with(|builder, context| {
            let block = context.append_block(region.1, &types(arguments));
            builder.at_end(block);
            PyBlock(self.shared.clone(), block)
        })
    }

    fn new_block(&self) -> PyBlock {
        PyBlock(self.shared.clone(), locked(&self.shared).new_block())
    }

    fn get_ptr_ty(&self, target: PyType, space: &str) -> PyResult<PyType> {
        let space = match space {
            "global" => Space::Global,
            "constant" => Space::Constant,
            other => return Err(PyValueError::new_err(format!("invalid pointer address space '{other}'"))),
        };
        Ok(PyType(Type::Pointer(Box::new(target.0), space)))
    }

    fn get_block_ty(&self, element: PyType, shape: Vec<i64>) -> PyType {
        PyType(Type::Tensor(shape, Box::new(element.0)))
    }

    fn get_function_ty(&self, parameters: Vec<PyType>, results: Vec<PyType>) -> PyType {
        PyType(Type::Function(types(parameters), types(results)))
    }

    fn create_tensor_descriptor_type(&self, block: PyType, is_signed: bool) -> PyType {
        PyType(Type::Descriptor(Box::new(block.0), sign(is_signed)))
    }

    /// The number, or what a constant of Triton's holds.
    fn get_int32_attr(&self, value: &Bound<'_, PyAny>) -> PyResult<PyAttribute> {
        let number = value.extract().or_else(|_| value.getattr("value")?.extract())?;
        Ok(PyAttribute(Attribute::Integer(number)))
    }

    fn get_bool_attr(&self, value: bool) -> PyAttribute {
        PyAttribute(Attribute::Truth(value))
    }

    fn get_string_attr(&self, value: String) -> PyAttribute {
        PyAttribute(Attribute::Text(value))
    }

    fn get_unit_attr(&self) -> PyAttribute {
        PyAttribute(Attribute::Unit)
    }

    fn get_disable_loop_licm_attr(&self) -> PyAttribute {
        let licm = "#llvm.loop_licm<disable = true, versioningDisable = true>";
        PyAttribute(Attribute::Written(format!("#llvm.loop_annotation<licm = {licm}>")))
    }

    /// How caches are to be used, which only a GPU's maker's compiler cares about.
    fn get_cache_policy(&self, modifier: &str, eviction: &str) -> PyResult<PyAttribute> {
        use {CacheModifier as C, EvictionPolicy as E};
        let modifiers = [C::NONE, C::CA, C::CG, C::WB, C::CS, C::WT, C::CV];
        if !modifiers.iter().any(|known| known.word() == modifier) {
            return Err(PyValueError::new_err(format!("invalid cache modifier '{modifier}'")));
        }
        if ![E::NORMAL, E::EVICT_FIRST, E::EVICT_LAST].iter().any(|known| known.word() == eviction) {
            return Err(PyValueError::new_err(format!("invalid eviction policy '{eviction}'")));
        }
        let policy = format!("#tt.cache_policy<cache_modifier = {modifier}, eviction_policy = {eviction}>");
        Ok(PyAttribute(Attribute::Written(policy)))
    }

    fn get_null_value(&self, ty: PyType) -> PyResult<PyValue> {
        Ok(self.handle(self.with(|builder, context| builder.zero(context, ty.0))))
    }

    fn get_all_ones_value(&self, ty: PyType) -> PyResult<PyValue> {
        Ok(self.handle(self.with(|builder, context| builder.constant(context, all_ones(&ty.0), ty.0))))
    }

    fn create_poison(&self, ty: PyType) -> PyResult<PyValue> {
        self.one("ub.poison", &[], ty.0, Vec::new())
    }

    fn create_module(&self, py: Python<'_>) -> PyResult<Py<PyModuleOperation>> {
        let module = self.with(|builder, context| builder.module(context));
        Py::new(py, PyModuleOperation::new(&self.shared, module))
    }

    #[pyo3(signature = (module, func_name, func_type, visibility, noinline))]
    fn get_or_insert_function(
        &self,
        py: Python<'_>,
        module: PyRef<'_, PyModuleOperation>,
        func_name: &str,
        func_type: PyType,
        visibility: &str,
        noinline: Option<bool>,
    ) -> PyResult<Py<PyFunction>> {
        let module = module.as_super().1;
        let visibility = if visibility == "public" { "public" } else { "private" };
        let noinline = noinline.unwrap_or(false);
        let function =
            self.with(|b, context| b.function(context, module, func_name, func_type.0, visibility, noinline));
        Py::new(py, PyFunction::new(&self.shared, function))
    }

    fn call(&self, function: PyRef<'_, PyFunction>, arguments: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        let (function, arguments) = (function.as_super().1, ids(&arguments)?);
        let call = self.with(|builder, context| builder.call(context, function, &arguments)).map_err(refused)?;
        Ok(self.operation(call))
    }

    fn ret(&self, values: Vec<PyRef<'_, PyValue>>) -> PyResult<PyOperation> {
        Ok(self.any("tt.return", &ids(&values)?, &[], Vec::new(), 0))
    }
}

pub fn sign(is_signed: bool) -> Sign {
    if is_signed { Sign::Signed } else { Sign::Unsigned }
}
