//! put_along_axis and its gradients, of every reduction: formulas over tensors.

use super::compose::Compose;
use super::movement::many;
use crate::error::{Error, Result};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary, run};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::scatter::{PutAlongAxis, Reduce};
use openmps_graph::operators::sequence::Arange;
use openmps_graph::{DType, View};
use openmps_tile::Number;
use openmps_tile::dtype::NUMBERS;

const DIVIDE: Elementwise = Elementwise::Binary(Binary::Divide);
const EQUAL: Elementwise = Elementwise::Binary(Binary::Equal);

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("put_along_axis", NUMBERS, put_along_axis).strided();
    table.add("put_along_axis_grad", NUMBERS, put_along_axis_grad).strided();
}

fn reduce_of(name: &str) -> Result<Reduce> {
    Ok(match name {
        "assign" => Reduce::Assign,
        "add" => Reduce::Add,
        "mul" | "multiply" => Reduce::Multiply,
        "amin" => Reduce::Minimum,
        "amax" => Reduce::Maximum,
        "mean" => Reduce::Mean,
        other => {
            let expected = "assign, add, mul, multiply, amin, amax or mean".to_owned();
            return Err(Error::Attribute { attribute: "reduce", got: other.to_owned(), expected });
        }
    })
}

/// One value for each index: values are repeated where there are fewer, and only the first count where there are more.
fn fitted(value: View, dims: &[usize]) -> View {
    if let Some(value) = value.broadcast_to(dims) {
        return value;
    }
    let covers = value.rank() == dims.len() && value.shape.iter().zip(dims).all(|(own, size)| own >= size);
    if covers { (0..dims.len()).fold(value, |value, axis| value.narrowed(axis, 0, 1, dims[axis])) } else { value }
}

fn put_along_axis(
    context: &Context,
    x: Tensor,
    index: Tensor,
    value: Tensor,
    axis: i32,
    reduce: String,
    include_self: bool,
    out: Output,
) -> Result<()> {
    let index = index.view()?;
    let value = fitted(value.view()?, &index.shape);
    let operator = PutAlongAxis { axis: axis.into(), reduce: reduce_of(&reduce)?, include_self };
    many(context, &operator, &[x.view()?, index, value], &[Some(&out)])
}

/// What the gradients are made of.
struct Gradients<'a> {
    c: Compose<'a>,
    axis: i64,
    include_self: bool,
    index: View,
    x: View,
    /// One for each index.
    value: View,
    out: View,
    upstream: View,
}

/// The gradient of the tensor, and one for each index.
type Pair = (View, View);

