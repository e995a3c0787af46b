//! Linear layers whose weights are integers of 8 or 4 bits with a scale for each column, or for each group of rows of a column.

mod layout;

use self::layout::{Bits, Layout};
use super::compose::Compose;
use super::values::dims;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Activation, Binary, Elementwise, Unary};
use openmps_graph::operators::linear::Linear;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::{DType, Operator, View};

const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);
const MULTIPLY: Elementwise = Elementwise::Binary(Binary::Multiply);
/// The name of the algorithm with one scale for each column and integers in no GPU's order.
const LLM_INT8: &str = "llm.int8";
const TYPES: &[DType] = &[DType::F16, DType::BF16, DType::F32];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("weight_quantize", TYPES, weight_quantize).output(0, DType::I8).output_as_inferred(1);
    table.add("weight_dequantize", TYPES, weight_dequantize);
    table.add("weight_only_linear", TYPES, weight_only_linear);
    table.add("weight_only_linear_grad", TYPES, weight_only_linear_grad);
    table.add("llm_int8_linear", TYPES, llm_int8_linear);
}

/// A weight's sizes as numbers, (rows, columns), and what its integers are.
struct Weight {
    bits: Bits,
    layout: Layout,
    rows: usize,
    columns: usize,
    /// How many rows have a scale: all of them, or a group.
    group: usize,
}

impl Weight {
    fn new(bits: Bits, arch: i32, group_size: i32, [rows, columns]: [usize; 2]) -> Result<Weight> {
        let group = match group_size {
            -1 => rows,
            64 | 128 => group_size as usize,
            _ => return Err(refuse("group_size", group_size, "-1, 64 or 128")),
        };
        let layout = Layout::of(arch)?;
        layout.check(bits, [rows, columns])?;
        if group == 0 || !rows.is_multiple_of(group) {
            return Err(refuse("group_size, rows of the weight", (group_size, rows), "groups that divide the rows"));
        }
        Ok(Weight { bits, layout, rows, columns, group })
    }

    /// Of integers in a tensor that says (columns, rows), of 4 bits half as many of the first as there are.
    fn stored(bits: Bits, arch: i32, group_size: i32, weight: &Tensor) -> Result<Weight> {
        if weight.dtype()? != DType::I8 {
            return Err(refuse("element type of the weight", format_args!("{}", weight.dtype()?), "int8"));
        }
        let [columns, rows] = dims("weight", weight)?;
        Weight::new(bits, arch, group_size, [rows, columns * bits.in_a_byte()])
    }

    /// As many groups as there are, with their columns: what scales lie as.
    fn scales(&self) -> [usize; 2] {
        [self.rows / self.group, self.columns]
    }

    /// What an integer's step is, for each group and column: its largest magnitude is the largest integer.
    fn scale_of(&self, c: &Compose, x: &View) -> Result<View> {
        let [groups, columns] = self.scales();
        let magnitude = c.map(Elementwise::Unary(Unary::Abs), &[&c.shaped(x, &[groups, self.group, columns])?], &[])?;
        let largest = c.reduce(Reduction::Maximum, &magnitude, &[1])?;
        let most = c.constant(largest.dtype, &[1], self.bits.largest())?;
        c.map(DIVIDE, &[&largest, &most], &[])
    }

