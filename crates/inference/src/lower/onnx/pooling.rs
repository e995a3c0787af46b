//! Pooling of lines, images and volumes.

use super::reduction::Over;
use super::window::{Axis, axes, paddings, pair, spatial};
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, sizes_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::image::{ImageLayout, PaddingAlgorithm};
use openmps::operators::operators::elementwise::{Binary, Unary};
use openmps::operators::operators::pooling::{Pooling, PoolingType};
use openmps::operators::operators::reduce::Reduction;
use openmps::operators::operators::scatter::{PutAlongAxis, Reduce};
use openmps::operators::view::elements;

pub(super) const TABLE: Table = &[
    ("MaxPool", max_pool),
    ("MaxUnpool", max_unpool),
    ("AveragePool", average_pool),
    ("LpPool", norm_pool),
    ("GlobalMaxPool", |lowering, operation| global_pool(lowering, operation, Reduction::Maximum)),
    ("GlobalAveragePool", |lowering, operation| global_pool(lowering, operation, Reduction::Mean)),
];

/// What a window with gaps is reduced to.
#[derive(Clone, Copy, PartialEq)]
enum Fold {
    Largest,
    Mean,
    Sum,
}

fn window(operation: &Operation) -> Result<Vec<usize>> {
    let window = operation.integers("kernel_shape")?.ok_or_else(|| wrong(operation, "no window"))?;
    sizes_of(operation, window)
}

fn pooling(operation: &Operation, kind: PoolingType, axes: &[Axis]) -> Result<Pooling> {
    Ok(Pooling {
        kind,
        kernel_size: pair(axes, |axis| axis.kernel, 1),
        strides: pair(axes, |axis| axis.stride, 1),
        paddings: paddings(axes),
        padding_algorithm: PaddingAlgorithm::Explicit,
        ceil_mode: operation.flag("ceil_mode", false)?,
        exclusive: true,
        global: false,
        adaptive: false,
        indices: false,
        layout: ImageLayout::Nchw,
    })
}

/// Results, and the place of each among all elements where it is wanted.
fn max_pool(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let axes = axes(operation, spatial(operation, &shape)?, &window(operation)?)?;
    let wants_places = operation.outputs.get(1).is_some_and(Option::is_some);
    let dilated = axes.iter().any(|axis| axis.dilation != 1);
    if wants_places && (dilated || axes.len() > 2 || operation.flag("storage_order", false)?) {
        return Err(wrong(operation, "the places of volumes, of windows with gaps, or in the order of columns"));
    }
    if dilated {
        return Ok(vec![lowering.apart_pool(operation, Fold::Largest, &x, &axes)?]);
    }
    if !wants_places {
        return Ok(vec![lowering.pool(operation, PoolingType::Max, &x, &axes)?]);
    }
    let image = lowering.as_image(&x)?;
    let of = Pooling { indices: true, ..pooling(operation, PoolingType::Max, &axes)? };
    let [y, places] =
        <[Value; 2]>::try_from(lowering.apply(of, &[image])?).map_err(|_| wrong(operation, "two outputs"))?;
    let (planes, plane) = (shape[0] * shape[1], shape[2..].iter().product::<usize>());
    let firsts = super::integers((0..planes).map(|at| (at * plane) as i64));
    let firsts = lowering.reshape(&firsts, &[shape[0], shape[1], 1, 1])?;
    let places = lowering.cast(&places, openmps::DataType::I64)?;
    let places = lowering.binary(Binary::Add, &places, &firsts)?;
    Ok(vec![lowering.like_given(y, shape.len())?, lowering.like_given(places, shape.len())?])
}

/// Zeros, and each element at its place among all of them; a larger shape that is asked for has more zeros behind.
fn max_unpool(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    // Reading it runs the graph so far: what is made before belongs to that.
    let asked = match lowering.optional(operation, 2)? {
        Some(asked) => Some(lowering.known(&asked)?.data),
        None => None,
    };
    let (x, places) = (lowering.input(operation, 0)?, lowering.input(operation, 1)?);
    let shape = lowering.shape(&x)?;
    if lowering.shape(&places)? != shape {
        return Err(wrong(operation, "places of another shape than the elements"));
    }
    let axes = axes(operation, spatial(operation, &shape)?, &window(operation)?)?;
    let unpooled = |axis: &Axis| {
        let covered = axis.size.saturating_sub(1).saturating_mul(axis.stride).saturating_add(axis.kernel);
        covered.saturating_sub(axis.padding[0].saturating_add(axis.padding[1]))
    };
    let whole: Vec<usize> = shape[..2].iter().copied().chain(axes.iter().map(unpooled)).collect();
    let count = shape.iter().product();
    let zeros = lowering.filled(&[elements(&whole)?], lowering.data_type(&x)?, 0.0)?;
    let [x, places] = [x, places].map(|value| lowering.reshape(&value, &[count]));
    let put = PutAlongAxis { axis: 0, reduce: Reduce::Assign, include_self: true };
    let y = lowering.one(put, &[zeros, places?, x?])?;
    let mut y = lowering.reshape(&y, &whole)?;
    if let Some(asked) = asked {
        let asked = sizes_of(operation, asked.into_iter().map(|size| size as i64))?;
        if asked.len() != whole.len() || asked.iter().zip(&whole).any(|(asked, size)| asked < size) {
            return Err(wrong(operation, format!("the shape {asked:?}, where the elements are of {whole:?}")));
        }
        for (axis, (asked, size)) in asked.iter().zip(&whole).enumerate() {
            y = lowering.padded(&y, axis, [0, asked - size], 0.0)?;
        }
    }
    Ok(vec![y])
}

