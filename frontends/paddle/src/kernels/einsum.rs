//! Sums of products by letters of axes: `einsum` of one or two operands, real or complex, and its gradients, which are such sums again.

use super::complex_arithmetic::Complex;
use super::compose::Compose;
use super::linear_algebra::product;
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::{DType, Operator, View};
use std::collections::HashMap;

const TYPES: &[DType] = &[DType::F32, DType::F64, DType::F16, DType::BF16];

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("einsum", TYPES, einsum).strided();
    table.add("einsum_infer", TYPES, einsum_infer).strided();
    table.add("einsum_grad", TYPES, einsum_grad).strided();
    table.add_complex("einsum", einsum_complex).strided();
    table.add_complex("einsum_infer", einsum_infer_complex).strided();
    table.add_complex("einsum_grad", einsum_grad_complex).strided();
}

/// The letters of the operands and of the result, and how long each letter's axes are.
struct Equation {
    operands: Vec<Vec<char>>,
    result: Vec<char>,
    sizes: HashMap<char, usize>,
}

impl Equation {
    fn new(text: &str, shapes: &[Vec<usize>]) -> Result<Equation> {
        let wrong = |expected: &str| refuse("equation", text, expected);
        let (left, right) = text.split_once("->").ok_or_else(|| wrong("operands -> result"))?;
        let letters = |part: &str| part.chars().filter(|letter| !letter.is_whitespace()).collect::<Vec<char>>();
        let (operands, result) = (left.split(',').map(letters).collect::<Vec<_>>(), letters(right));
        if !(1..=2).contains(&operands.len()) || operands.len() != shapes.len() {
            return Err(wrong("one or two operands, each with its letters"));
        }
        let mut sizes = HashMap::new();
        for (letters, shape) in operands.iter().zip(shapes) {
            if letters.len() != shape.len() || !letters.iter().all(char::is_ascii_alphabetic) {
                return Err(wrong(&format!("a letter for each axis of {shapes:?}")));
            }
            for (&letter, &size) in letters.iter().zip(shape) {
                let known = sizes.entry(letter).or_insert(size);
                if *known == 1 {
                    *known = size;
                }
                if size != *known && size != 1 {
                    return Err(wrong(&format!("axes `{letter}` of one size in {shapes:?}")));
                }
            }
        }
        if !result.iter().all(|letter| sizes.contains_key(letter)) {
            return Err(wrong("letters of the operands in the result"));
        }
        Ok(Equation { operands, result, sizes })
    }

    fn of(&self, letters: &[char]) -> Vec<usize> {
        letters.iter().map(|letter| self.sizes[letter]).collect()
    }

    /// An operand with each of its letters once: along letters that come twice its diagonal, repeated where its axis is of size 1.
    fn diagonal(&self, x: &View, letters: &[char]) -> Result<(View, Vec<char>)> {
        let own = unique(letters);
        let mut strides = vec![0; own.len()];
        for (axis, letter) in letters.iter().enumerate() {
            let at = own.iter().position(|other| other == letter).unwrap_or(0);
            strides[at] += if x.shape[axis] == 1 { 0 } else { x.strides[axis] };
        }
        Ok((View::strided(x.address, x.dtype, &self.of(&own), &strides)?, own))
    }

    /// The result of one operand or two with these letters.
    fn contract(&self, c: &Compose, operands: &[(View, &[char])], result: &[char]) -> Result<View> {
        let others = |number: usize| -> Vec<char> {
            operands.iter().enumerate().filter(|(other, _)| *other != number).flat_map(|(_, x)| x.1).copied().collect()
        };
        let mut reduced = Vec::new();
        for (number, (x, letters)) in operands.iter().enumerate() {
            let (mut x, mut own) = self.diagonal(x, letters)?;
            let others = others(number);
            // What only this operand has is summed first.
            let is_lone = |letter: &char| !result.contains(letter) && !others.contains(letter);
            let axes: Vec<i64> = (0..own.len()).filter(|&axis| is_lone(&own[axis])).map(|axis| axis as i64).collect();
            if !axes.is_empty() {
                x = c.reduce(Reduction::Sum, &x, &axes)?;
                for &axis in axes.iter().rev() {
                    x = x.without_axis(axis as usize);
                    own.remove(axis as usize);
                }
            }
            reduced.push((x, own));
        }
        let [(x, of_x), (y, of_y)] = reduced.as_slice() else {
            let (x, own) = &reduced[0];
            return dense(c, &ordered(x, own, result));
        };
        let has = |letters: &[char], letter: &char| letters.contains(letter);
        let filtered = |from: &[char], keep: &dyn Fn(&char) -> bool| -> Vec<char> {
            from.iter().filter(|letter| keep(letter)).copied().collect()
        };
        let batch = filtered(of_x, &|letter| has(of_y, letter) && has(result, letter));
        let summed = filtered(of_x, &|letter| has(of_y, letter) && !has(result, letter));
        let left = filtered(of_x, &|letter| !has(of_y, letter));
        let right = filtered(of_y, &|letter| !has(of_x, letter));
        let size = |letters: &[char]| self.of(letters).iter().product::<usize>();
        let grouped = |x: &View, own: &[char], first: &[char], second: &[char]| {
            let all = dense(c, &ordered(x, own, &[&batch, first, second].concat()))?;
            c.shaped(&all, &[size(&batch), size(first), size(second)])
        };
        let (x, y) = (grouped(x, of_x, &left, &summed)?, grouped(y, of_y, &summed, &right)?);
        let found = if summed.is_empty() { c.multiply(&x, &y)? } else { product(c, (&x, false), (&y, false))? };
        let letters = [&batch[..], &left, &right].concat();
        dense(c, &ordered(&c.shaped(&found, &self.of(&letters))?, &letters, result))
    }