    /// Integers within the largest one to either side, in Paddle's way of rounding: halves away from zero.
    fn levels(&self, c: &Compose, x: &View, scale: &View) -> Result<View> {
        let [groups, columns] = self.scales();
        let (x, scale) = (c.shaped(x, &[groups, self.group, columns])?, c.shaped(scale, &[groups, 1, columns])?);
        // Columns of zeros have no scale.
        let [zero, one] = [0.0, 1.0].map(|value| c.constant(scale.dtype, &[1], value));
        let none = c.map(Elementwise::Binary(Binary::Equal), &[&scale, &zero?], &[])?;
        let scale = c.map(Elementwise::Binary(Binary::Where), &[&none, &one?, &scale], &[])?;
        let share = c.map(DIVIDE, &[&x, &scale], &[])?;
        // Just below a half: the sum with a number just below a half is not rounded up to a whole one.
        let half = c.constant(share.dtype, &[1], f64::from(0.5f32.next_down()))?;
        let half = c.map(Elementwise::Binary(Binary::CopySign), &[&half, &share], &[])?;
        let whole = c.map(Elementwise::Unary(Unary::Trunc), &[&c.add(&share, &half)?], &[])?;
        let most = self.bits.largest();
        let levels = c.map(Elementwise::Activation(Activation::HardTanh), &[&whole], &[-most, most])?;
        c.shaped(&levels, &[self.rows, self.columns])
    }

    /// The numbers in the type of the scales, (columns, rows).
    fn numbers(&self, c: &Compose, weight: &Tensor, scale: &Tensor, dtype: DType) -> Result<View> {
        let scales = self.scales();
        let scale = scale.view()?;
        let fits = scale.len() == scales[0] * scales[1];
        if !fits {
            return Err(refuse("weight_scale", &scale.shape, &format!("{} scales", scales[0] * scales[1])));
        }
        let scale = c.shaped(&c.cast(&scale, DType::F32)?, &scales)?.permuted(&[1, 0]);
        let scale = c.apply(&openmps_graph::operators::copy::Copy, &[scale])?;
        let levels = self.layout.decoded(c, &weight.view()?, self.bits, [self.rows, self.columns])?;
        let levels = c.shaped(&levels, &[self.columns, scales[0], self.group])?;
        let numbers = c.map(MULTIPLY, &[&levels, &c.shaped(&scale, &[self.columns, scales[0], 1])?], &[])?;
        c.shaped(&c.cast(&numbers, dtype)?, &[self.columns, self.rows])
    }
}

/// Integers and scales, both in the layout that Paddle's GPUs of an architecture read.
fn weight_quantize(
    context: &Context,
    x: Tensor,
    algorithm: String,
    arch: i32,
    group_size: i32,
    out: Output,
    scale_out: Output,
) -> Result<()> {
    let (c, dtype, sizes) = (Compose::new(context), x.dtype()?, dims("x", &x)?);
    if algorithm == LLM_INT8 {
        return llm_int8(context, &x, sizes, &out, &scale_out);
    }
    let bits = Bits::of_algorithm(&algorithm)?;
    if sizes.contains(&0) {
        context.allocate(&out, DType::I8)?;
        return c.fill(&context.allocate(&scale_out, dtype)?, 0.0);
    }
    let weight = Weight::new(bits, arch, group_size, sizes)?;
    let x = c.input(&x)?;
    let scale = c.cast(&weight.scale_of(&c, &x)?, dtype)?;
    c.store_value(&scale_out, dtype, &scale)?;
    let levels = weight.levels(&c, &x, &c.cast(&scale, x.dtype)?)?;
    let to = context.allocate(&out, DType::I8)?;
    weight.layout.encode(&c, &levels, bits, &to)
}

/// The integers of 8 bits as (columns, rows), and scales in float32.
fn llm_int8(context: &Context, x: &Tensor, sizes: [usize; 2], out: &Output, scale_out: &Output) -> Result<()> {
    let c = Compose::new(context);
    let [rows, columns] = sizes;
    if sizes.contains(&0) {
        context.allocate(out, DType::I8)?;
        return c.fill(&context.allocate(scale_out, DType::F32)?, 0.0);
    }
    let weight = Weight { bits: Bits::Eight, layout: Layout::Rows, rows, columns, group: rows };
    let x = c.input(x)?;
    let scale = weight.scale_of(&c, &x)?;
    c.store_value(scale_out, DType::F32, &scale)?;
    let levels = weight.levels(&c, &x, &scale)?.permuted(&[1, 0]);
    c.run(Elementwise::Unary(Unary::Cast), &[&levels], &context.allocate(out, DType::I8)?)
}