/// Where padding counts it is of zeros that are there.
fn average_pool(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    Ok(vec![lowering.average_pool(operation, x)?])
}

impl Lowering<'_> {
    /// An operation's means over windows.
    pub(super) fn average_pool(&mut self, operation: &Operation, mut x: Value) -> Result<Value> {
        let shape = self.shape(&x)?;
        let mut axes = axes(operation, spatial(operation, &shape)?, &window(operation)?)?;
        let given = axes.clone();
        if operation.flag("count_include_pad", false)? {
            for (at, axis) in axes.iter_mut().enumerate() {
                x = self.padded(&x, 2 + at, axis.padding, 0.0)?;
                axis.size += axis.padding[0] + axis.padding[1];
                axis.padding = [0, 0];
            }
        }
        let y = match axes.iter().any(|axis| axis.dilation != 1) {
            true => self.apart_pool(operation, Fold::Mean, &x, &axes)?,
            false => self.pool(operation, PoolingType::Average, &x, &axes)?,
        };
        self.windows_of(operation, y, &given)
    }

    /// Windows over lines, images or volumes; those of volumes first in planes, then through them.
    fn pool(&mut self, operation: &Operation, kind: PoolingType, x: &Value, axes: &[Axis]) -> Result<Value> {
        let dtype = self.data_type(x)?;
        if !dtype.is_float() {
            let wide = self.cast(x, DataType::F32)?;
            let y = self.pool(operation, kind, &wide, axes)?;
            return self.cast(&y, dtype);
        }
        let shape = self.shape(x)?;
        let y = match axes {
            [depth, height, width] => {
                let planes = self.reshape(x, &[shape[0], shape[1] * shape[2], shape[3], shape[4]])?;
                let planes = self.one(pooling(operation, kind, &[*height, *width])?, &[planes])?;
                let [_, _, rows, columns] = <[usize; 4]>::try_from(self.shape(&planes)?).unwrap_or_default();
                let through = self.reshape(&planes, &[shape[0], shape[1], shape[2], rows * columns])?;
                let single = Axis { size: rows * columns, kernel: 1, stride: 1, dilation: 1, padding: [0, 0] };
                let y = self.one(pooling(operation, kind, &[*depth, single])?, &[through])?;
                let depth = self.shape(&y)?.get(2).copied().unwrap_or(0);
                self.reshape(&y, &[shape[0], shape[1], depth, rows, columns])?
            }
            _ => {
                let image = self.as_image(x)?;
                let y = self.one(pooling(operation, kind, axes)?, &[image])?;
                self.like_given(y, shape.len())?
            }
        };
        self.windows_of(operation, y, axes)
    }

    /// A pooled image without windows that begin behind the image.
    fn windows_of(&mut self, operation: &Operation, mut y: Value, axes: &[Axis]) -> Result<Value> {
        let ceil = operation.flag("ceil_mode", false)?;
        for (at, axis) in axes.iter().enumerate() {
            if self.shape(&y)?[2 + at] > axis.outputs(ceil) {
                y = self.narrow(&y, 2 + at, 0, axis.outputs(ceil))?;
            }
        }
        Ok(y)
    }

    /// Windows with gaps: slices, one axis after the other.
    fn apart_pool(&mut self, operation: &Operation, fold: Fold, x: &Value, axes: &[Axis]) -> Result<Value> {
        let (ceil, dtype) = (operation.flag("ceil_mode", false)?, self.data_type(x)?);
        let (outside, binary) = match fold {
            Fold::Largest => (dtype.bounds().0, Binary::Maximum),
            Fold::Mean | Fold::Sum => (0.0, Binary::Add),
        };
        let mut y = x.clone();
        for (at, axis) in axes.iter().enumerate() {
            let outputs = axis.outputs(ceil);
            if outputs == 0 {
                return Err(wrong(
                    operation,
                    format!("a window over {} elements of {}", axis.reach(), axis.padded_size()),
                ));
            }
            let needed = outputs.saturating_sub(1) * axis.stride + axis.reach();
            let behind = needed.saturating_sub(axis.size + axis.padding[0]);
            let whole = self.padded(&y, 2 + at, [axis.padding[0], behind], outside)?;
            y = self.every(&whole, 2 + at, 0, axis.stride, outputs)?;
            for tap in 1..axis.kernel {
                let other = self.every(&whole, 2 + at, tap * axis.dilation, axis.stride, outputs)?;
                y = self.binary(binary, &y, &other)?;
            }
            if fold == Fold::Mean {
                let along = super::along(axes.len() + 2, 2 + at, outputs);
                let shares = (0..outputs).map(|output| 1.0 / axis.inside(output) as f64).collect();
                let shares = Value::Known(Array::new(&along, shares, dtype));
                y = self.binary(Binary::Multiply, &y, &shares)?;
            }
        }
        Ok(y)
    }
}

/// The norm of each window's elements: the p-th root of the sum of their p-th powers.
fn norm_pool(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let axes = axes(operation, spatial(operation, &shape)?, &window(operation)?)?;
    let p = operation.float("p", 2.0)?;
    let size = lowering.unary(Unary::Abs, &x)?;
    let powers = lowering.raised(&size, p)?;
    let sum = lowering.apart_pool(operation, Fold::Sum, &powers, &axes)?;
    Ok(vec![lowering.raised(&sum, 1.0 / p)?])
}

fn global_pool(lowering: &mut Lowering, operation: &Operation, reduction: Reduction) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let rank = lowering.shape(&x)?.len() as i64;
    let over = Over { axes: (2..rank).collect(), keep_dims: true };
    Ok(vec![lowering.reduced(reduction, &x, &over)?])
}
