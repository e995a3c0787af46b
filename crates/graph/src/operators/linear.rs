//! Linear layers: the product with a weight, and the bias, residual and activation that follow it.

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::image::{Singles, write_singles};
use crate::layout::{call, check, expect_dtype, expect_inputs, expect_shape};
use crate::operator::{Meta, Operator};
use crate::operators::elementwise::{self, Activation, Binary, Chain, Elementwise, Fused, Operand, Stage};
use crate::operators::matmul::Matmul;
use crate::operators::words::Words;
use crate::prepared::{Form, Preparation, Prepared, may_prepare};
use crate::queue::{Queue, is_host_device};
use crate::reference::Array;
use crate::view::View;
use openmps_host::native::matmul::{MatrixProduct, PackedMatrix, linear, linear_packed, multiplies, packs};
use openmps_host::native::{Activation as InPass, Epilogue};
use openmps_runtime::Device;
use openmps_tile::{DType, dtype};

/// `activation(x weight + bias + residual)`. Inputs: x (.., inputs), the weight (inputs, outputs), and where they are asked for, in this
/// order, the bias (outputs) and the residual, of the result's shape. Output: (.., outputs). All of any strides.
///
/// On the CPU what follows the product is done while its result is in the cache, and rounded once; on a GPU by a second kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linear {
    /// The weight is (outputs, inputs).
    pub transpose_weight: bool,
    /// There is an addend for each output.
    pub bias: bool,
    /// A tensor of the result's shape is added.
    pub residual: bool,
    /// An activation without numbers of its own.
    pub activation: Option<Activation>,
}

impl Linear {
    fn matmul(&self) -> Matmul {
        Matmul { transpose_left: false, transpose_right: self.transpose_weight }
    }

    /// Whether something follows the product.
    fn is_more(&self) -> bool {
        self.bias || self.residual || self.activation.is_some()
    }

    /// All in one pass of a native kernel, but for activations that it does not have; with the weight as it lies, or packed.
    fn in_one_pass(&self, queue: &Queue, packed: Option<&PackedMatrix>, inputs: &[View], out: &View) -> Result<()> {
        let activation = self.activation.map_or(Some(InPass::None), in_pass);
        let missing = self.activation.filter(|_| activation.is_none());
        call(queue, self.name(), || {
            let addends: Vec<Singles> = inputs[2..].iter().map(Singles::of).collect();
            let mut addends = addends.iter().map(Singles::get);
            let bias = if self.bias { addends.next() } else { None };
            let residual = addends.next();
            let activation = activation.unwrap_or_default();
            let epilogue = Epilogue { bias, residual, activation, ..Epilogue::default() };
            if let Some(weight) = packed {
                let x = Singles::of(&inputs[0]);
                return write_singles(out, |to| linear_packed(x.get(), weight, to, &epilogue));
            }
            let (x, weight) = (&inputs[0], &inputs[1]);
            write_singles(out, |to| {
                let address = to.as_mut_ptr() as usize;
                let dense = View::dense(address, DType::F32, &out.shape).expect("the shape of a view");
                let run = |x: &View| {
                    let (product, batches, at) = self.matmul().plan([x, weight, &dense], [1.0, 0.0]);
                    let types = [x.dtype, weight.dtype];
                    let as_it_is = x.dtype == DType::F32 || multiplies(&product, types, &batches);
                    if as_it_is {
                        // SAFETY: views of live memory; the result is dense, the addends are of its shape or one for each column.
                        unsafe { linear(&product, types, at, &batches, &epilogue) };
                    }
                    as_it_is
                };
                if !run(x) {
                    let copy = Singles::of(x);
                    let address = copy.get().as_ptr() as usize;
                    run(&View::dense(address, DType::F32, &x.shape).expect("the shape of a view"));
                }
                Ok(())
            })
        })?;
        match missing {
            Some(activation) => elementwise::run(Elementwise::Activation(activation), queue, &[out], &[], out),
            None => Ok(()),
        }
    }

