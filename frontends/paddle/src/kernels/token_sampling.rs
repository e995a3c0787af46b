//! The next token of a language model: drawn among the most probable ones that together have a probability.

use super::compose::Compose;
use super::values::{dims, expect_len, integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::arg_reduce::ArgReduce;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::gather::{Negative, TakeAlongAxis};
use openmps_graph::operators::random::{Law, Random, Source};
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::scan::{Kind, Scan};
use openmps_graph::operators::sort::Sort;
use openmps_graph::view::shape_of;
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;

/// Adds this family.
pub fn register(table: &mut Table) {
    let row = table.add("top_p_sampling", FLOATS, top_p_sampling);
    row.output(1, DType::I64).output_as_inferred(2).output(3, DType::I64);
}

/// How a token is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// By one number: the token at which probabilities, added up, reach a part of `ps` that is drawn.
    Truncated,
    /// By a number for each token: the one that comes first of those up to the token at which probabilities reach `ps`, each after a time
    /// that its probability says.
    Race,
}

impl Mode {
    fn named(name: &str) -> Result<Mode> {
        match name {
            "truncated" => Ok(Mode::Truncated),
            "non-truncated" => Ok(Mode::Race),
            _ => Err(refuse("mode", name, "truncated or non-truncated")),
        }
    }

    /// What is drawn, and how many of a row.
    fn law(self, tokens: usize) -> (Law, usize) {
        match self {
            Mode::Truncated => (Law::Uniform { low: 0.0, high: 1.0 }, 1),
            Mode::Race => (Law::Exponential { rate: 1.0 }, tokens),
        }
    }
}

/// Where a row's numbers come from.
enum Seeds {
    /// The next ones of the device, others for each row.
    Device,
    /// The same for each row.
    One(u64),
    /// One seed a row.
    Rows(Vec<i64>),
}

/// Rows of tokens in order, the most probable first.
struct Rows<'c> {
    c: Compose<'c>,
    context: &'c Context,
    probabilities: View,
    tokens: View,
}

