//! The table of kernels: one row per kernel, from which both entry points are registered for each element type.

use crate::abi::symbols::symbols;
use crate::abi::types::{PdKernel, PdKernelKey};
use crate::abi::{arguments, strided};
use crate::argument::Kind;
use crate::dtype::DataType;
use crate::handler::{ContextEntry, Handler, NAMES};
use openmps_graph::DType;
use std::any::TypeId;
use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::ops::Range;

/// Kernels to register, by their names in Paddle.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
}

/// What Paddle's own strided kernels do without copying, on every device: a result there shares its input's memory, and programs rely on
/// it. A kernel of ours by such a name serves static programs, which have no views; eager programs keep Paddle's.
const VIEWS: &[&str] = &[
    "as_complex",
    "as_real",
    "as_strided",
    "diagonal",
    "flatten",
    "imag",
    "real",
    "reshape",
    "slice",
    "split_strided",
    "split_with_num_strided",
    "squeeze",
    "squeeze_grad",
    "strided_slice",
    "tensor_unfold",
    "transpose",
    "transpose_grad",
    "unbind",
    "unsqueeze",
    "unsqueeze_grad",
    "view_dtype",
    "view_shape",
];

/// One kernel.
pub struct Row {
    name: &'static str,
    function: TypeId,
    data_types: Vec<DataType>,
    kinds: &'static [Kind],
    strided: bool,
    /// Inputs that are read where they are, on the host or on the device.
    anywhere: Range<usize>,
    /// Whether the first output is made in the CPU's memory.
    on_host: bool,
    outputs: Vec<(usize, DataType)>,
    variadic_entry: *const c_void,
    context_entry: ContextEntry,
}

impl Table {
    /// An empty table.
    pub fn new() -> Table {
        Table::default()
    }

    /// Adds the kernel that Paddle calls `name`, for inputs of these types. The handler's parameters are those of the kernel's
    /// signature in `paddle/phi/kernels`, in the same order.
    pub fn add<Arguments, H: Handler<Arguments>>(
        &mut self,
        name: &'static str,
        dtypes: &[DType],
        handler: H,
    ) -> &mut Row {
        self.insert(name, dtypes.iter().map(|&dtype| dtype.into()).collect(), handler)
    }

    /// Adds a kernel for every type that Paddle has, complex numbers included: for kernels that move bytes only.
    pub fn add_every<Arguments, H: Handler<Arguments>>(&mut self, name: &'static str, handler: H) -> &mut Row {
        self.insert(name, DataType::every().collect(), handler)
    }

    /// Adds a kernel for complex numbers.
    pub fn add_complex<Arguments, H: Handler<Arguments>>(&mut self, name: &'static str, handler: H) -> &mut Row {
        self.insert(name, DataType::every().filter(|data_type| data_type.is_complex()).collect(), handler)
    }

    fn insert<Arguments, H: Handler<Arguments>>(
        &mut self,
        name: &'static str,
        data_types: Vec<DataType>,
        _: H,
    ) -> &mut Row {
        self.rows.push(Row {
            name,
            function: TypeId::of::<H>(),
            data_types,
            kinds: H::KINDS,
            strided: false,
            anywhere: 0..0,
            on_host: false,
            outputs: Vec::new(),
            variadic_entry: H::variadic_entry(),
            context_entry: H::context_entry(),
        });
        self.rows.last_mut().expect("a row was pushed")
    }

    /// Whether there is a kernel that Paddle calls `name`.
    pub fn has(&self, name: &str) -> bool {
        self.rows.iter().any(|row| row.name == name)
    }

    /// What Paddle calls the kernels that are a function each.
    fn names(&self) -> HashMap<TypeId, &'static str> {
        let mut names = HashMap::new();
        for row in &self.rows {
            let name = names.entry(row.function).or_insert(Some(row.name));
            *name = name.filter(|&name| name == row.name);
        }
        names.into_iter().filter_map(|(function, name)| Some((function, name?))).collect()
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Registers every row with Paddle.
    pub(crate) fn register(&self) {
        NAMES.get_or_init(|| self.names());
        self.rows.iter().for_each(Row::register);
    }
}

impl Row {
    /// The kernel reads strides itself: Paddle then passes strided inputs as they are, instead of copying them first.
    pub fn strided(&mut self) -> &mut Row {
        self.strided = true;
        self
    }

    /// The kernel reads these inputs' numbers wherever they are: Paddle then leaves tensors of the CPU there. A copy of one number to the device takes it
    /// 20 us, in which it starts a thread and ends it.
    pub fn anywhere(&mut self, inputs: Range<usize>) -> &mut Row {
        self.anywhere = inputs;
        self
    }

    /// The kernel makes its first output in the CPU's memory, by [`Context::write_on_host`](crate::Context::write_on_host), where Paddle reads it.
    pub fn on_host(&mut self) -> &mut Row {
        self.on_host = true;
        self
    }

