//! Linear layers with what follows the product in one call, as language models in Paddle ask for them, their gradients, and sums of
//! weights' gradients over steps.

use super::compose::Compose;
use super::matmul::gradients;
use super::values::expect;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Gradient};
use openmps_graph::operators::linear::Linear;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::{DType, Operator, View};
use openmps_tile::dtype::FLOATS;

const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("fused_gemm_epilogue", FLOATS, gemm_epilogue);
    table.add("fused_gemm_epilogue_grad", FLOATS, gemm_epilogue_grad);
    // Integers are what a quantised product gives: they are refused with what asks for them.
    let types = [FLOATS, &[DType::I32]].concat();
    table.add("fused_bias_act", &types, bias_act).output_as_inferred(0);
    table.add("fused_linear_param_grad_add", FLOATS, param_grad_add).output_as_inferred(0).output_as_inferred(1);
}

/// What follows a product and its bias. GELU is the one by tanh, which cuBLAS has at this place.
#[derive(Clone, Copy)]
enum Epilogue {
    Nothing,
    Relu,
    Gelu,
}

impl Epilogue {
    fn named(attribute: &'static str, name: &str) -> Result<Epilogue> {
        Ok(match name {
            "none" | "" => Epilogue::Nothing,
            "relu" | "relu_grad" => Epilogue::Relu,
            "gelu" | "gelu_grad" => Epilogue::Gelu,
            _ => return Err(refuse(attribute, name, "none, relu or gelu")),
        })
    }

    fn activation(self) -> Option<(Activation, Gradient)> {
        match self {
            Epilogue::Nothing => None,
            Epilogue::Relu => Some((Activation::Relu, Gradient::Relu)),
            Epilogue::Gelu => Some((Activation::GeluTanh, Gradient::GeluTanh)),
        }
    }
}

/// A matrix, or the matrices of a batch, with rows as columns.
fn swapped(x: &View) -> View {
    x.swapped(x.rank() - 2, x.rank() - 1)
}

/// What the gradient needs of an activation, what it was given, is kept as `reserve` where Paddle asks for it.
fn gemm_epilogue(
    context: &Context,
    x: Tensor,
    y: Tensor,
    bias: Tensor,
    transpose_left: bool,
    transpose_weight: bool,
    activation: String,
    out: Output,
    reserve: Option<Output>,
) -> Result<()> {
    let after = Epilogue::named("activation", &activation)?.activation();
    let (left, queue) = (x.view()?, context.queue());
    if left.rank() < 2 {
        return Err(refuse("x", x.shape(), "2 dimensions at least"));
    }
    let dtype = left.dtype;
    let inputs = [if transpose_left { swapped(&left) } else { left }, y.view()?, bias.view()?];
    let layer = Linear { transpose_weight, bias: true, ..Linear::default() };
    let out = context.allocate(&out, dtype)?;
    match (after, reserve) {
        (Some((activation, _)), Some(reserve)) => {
            let before = context.allocate(&reserve, dtype)?;
            layer.run(queue, &inputs, std::slice::from_ref(&before))?;
            let call = Elementwise::Activation(activation);
            Ok(openmps_graph::operators::elementwise::run(call, queue, &[&before], &[], &out)?)
        }
        (after, _) => {
            let activation = after.map(|(activation, _)| activation);
            Ok(Linear { activation, ..layer }.run(queue, &inputs, std::slice::from_ref(&out))?)
        }
    }
}

fn gemm_epilogue_grad(
    context: &Context,
    x: Tensor,
    y: Tensor,
    reserve: Option<Tensor>,
    upstream: Tensor,
    transpose_left: bool,
    transpose_right: bool,
    activation: String,
    dx: Option<Output>,
    dy: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let c = Compose::new(context);
    let upstream = match (Epilogue::named("activation_grad", &activation)?.activation(), reserve) {
        (None, _) => upstream.view()?,
        (Some((_, gradient)), Some(before)) => {
            expect("reserve_space", &before, &upstream.shape())?;
            c.map(Elementwise::Gradient(gradient), &[&before.view()?, &upstream.view()?], &[])?
        }
        (Some(_), None) => return Err(refuse("reserve_space", "missing", "what the activation was given")),
    };
    if let Some(dbias) = dbias {
        c.store_value(&dbias, upstream.dtype, &c.cast(&upstream, upstream.dtype.compute())?)?;
    }
    let product = Matmul { transpose_left, transpose_right };
    gradients(context, product, [x.view()?, y.view()?, upstream], [dx.as_ref(), dy.as_ref()])
}

/// Units of a feed-forward layer; those with a gate have twice as many columns, the gate's first.
#[derive(Clone, Copy)]
enum Unit {
    Plain(Activation),
    Gated(Activation),
}

impl Unit {
    fn named(name: &str) -> Result<Unit> {
        Ok(match name {
            "gelu" => Unit::Plain(Activation::Gelu),
            "relu" => Unit::Plain(Activation::Relu),
            "geglu" => Unit::Gated(Activation::Gelu),
            "swiglu" => Unit::Gated(Activation::Silu),
            _ => return Err(refuse("act_method", name, "gelu, relu, geglu or swiglu")),
        })
    }

    fn of(self, c: &Compose, x: &View) -> Result<View> {
        let activated = |activation, x: &View| c.map(Elementwise::Activation(activation), &[x], &[]);
        match self {
            Unit::Plain(activation) => activated(activation, x),
            Unit::Gated(activation) => {
                let (last, half) = (x.rank() - 1, x.shape[x.rank() - 1] / 2);
                let gate = activated(activation, &x.narrowed(last, 0, 1, half))?;
                c.multiply(&gate, &x.narrowed(last, half, 1, half))
            }
        }
    }
}