impl<'c> Rows<'c> {
    fn new(context: &'c Context, x: &Tensor) -> Result<Rows<'c>> {
        let (c, x) = (Compose::new(context), x.view()?);
        let probabilities = c.temporary(x.dtype, &x.shape)?;
        let tokens = c.temporary(DType::I64, &x.shape)?;
        let outputs = [probabilities.clone(), tokens.clone()];
        c.launch(&Sort { axis: 1, descending: true }, &[x], &outputs)?;
        Ok(Rows { c, context, probabilities, tokens })
    }

    fn map(&self, operator: Binary, x: &View, y: &View) -> Result<View> {
        self.c.map(Elementwise::Binary(operator), &[x, y], &[])
    }

    /// The sum of probabilities up to each token, its own included or not.
    fn sums(&self, wide: &View, exclusive: bool) -> Result<View> {
        let scan = Scan { kind: Kind::Sum, axis: Some(1), exclusive, reverse: false };
        self.c.apply(&scan, std::slice::from_ref(wide))
    }

    /// The first of the largest numbers of each row.
    fn largest(&self, x: &View) -> Result<View> {
        let search = ArgReduce { largest: true, axis: Some(1), keep_dims: true, dtype: DType::I64 };
        self.c.apply(&search, std::slice::from_ref(x))
    }

    fn draw(&self, law: Law, seeds: &Seeds, count: usize, dtype: DType) -> Result<View> {
        let rows = self.probabilities.shape[0];
        let drawn = |seed: u64, rows: usize, to: &View| {
            let source = Source { seed, offset: 0 };
            let random = Random { law, source, dims: shape_of(&[rows, count])?, dtype };
            self.c.launch(&random, &[], std::slice::from_ref(to))
        };
        let numbers = self.c.temporary(dtype, &[if matches!(seeds, Seeds::One(_)) { 1 } else { rows }, count])?;
        match seeds {
            Seeds::Device => drawn(self.context.random(), rows, &numbers)?,
            Seeds::One(seed) => drawn(*seed, 1, &numbers)?,
            Seeds::Rows(seeds) => {
                for (row, &seed) in seeds.iter().enumerate() {
                    drawn(seed as u64, 1, &numbers.narrowed(0, row, 1, 1))?;
                }
            }
        }
        Ok(numbers)
    }

    /// Which place of the order is drawn. Tokens below the threshold give way to the last one that is not.
    fn place(&self, mode: Mode, part: &View, threshold: Option<&View>, seeds: &Seeds) -> Result<View> {
        let c = &self.c;
        let wide = c.cast(&self.probabilities, self.probabilities.dtype.compute())?;
        let (law, count) = mode.law(wide.shape[1]);
        let numbers = self.draw(law, seeds, count, wide.dtype)?;
        if mode == Mode::Truncated {
            let reached = self.map(Binary::GreaterEqual, &self.sums(&wide, false)?, &c.multiply(&numbers, part)?)?;
            let place = self.largest(&c.cast(&reached, DType::I32)?)?;
            let Some(threshold) = threshold else { return Ok(place) };
            let high = c.cast(&self.map(Binary::GreaterEqual, &wide, threshold)?, DType::I64)?;
            let last = c.scale(&c.reduce(Reduction::Sum, &high, &[1])?, 1.0, -1.0)?;
            let zero = c.constant(DType::I64, &[1], 0.0)?;
            return self.map(Binary::Minimum, &place, &self.map(Binary::Maximum, &last, &zero)?);
        }
        let mut runs = self.map(Binary::LessThan, &self.sums(&wide, true)?, part)?;
        if let Some(threshold) = threshold {
            runs = self.map(Binary::LogicalAnd, &runs, &self.map(Binary::GreaterEqual, &wide, threshold)?)?;
        }
        let speed = self.map(Binary::Divide, &wide, &numbers)?;
        let none = c.constant(wide.dtype, &[1], 0.0)?;
        self.largest(&c.map(Elementwise::Binary(Binary::Where), &[&runs, &speed, &none], &[])?)
    }

    fn take(&self, from: &View, place: &View) -> Result<View> {
        let take = TakeAlongAxis { axis: 1, negative: Negative::Refused };
        self.c.apply(&take, &[from.clone(), place.clone()])
    }

    /// The first tokens of each row.
    fn store_first(&self, count: usize, [scores, tokens]: [Option<Output>; 2]) -> Result<()> {
        for (out, values) in [(scores, &self.probabilities), (tokens, &self.tokens)] {
            if let Some(out) = out {
                out.set_dims(&[values.shape[0], count]);
                let to = self.c.place(&out, values.dtype)?;
                self.c.launch(&Copy, &[values.narrowed(1, 0, 1, count)], &[to])?;
            }
        }
        Ok(())
    }
}

/// One number for each row, as a column.
fn column(c: &Compose, name: &'static str, x: &Tensor, rows: usize, dtype: DType) -> Result<View> {
    expect_len(name, x, rows)?;
    c.cast(&c.shaped(&x.view()?, &[rows, 1])?, dtype)
}

/// What no rows give: results of no elements.
fn store_nothing(c: &Compose, dtype: DType, outputs: [(Option<Output>, Option<Output>, usize); 2]) -> Result<()> {
    for (scores, tokens, count) in outputs {
        for (out, dtype) in [(scores, dtype), (tokens, DType::I64)] {
            if let Some(out) = out.filter(|_| count > 0) {
                out.set_dims(&[0, count]);
                c.place(&out, dtype)?;
            }
        }
    }
    Ok(())
}

fn top_p_sampling(
    context: &Context,
    x: Tensor,
    part: Tensor,
    threshold: Option<Tensor>,
    row_seeds: Option<Tensor>,
    seed: i64,
    count: i32,
    mode: String,
    out: Output,
    tokens_out: Output,
    scores_first: Option<Output>,
    tokens_first: Option<Output>,
) -> Result<()> {
    let ([rows, tokens], mode) = (dims("x", &x)?, Mode::named(&mode)?);
    let first = usize::try_from(count).ok().filter(|&count| count <= tokens);
    let first = first.ok_or_else(|| refuse("k", count, &format!("0 to {tokens}")))?;
    if rows > 0 && tokens == 0 {
        return Err(refuse("x", x.shape(), "a token at least"));
    }
    let seeds = match row_seeds {
        Some(given) => {
            expect_len("topp_seed", &given, rows)?;
            Seeds::Rows(integers(context, &given)?)
        }
        None if seed == -1 => Seeds::Device,
        None => Seeds::One(seed as u64),
    };
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let part = column(&c, "ps", &part, rows, dtype.compute())?;
    let threshold = threshold.map(|given| column(&c, "threshold", &given, rows, dtype.compute())).transpose()?;
    if rows == 0 {
        // Of rows of no tokens, which x may have then, no largest one can be sought.
        let outputs = [(Some(out), Some(tokens_out), 1), (scores_first, tokens_first, first)];
        return store_nothing(&c, dtype, outputs);
    }
    let ordered = Rows::new(context, &x)?;
    let place = ordered.place(mode, &part, threshold.as_ref(), &seeds)?;
    for (out, values) in [(out, &ordered.probabilities), (tokens_out, &ordered.tokens)] {
        out.set_dims(&[rows, 1]);
        ordered.c.store_value(&out, values.dtype, &ordered.take(values, &place)?)?;
    }
    if first == 0 { Ok(()) } else { ordered.store_first(first, [scores_first, tokens_first]) }
}