    /// What follows, as formulas of the product in `out`.
    fn then(&self, queue: &Queue, addends: &[View], out: &View) -> Result<()> {
        let add = elementwise::Call::new(Elementwise::Binary(Binary::Add));
        let mut stages: Vec<Stage> = Vec::new();
        let last = |stages: &[Stage]| stages.len().checked_sub(1).map_or(Operand::Input(0), Operand::Stage);
        for i in 0..addends.len() {
            stages.push(Stage { call: add.clone(), operands: vec![last(&stages), Operand::Input(1 + i)] });
        }
        if let Some(activation) = self.activation {
            let call = elementwise::Call::new(Elementwise::Activation(activation));
            stages.push(Stage { call, operands: vec![last(&stages)] });
        }
        let inputs: Vec<View> = std::iter::once(out).chain(addends).cloned().collect();
        Fused { chain: Chain::new(stages), reduction: None }.run(queue, &inputs, std::slice::from_ref(out))
    }
}

/// The activation as native kernels apply it to what is still in registers.
fn in_pass(activation: Activation) -> Option<InPass> {
    Some(match activation {
        Activation::Relu => InPass::Relu,
        Activation::Relu6 => InPass::Relu6,
        Activation::Sigmoid => InPass::Sigmoid,
        Activation::Silu => InPass::Swish { beta: 1.0 },
        Activation::Gelu => InPass::Gelu,
        Activation::GeluTanh => InPass::GeluTanh,
        _ => return None,
    })
}