/// One number for each of the last columns.
fn columns(c: &Compose, name: &'static str, x: &Tensor, count: usize) -> Result<View> {
    let view = c.input(x)?;
    if view.len() == count {
        c.shaped(&view, &[count])
    } else {
        Err(refuse(name, x.shape(), &format!("{count} elements")))
    }
}

/// A bias and an activation, and where it is asked for a shift and a factor after them. Numbers that are quantised are refused.
fn bias_act(
    context: &Context,
    x: Tensor,
    bias: Option<Tensor>,
    dequant_scales: Option<Tensor>,
    shift: Option<Tensor>,
    smooth: Option<Tensor>,
    method: String,
    _compute_dtype: String,
    quant_scale: f32,
    _round_type: i32,
    _most: f32,
    _least: f32,
    out: Output,
) -> Result<()> {
    if let Some(scales) = dequant_scales {
        return Err(refuse("dequant_scales", scales.shape(), "none: quantised numbers are not computed with"));
    }
    if quant_scale > 0.0 {
        return Err(refuse("quant_scale", quant_scale, "at most 0: the result is not quantised"));
    }
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    if !dtype.is_float() {
        return Err(refuse(
            "element type of x",
            format_args!("{dtype}"),
            "floats: quantised numbers are not computed with",
        ));
    }
    let mut value = c.input(&x)?;
    if value.rank() == 0 {
        return Err(refuse("x", x.shape(), "2 dimensions at least"));
    }
    if let Some(bias) = bias {
        value = c.add(&value, &columns(&c, "bias", &bias, value.shape[value.rank() - 1])?)?;
    }
    value = Unit::named(&method)?.of(&c, &value)?;
    let count = value.shape[value.rank() - 1];
    match (shift, smooth) {
        (None, None) => c.store_value(&out, dtype, &value),
        (Some(shift), Some(smooth)) => {
            let moved = c.add(&value, &columns(&c, "shift", &shift, count)?)?;
            c.store(&out, dtype, MULTIPLY, &[&moved, &columns(&c, "smooth", &smooth, count)?], &[])
        }
        (shift, _) => {
            let missing = if shift.is_none() { "shift" } else { "smooth" };
            Err(refuse(missing, "missing", "a tensor: shift and smooth come together"))
        }
    }
}

/// What is added up and where to: gradients that are kept are changed in place, as on Paddle's GPUs.
struct Sum<'c> {
    c: Compose<'c>,
    dtype: DType,
}

impl Sum<'_> {
    fn kept(&self, name: &'static str, kept: &Tensor, dims: &[usize]) -> Result<View> {
        expect(name, kept, dims)?;
        if kept.dtype()? == self.dtype {
            return kept.view();
        }
        Err(refuse(
            name,
            format_args!("{}", kept.dtype()?),
            &format!("element type {}, as multi_precision says", self.dtype),
        ))
    }

    fn weight(&self, inputs: [View; 2], kept: Option<Tensor>, out: &Output) -> Result<()> {
        let product = Matmul { transpose_left: true, transpose_right: false };
        let (dims, compute) = ([inputs[0].shape[1], inputs[1].shape[1]], self.dtype.compute());
        let [x, upstream] = inputs.map(|input| self.c.cast(&input, compute));
        let value = self.c.apply(&product, &[x?, upstream?])?;
        self.store(&value, kept.as_ref(), "dweight", &dims, out)
    }

    fn store(
        &self,
        value: &View,
        kept: Option<&Tensor>,
        name: &'static str,
        dims: &[usize],
        out: &Output,
    ) -> Result<()> {
        out.set_dims(dims);
        let Some(kept) = kept else { return self.c.store_value(out, self.dtype, value) };
        let to = self.kept(name, kept, dims)?;
        let sum = self.c.add(&self.c.cast(&to, value.dtype)?, &self.c.shaped(value, dims)?)?;
        out.share(kept);
        self.c.launch(&openmps_graph::operators::copy::Copy, &[self.c.cast(&sum, self.dtype)?], &[to])
    }
}

/// Adds a linear layer's gradients to what is kept of earlier steps, in float32 where `multi_precision` says so.
fn param_grad_add(
    context: &Context,
    x: Tensor,
    upstream: Tensor,
    dweight: Option<Tensor>,
    dbias: Option<Tensor>,
    multi_precision: bool,
    has_bias: bool,
    dweight_out: Option<Output>,
    dbias_out: Option<Output>,
) -> Result<()> {
    let own = x.dtype()?;
    let sum = Sum { dtype: if multi_precision { own.compute() } else { own }, c: Compose::new(context) };
    let matrix = |x: &Tensor| -> Result<View> {
        let view = x.view()?;
        let Some((&width, rows)) = view.shape.split_last() else {
            return Err(refuse("x, dout", x.shape(), "a matrix"));
        };
        sum.c.shaped(&view, &[rows.iter().product(), width])
    };
    let inputs = [matrix(&x)?, matrix(&upstream)?];
    let width = inputs[1].shape[1];
    if let Some(dbias_out) = dbias_out.filter(|_| has_bias) {
        let total =
            sum.c.summed_to(&sum.c.cast(&inputs[1], own.compute())?, &openmps_graph::view::shape_of(&[width])?)?;
        sum.store(&total, dbias.as_ref(), "dbias", &[width], &dbias_out)?;
    }
    match dweight_out {
        Some(dweight_out) => sum.weight(inputs, dweight, &dweight_out),
        None => Ok(()),
    }
}