    /// The letters of an operand that its gradient depends on: along the others, which were summed alone, it is the same everywhere.
    fn kept(&self, number: usize) -> Vec<char> {
        let others =
            |letter: &char| self.operands.iter().enumerate().any(|(at, of)| at != number && of.contains(letter));
        unique(&self.operands[number])
            .into_iter()
            .filter(|letter| self.result.contains(letter) || others(letter))
            .collect()
    }

    /// What an operand's gradient is the sum of: the upstream gradient and the other operand.
    fn of_gradient<'a>(&'a self, number: usize, upstream: &View, operands: &[View]) -> Vec<(View, &'a [char])> {
        let others = (0..operands.len()).filter(|&other| other != number);
        let others = others.map(|other| (operands[other].clone(), &self.operands[other][..]));
        std::iter::once((upstream.clone(), &self.result[..])).chain(others).collect()
    }

    /// Writes a gradient with the letters of [`Equation::kept`] to where its operand's elements were read.
    fn spread(&self, c: &Compose, number: usize, value: &View, to: &View) -> Result<()> {
        let letters = &self.operands[number];
        let (own, kept) = (unique(letters), self.kept(number));
        // Along letters that were summed alone the gradient is repeated; along axes of size 1 it is summed.
        let sizes = kept.iter().map(|letter| self.sizes[letter]);
        let strides = value.strides.iter().zip(sizes).map(|(&stride, size)| if size == 1 { 0 } else { stride });
        let of_kept: HashMap<char, isize> = kept.iter().copied().zip(strides).collect();
        let strides: Vec<isize> = own.iter().map(|letter| of_kept.get(letter).copied().unwrap_or(0)).collect();
        let all = View::strided(value.address, value.dtype, &self.of(&own), &strides)?;
        let size_of =
            |letter: &char| letters.iter().zip(&to.shape).find(|(other, _)| *other == letter).map(|(_, &size)| size);
        let axes: Vec<i64> = own
            .iter()
            .enumerate()
            .filter(|(_, letter)| size_of(letter) == Some(1) && self.sizes[letter] != 1)
            .map(|(axis, _)| axis as i64)
            .collect();
        let all = if axes.is_empty() { all } else { c.reduce(Reduction::Sum, &all, &axes)? };
        write_diagonal(c, &all, to, letters)
    }
}

/// Each letter once.
fn unique(letters: &[char]) -> Vec<char> {
    let mut own: Vec<char> = Vec::new();
    for &letter in letters {
        if !own.contains(&letter) {
            own.push(letter);
        }
    }
    own
}

/// Writes a tensor with each letter once to one whose axes have these letters: along one that comes twice to the diagonal, among zeros.
fn write_diagonal(c: &Compose, x: &View, to: &View, letters: &[char]) -> Result<()> {
    let own = unique(letters);
    let mut strides = vec![0; own.len()];
    for (axis, letter) in letters.iter().enumerate() {
        strides[own.iter().position(|other| other == letter).unwrap_or(0)] += to.strides[axis];
    }
    if own.len() < letters.len() && !to.is_empty() {
        c.fill(to, 0.0)?;
    }
    let diagonal = View::strided(to.address, to.dtype, &x.shape, &strides)?;
    c.launch(&Copy, std::slice::from_ref(x), &[diagonal])
}

/// The axes in the order of other letters, of which there are as many.
fn ordered(x: &View, letters: &[char], wanted: &[char]) -> View {
    let axes: Vec<usize> =
        wanted.iter().filter_map(|letter| letters.iter().position(|other| other == letter)).collect();
    x.permuted(&axes)
}

fn dense(c: &Compose, x: &View) -> Result<View> {
    if x.is_dense() {
        return Ok(x.clone());
    }
    c.apply(&Copy, std::slice::from_ref(x))
}

fn equation(text: &str, operands: &[Tensor]) -> Result<Equation> {
    Equation::new(text, &operands.iter().map(|x| x.shape().to_vec()).collect::<Vec<_>>())
}

