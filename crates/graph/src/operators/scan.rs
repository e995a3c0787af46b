//! Running sums and products along an axis: cumulative_sum, cumulative_product and the latter's gradient.

mod tiles;

use crate::entry::{Case, Entry, Input, Values};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{
    Dense, axis_of, call, check_dense, expect_dtype, expect_inputs, expect_shape, lines, takes_native,
};
use crate::operator::{Meta, Operator};
use crate::operators::flip::Flip;
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::{View, shape_of};
use openmps_host::by_type;
use openmps_host::native::lines::Lines;
use openmps_host::native::scan;
pub use openmps_host::native::scan::Scan as Kind;
use openmps_tile::{DType, dtype};

/// The sum or product of the elements up to each element.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Sum or product.
    pub kind: Kind,
    /// The axis along which; `None` flattens the tensor first.
    pub axis: Option<i64>,
    /// Leaves the element itself out.
    pub exclusive: bool,
    /// From the end to the start.
    pub reverse: bool,
}

impl Scan {
    fn lines(&self, shape: &[usize]) -> Result<Lines> {
        match self.axis {
            Some(axis) if !shape.is_empty() => Ok(lines(shape, axis_of(self.name(), axis, shape.len())?)),
            Some(axis) => axis_of(self.name(), axis, 1).map(|_| Lines { outer: 1, size: 1, inner: 1 }),
            None => Ok(Lines { outer: 1, size: shape.iter().product(), inner: 1 }),
        }
    }
}

impl Operator for Scan {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Sum => "cumulative_sum",
            Kind::Product => "cumulative_product",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        let lines = self.lines(&inputs[0].shape)?;
        let shape = if self.axis.is_none() { shape_of(&[lines.size])? } else { inputs[0].shape.clone() };
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let lines = self.lines(&inputs[0].shape)?;
        if !takes_native(queue, true) {
            return tiles::run(self, queue, &inputs[0], &outputs[0]);
        }
        call(queue, self.name(), || {
            let x = Dense::of(&inputs[0]);
            // SAFETY: dense tensors of the checked shapes.
            by_type!(inputs[0].dtype, T => unsafe {
                scan::scan::<T>(self.kind, x.address, outputs[0].address, lines, self.exclusive, self.reverse)
            });
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (x, y, dy) = (b.inputs[0], b.outputs[0], b.dy()?);
        let dims = b.shape(x);
        let gradient = match self.kind {
            Kind::Sum => b.one(Scan { reverse: !self.reverse, ..*self }, &[dy])?,
            Kind::Product if self.exclusive => {
                return Err(Error::NoGradient { operator: "an exclusive running product" });
            }
            Kind::Product => {
                let axis = self.axis.unwrap_or(0);
                let turned = |b: &mut Backward<'_>, x| match self.reverse {
                    true => b.one(Flip { axes: vec![axis] }, &[x]),
                    false => Ok(x),
                };
                let lines = if dims.is_empty() { [1].into_iter().collect() } else { b.shape(y) };
                let operands = [b.reshape(x, &lines)?, b.reshape(y, &lines)?, b.reshape(dy, &lines)?];
                let operands = [turned(b, operands[0])?, turned(b, operands[1])?, turned(b, operands[2])?];
                let gradient = b.one(ProductGradient { axis }, &operands)?;
                turned(b, gradient)?
            }
        };
        Ok(vec![Some(b.reshape(gradient, &dims)?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let Lines { size, inner, .. } = self.lines(&x.shape).expect("checked by infer");
        let value = |flat: usize| {
            let (own, base) = (flat / inner % size, flat / inner / size * size);
            let before = if self.reverse { own..size } else { 0..own + 1 };
            let counted = before.filter(|&i| !(self.exclusive && i == own));
            let values = counted.map(|i| x.data[(base + i) * inner + flat % inner]);
            match self.kind {
                Kind::Sum => values.sum(),
                Kind::Product => values.product(),
            }
        };
        let data: Vec<f64> = (0..x.data.len()).map(value).collect();
        let flat = [data.len()];
        vec![Array::new(if self.axis.is_none() { &flat } else { &x.shape }, data, x.dtype)]
    }
}

/// The gradient of a running product, forwards and inclusive; inputs: x, the products, their gradient. Zeros are exact.
#[derive(Clone, Copy, Debug)]
pub struct ProductGradient {
    /// The axis of the product.
    pub axis: i64,
}

impl Operator for ProductGradient {
    fn name(&self) -> &'static str {
        "cumulative_product_gradient"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 3)?;
        expect_shape(self.name(), "products", &inputs[1].shape, &inputs[0].shape)?;
        expect_shape(self.name(), "gradient", &inputs[2].shape, &inputs[0].shape)?;
        expect_dtype(self.name(), "x", inputs[0].dtype, dtype::FLOATS)?;
        expect_dtype(self.name(), "products", inputs[1].dtype, &[inputs[0].dtype])?;
        expect_dtype(self.name(), "gradient", inputs[2].dtype, &[inputs[0].dtype])?;
        axis_of(self.name(), self.axis, inputs[0].shape.len().max(1))?;
        Ok(vec![inputs[0].clone()])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let whole = Scan { kind: Kind::Product, axis: Some(self.axis), exclusive: false, reverse: false };
        let lines = whole.lines(&inputs[0].shape)?;
        call(queue, self.name(), || {
            let [x, y, dy] = [0, 1, 2].map(|i| Dense::of(&inputs[i]));
            // SAFETY: dense tensors of the checked shapes.
            by_type!(inputs[0].dtype, T => unsafe {
                scan::product_gradient::<T>(x.address, y.address, dy.address, outputs[0].address, lines)
            });
            Ok(())
        })
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let (x, dy) = (&inputs[0], &inputs[2]);
        let whole = Scan { kind: Kind::Product, axis: Some(self.axis), exclusive: false, reverse: false };
        let Lines { size, inner, .. } = whole.lines(&x.shape).expect("checked by infer");
        let value = |flat: usize| {
            let (own, base) = (flat / inner % size, flat / inner / size * size);
            let at = |i: usize| (base + i) * inner + flat % inner;
            let others = |end: usize| (0..=end).filter(|&i| i != own).map(|i| x.data[at(i)]).product::<f64>();
            (own..size).map(|end| dy.data[at(end)] * others(end)).sum()
        };
        vec![Array::new(&x.shape, (0..x.data.len()).map(value).collect(), x.dtype)]
    }
}

fn shapes(kind: Kind, values: Values) -> Vec<Case> {
    let mut cases = Vec::new();
    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        for (axis, dims) in [
            (Some(0), &[][..]),
            (Some(0), &[9]),
            (Some(-1), &[3, 7]),
            (Some(0), &[6, 70]),
            (Some(-1), &[2, 1100]),
            (Some(1), &[2, 5, 3]),
            (Some(1), &[2, 0, 3]),
            (None, &[3, 4]),
        ] {
            cases.push(Case::new(Scan { kind, axis, exclusive, reverse }, vec![Input::of(dims, values.clone())]));
        }
    }
    cases
}