impl Gradients<'_> {
    fn take(&self, x: &View) -> Result<View> {
        let operator = TakeAlongAxis { axis: self.axis, negative: Negative::FromEnd };
        self.c.apply(&operator, &[x.clone(), self.index.clone()])
    }

    fn put(&self, reduce: Reduce, include_self: bool, base: &View, value: &View) -> Result<View> {
        let operator = PutAlongAxis { axis: self.axis, reduce, include_self };
        self.c.apply(&operator, &[base.clone(), self.index.clone(), value.clone()])
    }

    fn all(&self, number: f64, like: &View, dtype: DType) -> Result<View> {
        let to = self.c.temporary(dtype, &like.shape)?;
        self.c.fill(&to, number)?;
        Ok(to)
    }

    fn numbers(&self, number: f64, like: &View) -> Result<View> {
        self.all(number, like, self.upstream.dtype)
    }

    fn divide(&self, x: &View, y: &View) -> Result<View> {
        self.c.map(DIVIDE, &[x, y], &[])
    }

    /// 1 where the two are equal, 0 elsewhere.
    fn equal(&self, x: &View, y: &View) -> Result<View> {
        self.c.cast(&self.c.map(EQUAL, &[x, y], &[])?, self.upstream.dtype)
    }

    /// 1 where x is zero.
    fn zero(&self, x: &View) -> Result<View> {
        self.equal(x, &self.numbers(0.0, x)?)
    }

    fn add(&self, x: &View, y: &View) -> Result<View> {
        self.c.map(Elementwise::Binary(Binary::Add), &[x, y], &[])
    }

    /// The upstream gradient but where indices point.
    fn untouched(&self) -> Result<View> {
        self.put(Reduce::Assign, true, &self.upstream, &self.numbers(0.0, &self.index)?)
    }

    /// `own` where the tensor's own value counts.
    fn own(&self, own: impl FnOnce() -> Result<View>) -> Result<View> {
        if self.include_self { own() } else { self.untouched() }
    }

    /// Of several values for one element the last has stayed, and has the gradient.
    fn assign(&self) -> Result<Pair> {
        let len = self.index.len();
        let numbers = Arange { start: Number::Integer(0), step: Number::Integer(1), len, dtype: DType::I64 };
        let numbers = self.c.shaped(&self.c.apply(&numbers, &[])?, &self.index.shape)?;
        let last = self.put(Reduce::Assign, true, &self.all(0.0, &self.x, DType::I64)?, &numbers)?;
        let stayed = self.equal(&self.take(&last)?, &numbers)?;
        Ok((self.untouched()?, self.c.multiply(&self.take(&self.upstream)?, &stayed)?))
    }

    fn sum(&self) -> Result<Pair> {
        Ok((self.own(|| Ok(self.upstream.clone()))?, self.take(&self.upstream)?))
    }

    /// The product of all factors but one, for each; zeros are counted, and not divided by.
    fn product(&self) -> Result<Pair> {
        let (zero, zero_x) = (self.zero(&self.value)?, self.zero(&self.x)?);
        let factor = self.add(&self.value, &zero)?;
        let product = self.put(Reduce::Multiply, self.include_self, &self.numbers(1.0, &self.x)?, &factor)?;
        let zeros = self.put(Reduce::Add, true, &self.numbers(0.0, &self.x)?, &zero)?;
        let of_values = self.c.multiply(&self.upstream, &product)?;
        let own = self.own(|| self.c.multiply(&of_values, &self.zero(&zeros)?))?;
        let (all, zeros) = if self.include_self {
            (self.c.multiply(&of_values, &self.add(&self.x, &zero_x)?)?, self.add(&zeros, &zero_x)?)
        } else {
            (of_values, zeros)
        };
        let others = self.equal(&self.take(&zeros)?, &zero)?;
        Ok((own, self.c.multiply(&self.divide(&self.take(&all)?, &factor)?, &others)?))
    }

    fn mean(&self) -> Result<Pair> {
        let (ones, one) = (self.numbers(1.0, &self.x)?, self.numbers(1.0, &self.index)?);
        let shares = self.divide(&self.upstream, &self.put(Reduce::Add, self.include_self, &ones, &one)?)?;
        let taken = self.take(&shares)?;
        Ok((self.own(|| Ok(shares))?, taken))
    }

    /// Values that are equal to the extreme share its gradient.
    fn extreme(&self) -> Result<Pair> {
        let ties = self.equal(&self.value, &self.take(&self.out)?)?;
        let own = if self.include_self { self.equal(&self.x, &self.out)? } else { self.numbers(0.0, &self.x)? };
        let count = self.put(Reduce::Add, true, &own, &ties)?;
        let shares = self.divide(&self.upstream, &self.add(&count, &self.zero(&count)?)?)?;
        let gradient = self.c.multiply(&self.take(&shares)?, &ties)?;
        Ok((self.own(|| self.c.multiply(&shares, &own))?, gradient))
    }
}

/// A gradient for each index as one of the values, which may be fewer or more.
fn store_of_values(
    context: &Context,
    c: &Compose,
    gradient: &View,
    value: &Tensor,
    out: &Output,
    dtype: DType,
) -> Result<()> {
    let dims = value.shape();
    out.set_dims(&dims);
    if View::dense(0, dtype, &dims)?.broadcast_to(&gradient.shape).is_some() {
        return c.store_value(out, dtype, gradient);
    }
    let whole = c.temporary(gradient.dtype, &dims)?;
    c.fill(&whole, 0.0)?;
    let part = fitted(whole.clone(), &gradient.shape);
    run(Elementwise::Unary(Unary::Cast), context.queue(), &[gradient], &[], &part)?;
    c.store_value(out, dtype, &whole)
}

fn put_along_axis_grad(
    context: &Context,
    x: Tensor,
    index: Tensor,
    value: Tensor,
    out: Tensor,
    gradient: Tensor,
    axis: i32,
    reduce: String,
    include_self: bool,
    x_gradient: Option<Output>,
    value_gradient: Option<Output>,
) -> Result<()> {
    let (c, dtype, index) = (Compose::new(context), gradient.dtype()?, index.view()?);
    let (given, x, out) = (fitted(c.input(&value)?, &index.shape), c.input(&x)?, c.input(&out)?);
    let upstream = c.input(&gradient)?;
    let gradients = Gradients { c, axis: axis.into(), include_self, index, x, value: given, out, upstream };
    let (own, of_values) = match reduce_of(&reduce)? {
        Reduce::Assign => gradients.assign(),
        Reduce::Add => gradients.sum(),
        Reduce::Multiply => gradients.product(),
        Reduce::Mean => gradients.mean(),
        Reduce::Minimum | Reduce::Maximum => gradients.extreme(),
    }?;
    // Paddle may make x's gradient in the memory of the upstream one: it is written last.
    if let Some(out) = value_gradient {
        store_of_values(context, &gradients.c, &of_values, &value, &out, dtype)?;
    }
    x_gradient.map_or(Ok(()), |out| gradients.c.store_value(&out, dtype, &own))
}
