//! Attention as language models ask for it: whole batches, and sequences of many lengths one after another, with gradients.

use super::compose::Compose;
use super::values::{dims, integers};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Scalar, Tensor};
use openmps_graph::operators::attention::Attention;
use openmps_graph::operators::elementwise::{Binary, Elementwise, Unary};
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::operators::softmax::Softmax;
use openmps_graph::operators::triangle::Triangle;
use openmps_graph::{DType, View};
use openmps_tile::dtype::FLOATS;
use std::ops::Range;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("flash_attn", FLOATS, flash_attn).output(2, DType::F32).output(3, DType::I64);
    table.add("flash_attn_grad", FLOATS, flash_attn_grad);
    table.add("flash_attn_unpadded", FLOATS, flash_attn_unpadded).output(2, DType::F32).output(3, DType::I64);
    table.add("flash_attn_unpadded_grad", FLOATS, flash_attn_unpadded_grad);
}

/// Attention of (batch, sequence, heads, size).
struct Heads<'c> {
    c: Compose<'c>,
    scale: f64,
    causal: bool,
}

/// Queries, keys and values that fit together: (batch, sequence, heads, size), or (tokens, heads, size) of sequences one after another.
struct Operands {
    q: View,
    k: View,
    v: View,
}

impl Operands {
    /// Paddle's rule of shapes for these operators lets everything through.
    fn new<const RANK: usize>(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Operands> {
        let _: [[usize; RANK]; 3] = [dims("q", q)?, dims("k", k)?, dims("v", v)?];
        let (q, k, v) = (q.view()?, k.view()?, v.view()?);
        let (heads, key_heads) = (q.shape[RANK - 2], k.shape[RANK - 2]);
        if (k.dtype, v.dtype) != (q.dtype, q.dtype) {
            return Err(refuse("types of k, v", (k.dtype, v.dtype), &format!("{}, as that of q", q.dtype)));
        }
        if k.shape[..RANK - 1] != v.shape[..RANK - 1] {
            return Err(refuse(
                "shape of v",
                &v.shape,
                &format!("that of k, {:?}, but for the size of a head", k.shape),
            ));
        }
        if q.shape[RANK - 1] != k.shape[RANK - 1] || (RANK == 4 && q.shape[0] != k.shape[0]) {
            return Err(refuse("shape of k", &k.shape, &format!("the batch and size of a head of q, {:?}", q.shape)));
        }
        if heads != 0 && (key_heads == 0 || heads % key_heads != 0) {
            return Err(refuse("heads of q, k", (heads, key_heads), "a number of heads of k that divides that of q"));
        }
        Ok(Operands { q, k, v })
    }

    /// The shape of the result: a value for each query.
    fn result(&self) -> Vec<usize> {
        let (last, values) = (self.q.shape.len() - 1, self.v.shape.len() - 1);
        [&self.q.shape[..last], &[self.v.shape[values]]].concat()
    }

    /// The gradient of the result.
    fn upstream(&self, upstream: &Tensor) -> Result<View> {
        let upstream = upstream.view()?;
        if upstream.shape[..] != self.result()[..] || upstream.dtype != self.q.dtype {
            let expected = format!("{:?} of {}, as the result", self.result(), self.q.dtype);
            return Err(refuse("gradient of out", (&upstream.shape, upstream.dtype), &expected));
        }
        Ok(upstream)
    }

    /// What is added to the scores (batch, heads, queries, keys), in the type of the queries.
    fn mask(&self, c: &Compose, mask: Option<Tensor>) -> Result<Option<View>> {
        let Some(mask) = mask else { return Ok(None) };
        let mask = mask.view()?;
        let scores = [self.q.shape[0], self.q.shape[2], self.q.shape[1], self.k.shape[1]];
        let fits = |(&size, &of_scores): (&usize, &usize)| size == of_scores || size == 1;
        let is_broadcast = mask.shape.len() <= 4 && mask.shape.iter().rev().zip(scores.iter().rev()).all(fits);
        if !is_broadcast || !mask.dtype.is_float() {
            let expected = format!("floats that broadcast to {scores:?}");
            return Err(refuse("attn_mask", (&mask.shape, mask.dtype), &expected));
        }
        c.cast(&mask, self.q.dtype).map(Some)
    }

    /// Places for the gradients of queries, keys and values, as far as they are wanted.
    fn gradients(&self, context: &Context, outputs: [Option<Output>; 3]) -> Result<[Option<View>; 3]> {
        let place = |(out, of): (Option<Output>, &View)| {
            let Some(out) = out else { return Ok(None) };
            out.set_dims(&of.shape);
            context.allocate(&out, of.dtype).map(Some)
        };
        let [q, k, v] = outputs;
        Ok([place((q, &self.q))?, place((k, &self.k))?, place((v, &self.v))?])
    }
}

/// (batch, heads, sequence, size), as the operator has it.
fn heads_first(x: &View) -> View {
    x.permuted(&[0, 2, 1, 3])
}

impl<'c> Heads<'c> {
    fn new(context: &'c Context, scale: f64, causal: bool) -> Heads<'c> {
        Heads { c: Compose::new(context), scale, causal }
    }

    fn store(&self, [q, k, v]: [&View; 3], mask: Option<&View>, to: &View) -> Result<()> {
        let mut inputs = [q, k, v].map(heads_first).to_vec();
        if let Some(mask) = mask {
            inputs.push(mask.clone());
        }
        let attention = Attention { scale: Some(self.scale), causal: self.causal, ..Attention::default() };
        self.c.launch(&attention, &inputs, &[heads_first(to)])
    }

    /// The weights of keys (batch, heads, rows, keys); those of queries that see nothing are zeros.
    fn weights(&self, scores: &View, mask: Option<&View>) -> Result<View> {
        let c = &self.c;
        let mut scores = c.scale(scores, self.scale, 0.0)?;
        if let Some(mask) = mask {
            scores = c.add(&scores, &c.cast(mask, scores.dtype)?)?;
        }
        let (rows, keys) = (scores.shape[2], scores.shape[3]);
        if self.causal {
            let all = c.constant(scores.dtype, &[rows, keys], f64::NEG_INFINITY)?;
            let later = Triangle { diagonal: keys as i64 - rows as i64 + 1, lower: false };
            scores = c.add(&scores, &c.apply(&later, &[all])?)?;
        }
        let weights = c.apply(&Softmax { axis: 3, logarithm: false }, std::slice::from_ref(&scores))?;
        if keys == 0 || (mask.is_none() && !(self.causal && rows > keys)) {
            return Ok(weights);
        }
        let largest = c.reduce(Reduction::Maximum, &scores, &[3])?;
        let nothing = c.constant(scores.dtype, &[1], f64::NEG_INFINITY)?;
        let is_empty = c.map(Elementwise::Binary(Binary::Equal), &[&largest, &nothing], &[])?;
        let zero = c.constant(scores.dtype, &[1], 0.0)?;
        c.map(Elementwise::Binary(Binary::Where), &[&is_empty, &zero, &weights], &[])
    }

    /// The gradients by queries, keys and values: all queries of a head of keys are rows of one matrix.
    fn store_gradients(
        &self,
        [q, k, v, upstream]: [&View; 4],
        mask: Option<&View>,
        to: [Option<View>; 3],
    ) -> Result<()> {
        let c = &self.c;
        let wide = |x: &View| -> Result<View> {
            let ordered = c.apply(&openmps_graph::operators::copy::Copy, &[heads_first(x)])?;
            c.cast(&ordered, x.dtype.compute())
        };
        let (q, k, v, upstream) = (wide(q)?, wide(k)?, wide(v)?, wide(upstream)?);
        let ([batch, heads, rows, depth], [key_heads, keys]) =
            ([0, 1, 2, 3].map(|axis| q.shape[axis]), [1, 2].map(|axis| k.shape[axis]));
        if q.is_empty() || k.is_empty() {
            return to.into_iter().flatten().try_for_each(|to| c.fill(&to, 0.0));
        }
        let together = |x: &View, size: usize| c.shaped(x, &[batch, key_heads, heads / key_heads * rows, size]);
        let product = |transpose_left, transpose_right, left: &View, right: &View| {
            c.apply(&Matmul { transpose_left, transpose_right }, &[left.clone(), right.clone()])
        };
        let (q, upstream) = (together(&q, depth)?, together(&upstream, v.shape[3])?);
        let scores = c.shaped(&product(false, true, &q, &k)?, &[batch, heads, rows, keys])?;
        let weights = together(&self.weights(&scores, mask)?, keys)?;
        let of_weights = product(false, true, &upstream, &v)?;
        let share = c.reduce(Reduction::Sum, &c.multiply(&weights, &of_weights)?, &[3])?;
        let of_scores = c.scale(&c.multiply(&weights, &c.subtract(&of_weights, &share)?)?, self.scale, 0.0)?;
        let [of_q, of_k, of_v] = to;
        let put = |to: Option<View>, value: &dyn Fn() -> Result<View>| match to.map(|to| heads_first(&to)) {
            Some(to) => c.run(Elementwise::Unary(Unary::Cast), &[&c.shaped(&value()?, &to.shape)?], &to),
            None => Ok(()),
        };
        put(of_q, &|| product(false, false, &of_scores, &k))?;
        put(of_k, &|| product(true, false, &of_scores, &q))?;
        put(of_v, &|| product(true, false, &weights, &upstream))
    }

    /// What is kept for the gradient on other devices: nothing was dropped, and sums of scores are computed again.
    fn store_state(&self, sums: Option<Output>, seed: Option<Output>) -> Result<()> {
        if let Some(sums) = sums {
            sums.set_dims(&[0]);
            self.c.place(&sums, DType::F32)?;
        }
        let Some(seed) = seed else { return Ok(()) };
        seed.set_dims(&[2]);
        self.c.fill(&self.c.place(&seed, DType::I64)?, 0.0)
    }
}

fn scale_of(q: &Tensor) -> f64 {
    1.0 / (q.shape().last().copied().unwrap_or(1).max(1) as f64).sqrt()
}

/// In training nothing may be dropped; what a gradient is given was computed without.
fn without_dropout(dropout: f32, is_test: bool) -> Result<()> {
    if dropout != 0.0 && !is_test {
        return Err(refuse("dropout", dropout, "0: attention drops nothing here"));
    }
    Ok(())
}

fn without_softmax(return_softmax: bool) -> Result<()> {
    if return_softmax { Err(refuse("return_softmax", true, "false: weights are not kept")) } else { Ok(()) }
}

fn flash_attn(
    context: &Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _seed: Option<Tensor>,
    mask: Option<Tensor>,
    dropout: f32,
    causal: bool,
    return_softmax: bool,
    is_test: bool,
    _generator: String,
    out: Output,
    _softmax: Option<Output>,
    sums: Option<Output>,
    seed_out: Option<Output>,
) -> Result<()> {
    without_softmax(return_softmax)?;
    without_dropout(dropout, is_test)?;
    let operands = Operands::new::<4>(&q, &k, &v)?;
    let heads = Heads::new(context, scale_of(&q), causal);
    let mask = operands.mask(&heads.c, mask)?;
    out.set_dims(&operands.result());
    let to = context.allocate(&out, operands.q.dtype)?;
    heads.store([&operands.q, &operands.k, &operands.v], mask.as_ref(), &to)?;
    heads.store_state(sums, seed_out)
}

fn flash_attn_grad(
    context: &Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _out: Tensor,
    _sums: Tensor,
    _seed: Tensor,
    mask: Option<Tensor>,
    upstream: Tensor,
    _dropout: f32,
    causal: bool,
    dq: Option<Output>,
    dk: Option<Output>,
    dv: Option<Output>,
) -> Result<()> {
    let operands = Operands::new::<4>(&q, &k, &v)?;
    let (heads, upstream) = (Heads::new(context, scale_of(&q), causal), operands.upstream(&upstream)?);
    let mask = operands.mask(&heads.c, mask)?;
    let to = operands.gradients(context, [dq, dk, dv])?;
    heads.store_gradients([&operands.q, &operands.k, &operands.v, &upstream], mask.as_ref(), to)
}

/// Where sequences begin and end among tokens, of queries and of keys.
struct Sequences(Vec<[Range<usize>; 2]>);

impl Sequences {
    fn new(context: &Context, starts: [&Tensor; 2], tokens: [usize; 2]) -> Result<Sequences> {
        let names = ["cu_seqlens_q", "cu_seqlens_k"];
        let mut ranges = Vec::new();
        for ((starts, name), tokens) in starts.into_iter().zip(names).zip(tokens) {
            let starts = integers(context, starts)?;
            let range = |pair: &[i64]| -> Option<Range<usize>> {
                let (from, to) = (usize::try_from(pair[0]).ok()?, usize::try_from(pair[1]).ok()?);
                (from <= to && to <= tokens).then_some(from..to)
            };
            let of: Option<Vec<Range<usize>>> = starts.windows(2).map(range).collect();
            ranges.push(of.ok_or_else(|| refuse(name, &starts, &format!("rising numbers from 0 to {tokens}")))?);
        }
        let (keys, queries) = (ranges.remove(1), ranges.remove(0));
        if keys.len() != queries.len() {
            let lengths = (queries.len(), keys.len());
            return Err(refuse("lengths of cu_seqlens_q, cu_seqlens_k", lengths, "as many sequences of both"));
        }
        Ok(Sequences(queries.into_iter().zip(keys).map(|(queries, keys)| [queries, keys]).collect()))
    }
}

/// The tokens of a sequence, as a batch of one.
fn sequence(c: &Compose, x: &View, tokens: &Range<usize>) -> Result<View> {
    let part = x.narrowed(0, tokens.start, 1, tokens.len());
    c.shaped(&part, &[1, tokens.len(), x.shape[1], x.shape[2]])
}

fn flash_attn_unpadded(
    context: &Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    _seed: Option<Tensor>,
    mask: Option<Tensor>,
    _longest_q: Scalar,
    _longest_k: Scalar,
    scale: f32,
    dropout: f32,
    causal: bool,
    return_softmax: bool,
    is_test: bool,
    _generator: String,
    out: Output,
    _softmax: Option<Output>,
    sums: Option<Output>,
    seed_out: Option<Output>,
) -> Result<()> {
    without_softmax(return_softmax)?;
    without_mask(mask)?;
    without_dropout(dropout, is_test)?;
    let operands = Operands::new::<3>(&q, &k, &v)?;
    let (Operands { q, k, v }, result) = (&operands, operands.result());
    let sequences = Sequences::new(context, [&starts_q, &starts_k], [q.shape[0], k.shape[0]])?;
    let heads = Heads::new(context, scale.into(), causal);
    out.set_dims(&result);
    let to = context.allocate(&out, q.dtype)?;
    heads.c.fill(&to, 0.0)?;
    for [queries, keys] in &sequences.0 {
        let part = |x: &View, tokens: &Range<usize>| sequence(&heads.c, x, tokens);
        let inputs = [part(q, queries)?, part(k, keys)?, part(v, keys)?];
        heads.store(inputs.each_ref(), None, &part(&to, queries)?)?;
    }
    heads.store_state(sums, seed_out)
}

fn without_mask(mask: Option<Tensor>) -> Result<()> {
    match mask {
        Some(mask) => Err(refuse("attn_mask", mask.shape(), "none: sequences of many lengths have no mask")),
        None => Ok(()),
    }
}

fn flash_attn_unpadded_grad(
    context: &Context,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    starts_k: Tensor,
    _out: Tensor,
    _sums: Tensor,
    _seed: Tensor,
    mask: Option<Tensor>,
    upstream: Tensor,
    _longest_q: Scalar,
    _longest_k: Scalar,
    scale: f32,
    _dropout: f32,
    causal: bool,
    dq: Option<Output>,
    dk: Option<Output>,
    dv: Option<Output>,
) -> Result<()> {
    without_mask(mask)?;
    let operands = Operands::new::<3>(&q, &k, &v)?;
    let Operands { q, k, v } = &operands;
    let sequences = Sequences::new(context, [&starts_q, &starts_k], [q.shape[0], k.shape[0]])?;
    let (heads, upstream) = (Heads::new(context, scale.into(), causal), operands.upstream(&upstream)?);
    let to = operands.gradients(context, [dq, dk, dv])?;
    for to in to.iter().flatten() {
        heads.c.fill(to, 0.0)?;
    }
    for [queries, keys] in &sequences.0 {
        let part = |x: &View, tokens: &Range<usize>| sequence(&heads.c, x, tokens);
        let inputs = [part(q, queries)?, part(k, keys)?, part(v, keys)?, part(&upstream, queries)?];
        let of = |at: usize, tokens: &Range<usize>| to[at].as_ref().map(|to| part(to, tokens)).transpose();
        heads.store_gradients(inputs.each_ref(), None, [of(0, queries)?, of(1, keys)?, of(2, keys)?])?;
    }
    Ok(())
}
