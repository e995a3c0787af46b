//! Builder methods for memory, products and atomic operations.

use super::builder::{PyBuilder, word};
use super::handles::{PyAttribute, PyValue};
use super::refused;
use super::words::{AtomicOperation, InputPrecision, MemorySemantic, ScaledForm, SyncScope};
use openmps_triton_ir::attribute::named;
use openmps_triton_ir::{Attribute, Refused, Type, ValueId};
use pyo3::prelude::*;

#[pymethods]
impl PyBuilder {
    fn create_addptr(&self, pointer: &PyValue, offset: &PyValue) -> PyResult<PyValue> {
        let operands = [pointer.id()?, offset.id()?];
        self.one("tt.addptr", &operands, self.type_of(operands[0]), Vec::new())
    }

    fn create_load(&self, pointer: &PyValue, policy: Option<PyAttribute>, is_volatile: bool) -> PyResult<PyValue> {
        self.create_masked_load(pointer, None, None, policy, is_volatile)
    }

    #[allow(non_snake_case)]
    #[pyo3(signature = (ptrs, mask, other, cachePolicy, isVolatile))]
    fn create_masked_load(
        &self,
        ptrs: &PyValue,
        mask: Option<&PyValue>,
        other: Option<&PyValue>,
        cachePolicy: Option<PyAttribute>,
        isVolatile: bool,
    ) -> PyResult<PyValue> {
        let operands = [Some(ptrs), mask, other].into_iter().flatten();
        let operands: Vec<ValueId> = operands.map(PyValue::id).collect::<PyResult<_>>()?;
        let policy = written_policy(cachePolicy);
        let value = self.with(|builder, context| builder.load(context, &operands, policy, isVolatile));
        Ok(self.handle(value.map_err(refused)?))
    }

    fn create_store(&self, pointer: &PyValue, value: &PyValue, policy: Option<PyAttribute>) -> PyResult<()> {
        self.create_masked_store(pointer, value, None, policy)
    }

    #[allow(non_snake_case)]
    #[pyo3(signature = (ptrs, val, mask, cachePolicy))]
    fn create_masked_store(
        &self,
        ptrs: &PyValue,
        val: &PyValue,
        mask: Option<&PyValue>,
        cachePolicy: Option<PyAttribute>,
    ) -> PyResult<()> {
        let operands = [Some(ptrs), Some(val), mask].into_iter().flatten();
        let operands: Vec<ValueId> = operands.map(PyValue::id).collect::<PyResult<_>>()?;
        let policy = written_policy(cachePolicy);
        self.with(|builder, context| builder.store(context, &operands, policy)).map_err(refused)
    }

    fn create_dot(
        &self,
        x: &PyValue,
        y: &PyValue,
        sum: &PyValue,
        precision: InputPrecision,
        imprecise: i64,
    ) -> PyResult<PyValue> {
        let operands = [x.id()?, y.id()?, sum.id()?];
        Ok(self.handle(self.with(|builder, context| builder.dot(context, operands, precision.word(), imprecise))))
    }

    #[pyo3(signature = (lhs, lhs_scale, lhs_format, rhs, rhs_scale, rhs_format, fast_math, lhs_k_pack, rhs_k_pack, c))]
    fn create_dot_scaled(
        &self,
        lhs: &PyValue,
        lhs_scale: Option<&PyValue>,
        lhs_format: ScaledForm,
        rhs: &PyValue,
        rhs_scale: Option<&PyValue>,
        rhs_format: ScaledForm,
        fast_math: bool,
        lhs_k_pack: bool,
        rhs_k_pack: bool,
        c: &PyValue,
    ) -> PyResult<PyValue> {
        let operands = [Some(lhs), lhs_scale, Some(rhs), rhs_scale, Some(c)].into_iter().flatten();
        let operands: Vec<ValueId> = operands.map(PyValue::id).collect::<PyResult<_>>()?;
        let mut attributes = vec![
            named("fastMath", Attribute::Truth(fast_math)),
            word("lhs", lhs_format.word()),
            word("rhs", rhs_format.word()),
        ];
        let scales = [("lhs_scale", lhs_scale), ("rhs_scale", rhs_scale)].into_iter();
        attributes.extend(scales.filter_map(|(name, scale)| scale.map(|_| named(name, Attribute::Unit))));
        // Elements are packed along the depth where nothing is said.
        let packs = [("lhs_k_pack", lhs_k_pack), ("rhs_k_pack", rhs_k_pack)].into_iter();
        attributes.extend(packs.filter(|(_, pack)| !pack).map(|(name, _)| named(name, Attribute::Truth(false))));
        self.one("tt.dot_scaled", &operands, self.type_of(c.id()?), attributes)
    }