/// The product with such a weight. Paddle's GPUs multiply what is below `threshold` in integers; this one multiplies in x's type.
fn llm_int8_linear(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    scale: Tensor,
    _threshold: f32,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let [columns, rows] = dims("weight", &weight)?;
    if weight.dtype()? != DType::I8 {
        return Err(refuse("element type of the weight", format_args!("{}", weight.dtype()?), "int8"));
    }
    let scale = scale.view()?;
    let scale = c.shaped(&c.cast(&scale, DType::F32)?, &[columns, 1])?;
    let numbers = c.map(MULTIPLY, &[&c.cast(&weight.view()?, DType::F32)?, &scale], &[])?;
    let numbers = c.shaped(&c.cast(&numbers, dtype)?, &[columns, rows])?;
    linear(context, &c, x, numbers, bias, &out)
}

/// The architecture is not told here: integers lie as on those that have tensor cores, as Paddle's own kernel takes for granted.
fn weight_dequantize(
    context: &Context,
    x: Tensor,
    scale: Tensor,
    algorithm: String,
    group_size: i32,
    out: Output,
) -> Result<()> {
    let (c, bits, dtype) = (Compose::new(context), Bits::of_algorithm(&algorithm)?, scale.dtype()?);
    if x.shape().contains(&0) {
        return context.allocate(&out, dtype).map(drop);
    }
    let weight = Weight::stored(bits, layout::TENSOR_CORES, group_size, &x)?;
    let numbers = weight.numbers(&c, &x, &scale, dtype)?;
    out.set_dims(&[weight.rows, weight.columns]);
    let to = context.allocate(&out, dtype)?;
    c.launch(&openmps_graph::operators::copy::Copy, &[numbers.permuted(&[1, 0])], &[to])
}

/// A product with the numbers that integers and scales stand for.
fn weight_only_linear(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    scale: Tensor,
    weight_dtype: String,
    arch: i32,
    group_size: i32,
    out: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let numbers = numbers(&c, &weight, &scale, &weight_dtype, arch, group_size, dtype)?;
    linear(context, &c, x, numbers, bias, &out)
}

/// `x numbers^T + bias`.
fn linear(context: &Context, c: &Compose, x: Tensor, numbers: View, bias: Option<Tensor>, out: &Output) -> Result<()> {
    let layer = Linear { transpose_weight: true, bias: bias.is_some(), ..Linear::default() };
    let mut inputs = vec![x.view()?, numbers];
    if let Some(bias) = bias {
        let bias = bias.view()?;
        inputs.push(c.shaped(&bias, &[bias.len()])?);
    }
    let to = context.allocate(out, x.dtype()?)?;
    Ok(layer.run(context.queue(), &inputs, &[to])?)
}

fn numbers(
    c: &Compose,
    weight: &Tensor,
    scale: &Tensor,
    weight_dtype: &str,
    arch: i32,
    group_size: i32,
    dtype: DType,
) -> Result<View> {
    let bits = Bits::of_type(weight_dtype)?;
    if scale.dtype()? != dtype {
        return Err(refuse(
            "element type of weight_scale",
            format_args!("{}", scale.dtype()?),
            &format!("{dtype}, x's"),
        ));
    }
    Weight::stored(bits, arch, group_size, weight)?.numbers(c, weight, scale, dtype)
}

fn weight_only_linear_grad(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    _bias: Option<Tensor>,
    scale: Tensor,
    upstream: Tensor,
    weight_dtype: String,
    arch: i32,
    group_size: i32,
    dx: Output,
) -> Result<()> {
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let numbers = numbers(&c, &weight, &scale, &weight_dtype, arch, group_size, dtype)?;
    let to = context.allocate(&dx, dtype)?;
    Ok(Linear::default().run(context.queue(), &[upstream.view()?, numbers], &[to])?)
}
