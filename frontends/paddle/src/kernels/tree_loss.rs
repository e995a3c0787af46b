//! The loss of classes as leaves of a tree (hsigmoid_loss): at each node on the way a decision between two.

use super::compose::Compose;
use super::values::{SINGLE, dims, expect, expect_len, integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scatter::IndexAdd;
use openmps_graph::{DType, View};

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("hsigmoid_loss", SINGLE, hsigmoid_loss);
    table.add("hsigmoid_loss_grad", SINGLE, hsigmoid_loss_grad);
}

/// The way to each label: which nodes, which of their two sides, and which steps there are at all.
struct Ways {
    nodes: View,
    sides: View,
    there: View,
    dims: [usize; 2],
}

impl Ways {
    fn new(
        context: &Context,
        c: &Compose,
        label: &Tensor,
        weight: &Tensor,
        given: [Option<&Tensor>; 2],
        classes: i32,
    ) -> Result<Ways> {
        let [nodes, _] = dims("weight", weight)?;
        let (labels, dtype) = (integers(context, label)?, weight.dtype()?);
        let steps: Vec<Vec<(i64, bool)>> = match given {
            [Some(path), Some(code)] => Self::given(context, path, code, labels.len())?,
            _ => labels.iter().map(|&label| Self::complete(label, classes)).collect::<Result<_>>()?,
        };
        let longest = match given {
            [Some(path), Some(_)] => path.shape()[1],
            _ => (usize::BITS - (classes.max(2) as usize - 1).leading_zeros()) as usize,
        };
        if let Some((node, _)) = steps.iter().flatten().find(|(node, _)| *node >= nodes as i64) {
            return Err(refuse("label, path_table", node, &format!("nodes 0 to {}", nodes as i64 - 1)));
        }
        let padded = |of: fn(&(i64, bool)) -> i64| -> Vec<i64> {
            let row = |way: &Vec<(i64, bool)>| {
                way.iter().map(of).chain(std::iter::repeat(0)).take(longest).collect::<Vec<_>>()
            };
            steps.iter().flat_map(row).collect()
        };
        let dims = [labels.len(), longest];
        let upload = |numbers: Vec<i64>| -> Result<View> {
            let view = c.temporary(DType::I64, &dims)?;
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            if !bytes.is_empty() {
                context.queue().write(&view, &bytes)?;
            }
            Ok(view)
        };
        let nodes = upload(padded(|step| step.0))?;
        let sides = c.cast(&upload(padded(|step| step.1.into()))?, dtype)?;
        Ok(Ways { nodes, sides, there: c.cast(&upload(padded(|_| 1))?, dtype)?, dims })
    }

    /// In the complete tree: a class is the path of its number's bits, the highest first, and a node the bits before.
    fn complete(label: i64, classes: i32) -> Result<Vec<(i64, bool)>> {
        if !(0..i64::from(classes)).contains(&label) {
            return Err(refuse("label", label, &format!("classes 0 to {}", classes - 1)));
        }
        let code = label + i64::from(classes);
        let length = 63 - code.leading_zeros();
        Ok((0..length).map(|bit| ((code >> (bit + 1)) - 1, code >> bit & 1 == 1)).collect())
    }

    /// As tables say, each row up to its first negative number.
    fn given(context: &Context, path: &Tensor, code: &Tensor, count: usize) -> Result<Vec<Vec<(i64, bool)>>> {
        let [rows, length] = dims("path_table", path)?;
        expect("path_code", code, &[rows, length])?;
        if rows != count {
            return Err(refuse("path_table", path.shape(), &format!("a row for each of {count} labels")));
        }
        let (path, code) = (integers(context, path)?, integers(context, code)?);
        let steps = |row: usize| {
            let at = row * length..(row + 1) * length;
            let both = path[at.clone()].iter().zip(&code[at]);
            both.take_while(|(node, _)| **node >= 0).map(|(&node, &side)| (node, side != 0)).collect()
        };
        Ok((0..rows).map(steps).collect())
    }

    /// The weights of the nodes on each way.
    fn weights(&self, c: &Compose, weight: &View) -> Result<View> {
        let flat = c.shaped(&self.nodes, &[self.nodes.len()])?;
        let rows = c.apply(&Gather { axis: 0 }, &[weight.clone(), flat])?;
        c.shaped(&rows, &[self.dims[0], self.dims[1], weight.shape[1]])
    }
}