/// For the list of operators. Positive values, because the error of a sum that cancels has no bound in its own size.
pub static SUM: Entry = Entry {
    name: "cumulative_sum",
    summary: "Running sums along an axis.",
    // Sums of bytes wrap, which the references do not.
    dtypes: &[DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16, DType::F32, DType::F64],
    cases: || shapes(Kind::Sum, Values::Uniform(0.0, 3.0)),
    // In float64 every step rounds, and there is nothing wider to sum up in.
    tolerance: 32.0,
};

/// For the list of operators.
pub static PRODUCT: Entry = Entry {
    name: "cumulative_product",
    summary: "Running products along an axis.",
    dtypes: dtype::FLOATS,
    cases: || shapes(Kind::Product, Values::Uniform(0.5, 1.5)),
    tolerance: 32.0,
};

/// For the list of operators.
pub static PRODUCT_GRADIENT: Entry = Entry {
    name: "cumulative_product_gradient",
    summary: "The gradient of running products, exact at zeros.",
    dtypes: &[DType::F32, DType::F64],
    cases: || {
        let case = |axis, dims: &[usize], values: &[f64]| {
            // The products themselves: the reference does not need them, the kernel does.
            let x =
                Array::new(dims, (0..dims.iter().product()).map(|i| values[i % values.len()]).collect(), DType::F64);
            let products =
                Scan { kind: Kind::Product, axis: Some(axis), exclusive: false, reverse: false }.reference(&[x]);
            let given = |values: &[f64]| Input::of(dims, Values::Given(values.to_vec()));
            let gradient = Input::of(dims, Values::Uniform(0.5, 1.5));
            Case::new(ProductGradient { axis }, vec![given(values), given(&products[0].data), gradient])
        };
        vec![
            case(0, &[5], &[2.0, 0.5, 1.5]),
            case(1, &[2, 4, 3], &[2.0, 0.0, 1.5, 0.5, 1.0]),
            case(-1, &[2, 3], &[0.0]),
        ]
    },
    tolerance: 4.0,
};