/// Paddle hands the shapes of the operands to the gradient, and of their elements what was kept: here the operands as they are.
fn keep(context: &Context, operands: &[Tensor], cache: Vec<Option<Output>>) -> Result<()> {
    for (operand, kept) in operands.iter().zip(cache) {
        let Some(kept) = kept else { continue };
        kept.set_dims(&operand.shape());
        let (from, to) = (operand.bytes_view()?, context.allocate_bytes(&kept, operand.data_type())?);
        Copy.run(context.queue(), &[from], &[to])?;
    }
    Ok(())
}

fn einsum_infer(context: &Context, operands: Vec<Tensor>, text: String, out: Output) -> Result<()> {
    let (c, equation) = (Compose::new(context), equation(&text, &operands)?);
    let views = operands.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    let pairs: Vec<(View, &[char])> = views.into_iter().zip(equation.operands.iter().map(Vec::as_slice)).collect();
    let value = equation.contract(&c, &pairs, &unique(&equation.result))?;
    out.set_dims(&equation.of(&equation.result));
    write_diagonal(&c, &value, &c.place(&out, value.dtype)?, &equation.result)
}

fn einsum(
    context: &Context,
    operands: Vec<Tensor>,
    text: String,
    out: Output,
    cache: Vec<Option<Output>>,
    _shapes: Vec<Option<Output>>,
) -> Result<()> {
    keep(context, &operands, cache)?;
    einsum_infer(context, operands, text, out)
}

fn einsum_grad(
    context: &Context,
    _shapes: Vec<Tensor>,
    operands: Vec<Tensor>,
    upstream: Tensor,
    text: String,
    outputs: Vec<Option<Output>>,
) -> Result<()> {
    let (c, equation, upstream) = (Compose::new(context), equation(&text, &operands)?, upstream.view()?);
    let views = operands.iter().map(Tensor::view).collect::<Result<Vec<View>>>()?;
    for (number, out) in outputs.iter().enumerate() {
        let Some(out) = out else { continue };
        let terms = equation.of_gradient(number, &upstream, &views);
        let value = equation.contract(&c, &terms, &equation.kept(number))?;
        out.set_dims(&views[number].shape);
        equation.spread(&c, number, &value, &c.place(out, views[number].dtype)?)?;
    }
    Ok(())
}

/// The sum of products of complex operands: of one, part by part; of two, four of them.
fn contract_complex(
    c: &Compose,
    equation: &Equation,
    operands: &[(Complex, &[char])],
    result: &[char],
) -> Result<Complex> {
    match operands {
        [(x, of_x), (y, of_y)] => {
            x.product(c, y, |x, y| equation.contract(c, &[(x.clone(), of_x), (y.clone(), of_y)], result))
        }
        _ => operands[0].0.made(|x| equation.contract(c, &[(x.clone(), operands[0].1)], result)),
    }
}

fn einsum_infer_complex(context: &Context, operands: Vec<Tensor>, text: String, out: Output) -> Result<()> {
    let (c, equation) = (Compose::new(context), equation(&text, &operands)?);
    let numbers = operands.iter().map(Complex::of).collect::<Result<Vec<Complex>>>()?;
    let pairs: Vec<(Complex, &[char])> = numbers.into_iter().zip(equation.operands.iter().map(Vec::as_slice)).collect();
    let value = contract_complex(&c, &equation, &pairs, &unique(&equation.result))?;
    out.set_dims(&equation.of(&equation.result));
    let to = super::complex::allocate_pairs(context, &out, value.real.dtype)?;
    for (part, to) in [&value.real, &value.imaginary].into_iter().zip(super::complex::real_and_imaginary(&to)) {
        write_diagonal(&c, part, &to, &equation.result)?;
    }
    Ok(())
}

fn einsum_complex(
    context: &Context,
    operands: Vec<Tensor>,
    text: String,
    out: Output,
    cache: Vec<Option<Output>>,
    _shapes: Vec<Option<Output>>,
) -> Result<()> {
    keep(context, &operands, cache)?;
    einsum_infer_complex(context, operands, text, out)
}

fn einsum_grad_complex(
    context: &Context,
    _shapes: Vec<Tensor>,
    operands: Vec<Tensor>,
    upstream: Tensor,
    text: String,
    outputs: Vec<Option<Output>>,
) -> Result<()> {
    let (c, equation, upstream) = (Compose::new(context), equation(&text, &operands)?, Complex::of(&upstream)?);
    let numbers = operands.iter().map(Complex::of).collect::<Result<Vec<Complex>>>()?;
    for (number, out) in outputs.iter().enumerate() {
        let Some(out) = out else { continue };
        let mut terms = vec![(upstream.clone(), &equation.result[..])];
        for other in (0..numbers.len()).filter(|&other| other != number) {
            terms.push((numbers[other].conjugate(&c)?, &equation.operands[other]));
        }
        let value = contract_complex(&c, &equation, &terms, &equation.kept(number))?;
        out.set_dims(&operands[number].shape());
        let to = super::complex::allocate_pairs(context, out, value.real.dtype)?;
        let places = super::complex::real_and_imaginary(&to);
        for (part, to) in [&value.real, &value.imaginary].into_iter().zip(places) {
            equation.spread(&c, number, part, &to)?;
        }
    }
    Ok(())
}