fn hsigmoid_loss(
    context: &Context,
    x: Tensor,
    label: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    path: Option<Tensor>,
    code: Option<Tensor>,
    classes: i32,
    _sparse: bool,
    out: Output,
    decisions: Output,
    _weight_out: Option<Output>,
) -> Result<()> {
    let ([count, width], dtype) = (dims("x", &x)?, x.dtype()?);
    expect_len("label", &label, count)?;
    let c = Compose::new(context);
    let ways = Ways::new(context, &c, &label, &weight, [path.as_ref(), code.as_ref()], classes)?;
    let column = c.shaped(&x.view()?, &[count, width, 1])?;
    let product = Matmul { transpose_left: false, transpose_right: false };
    let mut score = c.shaped(&c.apply(&product, &[ways.weights(&c, &weight.view()?)?, column])?, &ways.dims)?;
    if let Some(bias) = bias {
        let bias = bias.view()?;
        score = c.add(&score, &c.shaped(&ways.weights(&c, &c.shaped(&bias, &[bias.len(), 1])?)?, &ways.dims)?)?;
    }
    // Within the bounds that Paddle's exponential has, and 0 beyond the end of a way.
    let score = c.map(Elementwise::Unary(Unary::Clip), &[&c.multiply(&score, &ways.there)?], &[-40.0, 40.0])?;
    let taken = c.multiply(&score, &ways.sides)?;
    let power = c.map(Elementwise::Unary(Unary::Exp), &[&score], &[])?;
    let loss = c.map(Elementwise::Unary(Unary::Log1p), &[&power], &[])?;
    decisions.set_dims(&ways.dims);
    c.store_value(&decisions, dtype, &loss)?;
    c.store_value(&out, dtype, &c.reduce(Reduction::Sum, &c.subtract(&loss, &taken)?, &[1])?)
}

fn hsigmoid_loss_grad(
    context: &Context,
    x: Tensor,
    weight: Tensor,
    label: Tensor,
    path: Option<Tensor>,
    code: Option<Tensor>,
    _bias: Option<Tensor>,
    decisions: Tensor,
    upstream: Tensor,
    classes: i32,
    _sparse: bool,
    dx: Output,
    dweight: Option<Output>,
    dbias: Option<Output>,
) -> Result<()> {
    let ([count, width], dtype) = (dims("x", &x)?, x.dtype()?);
    let c = Compose::new(context);
    let ways = Ways::new(context, &c, &label, &weight, [path.as_ref(), code.as_ref()], classes)?;
    let power = c.map(Elementwise::Unary(Unary::Exp), &[&c.scale(&decisions.view()?, -1.0, 0.0)?], &[])?;
    let error = c.subtract(&c.scale(&power, -1.0, 1.0)?, &ways.sides)?;
    let error = c.multiply(&c.multiply(&error, &ways.there)?, &c.shaped(&upstream.view()?, &[count, 1])?)?;
    let flat = c.shaped(&ways.nodes, &[ways.nodes.len()])?;
    let summed = |value: &View, out: &Output, dims: &[usize]| -> Result<()> {
        let sum = c.constant(dtype, dims, 0.0)?;
        c.launch(&IndexAdd { axis: 0 }, &[sum.clone(), flat.clone(), value.clone()], std::slice::from_ref(&sum))?;
        c.store_value(out, dtype, &sum)
    };
    if let Some(dweight) = dweight {
        let (errors, rows) = (c.shaped(&error, &[count, ways.dims[1], 1])?, c.shaped(&x.view()?, &[count, 1, width])?);
        let outer = c.map(Elementwise::Binary(Binary::Multiply), &[&errors, &rows], &[])?;
        summed(&c.shaped(&outer, &[flat.len(), width])?, &dweight, &weight.shape())?;
    }
    if let Some(dbias) = dbias {
        summed(&c.shaped(&error, &[flat.len(), 1])?, &dbias, &[weight.shape()[0], 1])?;
    }
    let product = Matmul { transpose_left: false, transpose_right: false };
    let row = c.shaped(&error, &[count, 1, ways.dims[1]])?;
    c.store_value(&dx, dtype, &c.apply(&product, &[row, ways.weights(&c, &weight.view()?)?])?)
}