    /// The type of an output, where it is not that of the inputs (`bool` for comparisons).
    pub fn output(&mut self, index: usize, dtype: DType) -> &mut Row {
        self.outputs.push((index, dtype.into()));
        self
    }

    /// An output whose type Paddle's rules alone decide.
    pub fn output_as_inferred(&mut self, index: usize) -> &mut Row {
        self.outputs.push((index, DataType(0)));
        self
    }

    /// The kernel's name in Paddle.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The types it is registered for.
    pub fn data_types(&self) -> &[DataType] {
        &self.data_types
    }

    /// What its parameters are registered as.
    pub fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }

    fn register(&self) {
        let select = |pick: fn(&Kind) -> Option<i32>| -> Vec<i32> { self.kinds.iter().filter_map(pick).collect() };
        let inputs = select(|kind| if let Kind::Input(number) = kind { Some(*number) } else { None });
        let attributes = select(|kind| if let Kind::Attribute(number) = kind { Some(*number) } else { None });
        let outputs = select(|kind| if let Kind::Output(number) = kind { Some(*number) } else { None });
        let name = CString::new(self.name).expect("a kernel's name has no zero byte");
        let layouts = if self.strided && !VIEWS.contains(&self.name) { &[false, true][..] } else { &[false] };
        for (&data_type, &strided) in
            self.data_types.iter().flat_map(|each| layouts.iter().map(move |layout| (each, layout)))
        {
            CURRENT.set(Some(Registration { row: self, data_type, strided }));
            // SAFETY: the arrays and strings live until the call returns, which copies what it keeps; the entry points have the
            // signatures that Paddle calls them with, made from the same parameters as the lists of kinds.
            unsafe {
                (symbols().register_phi_kernel)(
                    name.as_ptr(),
                    crate::DEVICE_TYPE.as_ptr(),
                    data_type.c_number(),
                    ALL_LAYOUT,
                    inputs.len(),
                    inputs.as_ptr(),
                    attributes.len(),
                    attributes.as_ptr(),
                    outputs.len(),
                    outputs.as_ptr(),
                    define,
                    self.context_entry,
                    self.variadic_entry,
                );
            }
        }
        CURRENT.set(None);
    }
}

/// `PD_DataLayout::ALL_LAYOUT`.
const ALL_LAYOUT: i32 = 0;

/// A row on its way into Paddle: its kernel for one type, and one layout.
#[derive(Clone, Copy)]
struct Registration {
    row: *const Row,
    data_type: DataType,
    /// Static programs look for the ordinary layout, eager ones for the strided layout first.
    strided: bool,
}

thread_local! {
    /// What is being registered: Paddle's callback carries no word of its caller.
    static CURRENT: Cell<Option<Registration>> = const { Cell::new(None) };
}

/// Paddle's callback before it inserts a kernel: the last chance to say what the lists of kinds cannot.
unsafe extern "C-unwind" fn define(key: *mut PdKernelKey, kernel: *mut PdKernel) {
    let Some(Registration { row, data_type, strided }) = CURRENT.get() else { return };
    // SAFETY: the row is borrowed by `register`, which is waiting for this call.
    let row = unsafe { &*row };
    // SAFETY: this is that callback's key.
    if strided && !unsafe { strided::mark(key, data_type.0) } {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            eprintln!(
                "openmps: this PaddlePaddle names kernels in another way: views are copied before operators read them"
            );
        });
    }
    // SAFETY: the key and the kernel are those being registered.
    unsafe {
        arguments::with_inputs(kernel, |inputs| {
            let anywhere = inputs.get(row.anywhere.clone()).unwrap_or_default();
            anywhere.iter().for_each(|&input| arguments::read_anywhere(input, key));
        });
        arguments::with_outputs(kernel, |outputs| {
            if let (true, Some(&output)) = (row.on_host, outputs.first()) {
                arguments::made_on_host(output, key);
            }
            for &(index, of_output) in &row.outputs {
                if let Some(&output) = outputs.get(index) {
                    (symbols().tensor_arg_def_set_data_type)(output, of_output.c_number(), &mut 0);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Table;
    use crate::error::Result;
    use crate::{Context, Output, Tensor};
    use openmps_tile::dtype::FLOATS;
    use std::any::TypeId;

    #[test]
    fn a_function_of_one_kernel_has_its_name() {
        fn kernel<const NUMBER: usize>(_: &Context, _: Tensor, _: Output) -> Result<()> {
            Ok(())
        }
        fn name_of<F: 'static>(table: &Table, _: F) -> Option<&'static str> {
            table.names().get(&TypeId::of::<F>()).copied()
        }
        let mut table = Table::new();
        table.add("first", FLOATS, kernel::<1>);
        table.add("second", FLOATS, kernel::<2>);
        table.add("third", FLOATS, kernel::<2>);
        assert_eq!(name_of(&table, kernel::<1>), Some("first"));
        assert_eq!([name_of(&table, kernel::<2>), name_of(&table, kernel::<3>)], [None, None]);
    }
}
