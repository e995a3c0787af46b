//! The pass manager, and the passes that a backend asks for by Triton's names.

use super::handles::PyContext;
use super::locked;
use super::operations::PyModuleOperation;
use openmps_triton_ir::{Built, Context, OperationId, passes};
use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// A step over a module.
type Pass = fn(&mut Context, OperationId) -> Built<()>;

/// Runs passes in the order in which they were added.
#[pyclass(name = "pass_manager", module = "triton._C.libtriton.ir", frozen)]
struct PassManager(Mutex<Vec<Pass>>);

#[pymethods]
impl PassManager {
    #[new]
    fn new(_context: &PyContext) -> PassManager {
        PassManager(Mutex::default())
    }

    /// Prints nothing between the passes.
    fn enable_debug(&self) -> bool {
        false
    }

    #[pyo3(signature = (module, _name = ""))]
    fn run(&self, module: PyRef<'_, PyModuleOperation>, _name: &str) -> PyResult<()> {
        let (shared, id) = module.as_super().parts();
        let mut context = locked(shared);
        for pass in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            pass(&mut context, id).map_err(|error| PyNotImplementedError::new_err(format!("mps: {error}")))?;
        }
        Ok(())
    }
}

fn inline(context: &mut Context, module: OperationId) -> Built<()> {
    passes::drop_unreachable_blocks(context, module);
    passes::inline(context, module);
    Ok(())
}

fn canonicalize(context: &mut Context, module: OperationId) -> Built<()> {
    passes::simplify(context, module);
    passes::drop_unused_operations(context, module);
    Ok(())
}

fn combine(context: &mut Context, module: OperationId) -> Built<()> {
    passes::sum_into_products(context, module);
    passes::drop_unused_operations(context, module);
    Ok(())
}

fn hoist(context: &mut Context, module: OperationId) -> Built<()> {
    passes::hoist(context, module);
    Ok(())
}

fn drop_unused_functions(context: &mut Context, module: OperationId) -> Built<()> {
    passes::drop_unused_functions(context, module);
    Ok(())
}

/// What the kernel language needs nothing done for: it unrolls no loops and orders broadcasts itself.
fn nothing(_: &mut Context, _: OperationId) -> Built<()> {
    Ok(())
}

/// A function of Python that adds a pass to a manager.
macro_rules! passes {
    ($($function:ident = $pass:expr;)*) => {$(
        #[pyfunction]
        fn $function(manager: &PassManager) {
            manager.0.lock().unwrap_or_else(PoisonError::into_inner).push($pass);
        }
    )*};
}

passes! {
    add_inliner = inline;
    add_canonicalizer = canonicalize;
    add_cse = canonicalize;
    add_symbol_dce = drop_unused_functions;
    add_combine = combine;
    add_triton_licm = hoist;
    add_rewrite_tensor_descriptor_to_pointer = passes::rewrite_descriptors;
    add_reorder_broadcast = nothing;
    add_loop_unroll = nothing;
}

pub fn register(ir: &Bound<'_, PyModule>, passes: &Bound<'_, PyModule>) -> PyResult<()> {
    ir.add_class::<PassManager>()?;
    let common = PyModule::new(passes.py(), "common")?;
    common.add_function(wrap_pyfunction!(add_inliner, &common)?)?;
    common.add_function(wrap_pyfunction!(add_canonicalizer, &common)?)?;
    common.add_function(wrap_pyfunction!(add_cse, &common)?)?;
    common.add_function(wrap_pyfunction!(add_symbol_dce, &common)?)?;
    let ttir = PyModule::new(passes.py(), "ttir")?;
    ttir.add_function(wrap_pyfunction!(add_combine, &ttir)?)?;
    ttir.add_function(wrap_pyfunction!(add_triton_licm, &ttir)?)?;
    ttir.add_function(wrap_pyfunction!(add_rewrite_tensor_descriptor_to_pointer, &ttir)?)?;
    ttir.add_function(wrap_pyfunction!(add_reorder_broadcast, &ttir)?)?;
    ttir.add_function(wrap_pyfunction!(add_loop_unroll, &ttir)?)?;
    passes.add("common", common)?;
    passes.add("ttir", ttir)
}