impl Operator for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        let operator = self.name();
        expect_inputs(operator, inputs, 2 + usize::from(self.bias) + usize::from(self.residual))?;
        expect_dtype(operator, "x", inputs[0].dtype, dtype::FLOATS)?;
        if let Some(activation) = self.activation
            && !Elementwise::Activation(activation).row().scalars.is_empty()
        {
            let got = Elementwise::Activation(activation).row().name.to_owned();
            let expected = "one without numbers of its own".to_owned();
            return Err(Error::Attribute { operator, attribute: "activation", got, expected });
        }
        let weight = &inputs[1].shape;
        if weight.len() != 2 {
            let expected = "2 dimensions".to_owned();
            return Err(Error::Shape { operator, what: "weight", got: weight.clone(), expected });
        }
        let result = self.matmul().infer(&inputs[..2])?.remove(0);
        let columns = weight[usize::from(!self.transpose_weight)];
        let addends: [(bool, _, &[usize]); 2] =
            [(self.bias, "bias", &[columns]), (self.residual, "residual", &result.shape)];
        for ((_, what, shape), meta) in addends.into_iter().filter(|(there, ..)| *there).zip(&inputs[2..]) {
            expect_dtype(operator, what, meta.dtype, &[result.dtype])?;
            expect_shape(operator, what, &meta.shape, shape)?;
        }
        Ok(vec![result])
    }

    fn arithmetic(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        self.matmul().arithmetic(inputs, outputs)
    }

    fn includes(&self) -> Vec<&'static str> {
        let activation = self.activation.map(|activation| Elementwise::Activation(activation).row().name);
        let addends = [(self.bias, "bias"), (self.residual, "residual")];
        addends.into_iter().filter(|(there, _)| *there).map(|(_, name)| name).chain(activation).collect()
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let out = &outputs[0];
        if queue.is_host() && out.dtype != DType::F64 {
            return self.in_one_pass(queue, None, inputs, out);
        }
        self.matmul().run(queue, &inputs[..2], outputs)?;
        if self.is_more() { self.then(queue, &inputs[2..], out) } else { Ok(()) }
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, weight, dy) = (b.inputs[0], b.inputs[1], b.dy()?);
        let dy = match self.activation {
            None => dy,
            Some(activation) => {
                let before = b.one(Linear { activation: None, ..*self }, b.inputs)?;
                let call = elementwise::Call::new(Elementwise::Activation(activation));
                b.through(&call, before, b.outputs[0], dy)?
            }
        };
        let mut gradients = crate::operators::matmul::gradient::of_operands(&self.matmul(), b, [x, weight], dy)?;
        if self.bias {
            let dims = b.shape(b.inputs[2]);
            gradients.push(Some(b.sum_to(dy, &dims)?));
        }
        if self.residual {
            gradients.push(Some(dy));
        }
        Ok(gradients)
    }

    fn prepares(&self, device: &Device, inputs: &[Meta]) -> Option<Preparation> {
        let [x, weight, ..] = inputs else { return None };
        if !is_host_device(device) || !may_prepare(inputs) || weight.shape.len() != 2 {
            return None;
        }
        let (transposed, depth) = (self.transpose_weight, *x.shape.last()?);
        let (rows, columns) = (x.shape.iter().product::<usize>() / depth, weight.shape[usize::from(!transposed)]);
        let product = MatrixProduct::dense(rows, depth, columns);
        let right = if transposed { [1, depth as isize] } else { product.right };
        packs(&MatrixProduct { right, ..product })
            .then_some(Preparation { input: 1, form: Form::RightMatrix { transposed } })
    }

    fn run_prepared(&self, queue: &Queue, prepared: &Prepared, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        self.in_one_pass(queue, Some(prepared.matrix(self.name(), queue)?), inputs, &outputs[0])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let widened = |array: &Array| Array { dtype: DType::F64, ..array.clone() };
        let product = self.matmul().reference(&[widened(&inputs[0]), widened(&inputs[1])]).remove(0);
        let activation = self.activation.map(|activation| Elementwise::Activation(activation).row().reference);
        vec![Array::from_fn(&product.shape, inputs[0].dtype, |index| {
            let sum = inputs[2..].iter().fold(product.at(index), |sum, addend| sum + addend.at_broadcast(index));
            activation.map_or(sum, |activation| activation(&[sum], &[]))
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "linear",
    summary: "A linear layer: the product with a weight, a bias, a residual and an activation.",
    dtypes: dtype::FLOATS,
    cases: || {
        // Inputs of x and outputs; few rows, some and many, which the CPU handles differently.
        let sizes: &[(&[usize], usize)] = &[
            (&[7], 3),
            (&[5, 7], 3),
            (&[2, 5, 60], 9),
            (&[2, 2, 389], 19),
            (&[2, 40, 60], 65),
            (&[0, 4], 3),
            (&[2, 0], 3),
        ];
        let activations = [
            None,
            Some(Activation::Relu),
            Some(Activation::Gelu),
            Some(Activation::GeluTanh),
            Some(Activation::Silu),
            Some(Activation::Relu6),
            Some(Activation::Sigmoid),
            Some(Activation::Softsign),
        ];
        let mut cases = Vec::new();
        for (i, &(x, outputs)) in sizes.iter().enumerate() {
            for j in 0..4 {
                let activation = activations[(i + 2 * j) % activations.len()];
                let (transpose_weight, bias, residual) = (j % 2 == 1, j != 0, j > 1);
                let depth = x[x.len() - 1];
                let weight = if transpose_weight { [outputs, depth] } else { [depth, outputs] };
                let result: Vec<usize> = x[..x.len() - 1].iter().copied().chain([outputs]).collect();
                // Mostly positive: what GELU leaves of large negative sums is the rounding of others.
                let positive = |dims: &[usize]| Input::of(dims, Values::Uniform(-0.25, 1.0));
                let mut inputs = vec![positive(x), positive(&weight)];
                inputs.extend(bias.then(|| Input::new(&[outputs])));
                inputs.extend(residual.then(|| Input::new(&result)));
                cases.push(Case::new(Linear { transpose_weight, bias, residual, activation }, inputs));
            }
        }
        cases
    },
    tolerance: 32.0,
};