    fn create_atomic_rmw(
        &self,
        operation: AtomicOperation,
        pointer: &PyValue,
        value: &PyValue,
        mask: &PyValue,
        semantic: MemorySemantic,
        scope: SyncScope,
    ) -> PyResult<PyValue> {
        let operands = [pointer.id()?, value.id()?, mask.id()?];
        let attributes = [&[word("atomic_rmw_op", operation.word())][..], &ordering(semantic, scope)].concat();
        self.one("tt.atomic_rmw", &operands, self.type_of(operands[1]), attributes)
    }

    fn create_atomic_cas(
        &self,
        pointer: &PyValue,
        compare: &PyValue,
        value: &PyValue,
        semantic: MemorySemantic,
        scope: SyncScope,
    ) -> PyResult<PyValue> {
        let operands = [pointer.id()?, compare.id()?, value.id()?];
        self.one("tt.atomic_cas", &operands, self.type_of(operands[2]), ordering(semantic, scope).to_vec())
    }

    fn create_atomic_load(
        &self,
        pointer: &PyValue,
        mask: &PyValue,
        semantic: MemorySemantic,
        scope: SyncScope,
    ) -> PyResult<PyValue> {
        let operands = [pointer.id()?, mask.id()?];
        let ty = self.type_of(operands[0]).pointee();
        let ty = ty.ok_or_else(|| refused(Refused("tt.atomic_load: of what is no address".to_owned())))?;
        self.one("tt.atomic_load", &operands, ty, ordering(semantic, scope).to_vec())
    }

    fn create_atomic_store(
        &self,
        pointer: &PyValue,
        value: &PyValue,
        mask: &PyValue,
        semantic: MemorySemantic,
        scope: SyncScope,
    ) -> PyResult<()> {
        let operands = [pointer.id()?, value.id()?, mask.id()?];
        self.any("tt.atomic_store", &operands, &[], ordering(semantic, scope).to_vec(), 0);
        Ok(())
    }

    /// Without a time after which to give up where `timeout` is a value that is none.
    fn create_atomic_poll(
        &self,
        pointer: &PyValue,
        expected: &PyValue,
        timeout: &PyValue,
        semantic: MemorySemantic,
        scope: SyncScope,
    ) -> PyResult<PyValue> {
        let mut operands = vec![pointer.id()?, expected.id()?];
        operands.extend(timeout.id().ok());
        let truth = self.type_of(operands[1]).with_element(Type::TRUTH);
        self.one("tt.atomic_poll", &operands, truth, ordering(semantic, scope).to_vec())
    }
}

fn ordering(semantic: MemorySemantic, scope: SyncScope) -> [(String, Attribute); 2] {
    [word("sem", semantic.word()), word("scope", scope.word())]
}

/// The policy where it is another than what holds anyway.
pub fn written_policy(policy: Option<PyAttribute>) -> Option<Attribute> {
    let usual = "#tt.cache_policy<cache_modifier = none, eviction_policy = evict_normal>";
    policy.map(|policy| policy.0).filter(|policy| !matches!(policy, Attribute::Written(text) if text == usual))
}
