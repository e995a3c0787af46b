//! Tokens in the order of the experts that they go to, and back: moe_permute, moe_unpermute.

use super::compose::Compose;
use super::values::{dims, expect, expect_len, integer_bytes, integers, positive};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::operators::elementwise::{Binary, Elementwise};
use openmps_graph::operators::gather::Gather;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::{DType, View};

/// Adds this family.
pub fn register(table: &mut Table) {
    // Paddle's rules let bfloat16 pass alone.
    let row = table.add("moe_permute", &[DType::BF16], permute);
    row.output(1, DType::I32).output(2, DType::F32).output(3, DType::F32).output(4, DType::I32);
    table.add("moe_unpermute", &[DType::BF16], unpermute).output(1, DType::F32);
}

/// The most experts that Paddle documents. What is kept for each of them stays small.
const MOST_EXPERTS: usize = 64;

/// Which expert each of a token's choices is; none is a number below zero.
struct Choices {
    experts: usize,
    of_token: usize,
    numbers: Vec<i64>,
}

impl Choices {
    fn new(context: &Context, given: &Tensor, tokens: usize, experts: i32) -> Result<Choices> {
        let experts = match positive("num_experts", experts)? {
            experts if experts <= MOST_EXPERTS => experts,
            experts => return Err(refuse("num_experts", experts, &format!("1 to {MOST_EXPERTS}"))),
        };
        let [rows, of_token] = dims("expert_routemap_topk", given)?;
        expect("expert_routemap_topk", given, &[tokens, of_token])?;
        let numbers = integers(context, given)?;
        if let Some(expert) = numbers.iter().find(|&&expert| expert >= experts as i64) {
            return Err(refuse("expert_routemap_topk", expert, &format!("below num_experts, {experts}")));
        }
        // A token has one place with each expert: of two rows one would be lost on the way back.
        if let Some(choices) = numbers.chunks(of_token.max(1)).find(|choices| has_twice(choices)) {
            return Err(refuse("expert_routemap_topk", choices, "each expert once at most for a token"));
        }
        Ok(Choices { experts, of_token: if rows == 0 { 0 } else { of_token }, numbers })
    }

    /// The places of each expert's choices among all, in the tokens' order.
    fn by_expert(&self) -> Vec<Vec<i64>> {
        let mut chosen = vec![Vec::new(); self.experts];
        for (place, &expert) in (0..).zip(&self.numbers) {
            if let Ok(expert) = usize::try_from(expert) {
                chosen[expert].push(place);
            }
        }
        chosen
    }
}

/// Whether one of at most [`MOST_EXPERTS`] experts comes twice.
fn has_twice(choices: &[i64]) -> bool {
    let mut seen = [false; MOST_EXPERTS];
    let mut experts = choices.iter().filter_map(|&expert| usize::try_from(expert).ok());
    experts.any(|expert| std::mem::replace(&mut seen[expert], true))
}

/// The same numbers on the device.
fn uploaded(c: &Compose, dtype: DType, shape: &[usize], numbers: &[i64]) -> Result<View> {
    c.upload(dtype, shape, &integer_bytes(dtype, numbers)?)
}

/// To how many rows counts may be rounded up by the caller already: what kernels of 8 bits ask for.
const USUAL_ALIGNMENT: usize = 128;

/// That each expert has a count of rows with room for those that choose it, and not of more than all tokens need: memory is allocated
/// by these numbers.
fn expect_counts(counts: &[i32], chosen: &[Vec<i64>], tokens: usize, alignment: usize) -> Result<()> {
    if counts.len() != chosen.len() {
        let expected = format!("a count for each of the experts, of which num_experts says {}", chosen.len());
        return Err(refuse("tokens_per_expert", counts, &expected));
    }
    let most = tokens.next_multiple_of(alignment.max(USUAL_ALIGNMENT));
    for (expert, (&count, chosen)) in counts.iter().zip(chosen).enumerate() {
        let least = chosen.len();
        if !usize::try_from(count).is_ok_and(|count| (least..=most).contains(&count)) {
            return Err(refuse("tokens_per_expert", counts, &format!("{least} to {most} of expert {expert}")));
        }
    }
    Ok(())
}

/// Where each expert's rows begin, and how many rows there are: as many as are told, or as all counts need.
fn starts(chosen: &[Vec<i64>], counts: &[i32], alignment: usize, size: Option<usize>) -> Result<(Vec<usize>, usize)> {
    let (mut starts, mut rows) = (Vec::new(), 0);
    for (expert, chosen) in chosen.iter().enumerate() {
        starts.push(rows);
        let count = if size.is_some() { chosen.len() } else { counts[expert] as usize };
        rows += count.next_multiple_of(alignment);
    }
    match size {
        Some(size) if size < rows => Err(refuse("override_buffer_size", size, &format!("{rows} or more"))),
        // Places of rows are numbers of 32 bits.
        None if i32::try_from(rows).is_err() => {
            let expected = format!("at most {} rows of all experts", i32::MAX);
            Err(refuse("tokens_per_expert, padding_alignment", (counts, alignment), &expected))
        }
        size => Ok((starts, size.unwrap_or(rows))),
    }
}

/// A result of zeros.
fn zeros(c: &Compose, out: &Output, dtype: DType, shape: &[usize]) -> Result<View> {
    out.set_dims(shape);
    let view = c.place(out, dtype)?;
    c.fill(&view, 0.0)?;
    Ok(view)
}

/// The rows of each expert follow each other, from a multiple of the alignment on; rows between them are zeros.
fn permute(
    context: &Context,
    x: Tensor,
    scale: Option<Tensor>,
    choices: Tensor,
    probabilities: Tensor,
    experts: i32,
    counts: Vec<i32>,
    alignment: i32,
    gathers: bool,
    _packed_scales: bool,
    _wants_experts: bool,
    size: i32,
    out: Output,
    places_out: Output,
    probabilities_out: Output,
    scale_out: Option<Output>,
    experts_out: Option<Output>,
) -> Result<()> {
    if let Some(scale) = scale {
        return Err(refuse("scale", scale.shape(), "none: numbers of 8 bits are not computed with"));
    }
    let [tokens, width] = dims("hidden_states", &x)?;
    let (c, alignment) = (Compose::new(context), positive("padding_alignment", alignment)?);
    let choices = Choices::new(context, &choices, tokens, experts)?;
    expect_len("expert_prob_topk", &probabilities, choices.numbers.len())?;
    let chosen = choices.by_expert();
    let size = usize::try_from(size).ok();
    if size.is_none() {
        expect_counts(&counts, &chosen, tokens, alignment)?;
    }
    let (starts, rows) = starts(&chosen, &counts, alignment, size)?;
    let to = zeros(&c, &out, x.dtype()?, &[rows, width])?;
    let parts = zeros(&c, &probabilities_out, DType::F32, &[rows, 1])?;
    let probabilities = c.shaped(&c.cast(&probabilities.view()?, DType::F32)?, &[choices.numbers.len(), 1])?;
    let (mut places, mut owners) = (vec![-1; tokens * choices.experts], vec![-1; rows]);
    for (expert, (chosen, &start)) in chosen.iter().zip(&starts).enumerate() {
        if chosen.is_empty() {
            continue;
        }
        let of_token: Vec<i64> = chosen.iter().map(|&place| place / choices.of_token as i64).collect();
        for (row, &token) in (start..).zip(&of_token) {
            places[token as usize * choices.experts + expert] = row as i64;
            owners[row] = expert as i64;
        }
        let index = |numbers: &[i64]| uploaded(&c, DType::I64, &[numbers.len()], numbers);
        let part = |to: &View| to.narrowed(0, start, 1, chosen.len());
        c.launch(&Gather { axis: 0 }, &[probabilities.clone(), index(chosen)?], &[part(&parts)])?;
        if gathers {
            c.launch(&Gather { axis: 0 }, &[x.view()?, index(&of_token)?], &[part(&to)])?;
        }
    }
    let store = |out: &Output, shape: &[usize], numbers: &[i64]| {
        out.set_dims(shape);
        c.store_value(out, DType::I32, &uploaded(&c, DType::I32, shape, numbers)?)
    };
    store(&places_out, &[tokens, choices.experts], &places)?;
    if let Some(scale_out) = scale_out {
        zeros(&c, &scale_out, DType::F32, &[0])?;
    }
    experts_out.map_or(Ok(()), |out| store(&out, &[rows], &owners))
}

/// The places that each token has, one after another, and none after the last; and how many one token has at most.
fn of_tokens(places: &[i64], experts: usize) -> (Vec<i64>, usize) {
    let own = |places: &[i64]| places.iter().copied().filter(|&place| place >= 0).collect::<Vec<i64>>();
    let tokens: Vec<Vec<i64>> = places.chunks(experts).map(own).collect();
    let most = tokens.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let padded = tokens.into_iter().flat_map(|token| token.into_iter().chain(std::iter::repeat(-1)).take(most));
    (padded.collect(), most)
}

/// The sums of each token's rows, weighed by their probabilities where that is asked for; and the probabilities of its choices.
fn unpermute(
    context: &Context,
    x: Tensor,
    places: Tensor,
    choices: Tensor,
    probabilities: Tensor,
    tokens: i32,
    experts: i32,
    _mixed_precision: bool,
    weighs: bool,
    out: Output,
    probabilities_out: Output,
) -> Result<()> {
    let [rows, width] = dims("hidden_states_unzipped", &x)?;
    let (c, dtype) = (Compose::new(context), x.dtype()?);
    let tokens = usize::try_from(tokens).map_err(|_| refuse("total_zipped_tokens", tokens, "0 or more"))?;
    let choices = Choices::new(context, &choices, tokens, experts)?;
    expect("zipped_expertwise_rowmap", &places, &[tokens, choices.experts])?;
    expect_len("token_prob_unzipped", &probabilities, rows)?;
    let places = integers(context, &places)?;
    if let Some(place) = places.iter().find(|&&place| place >= rows as i64) {
        return Err(refuse("zipped_expertwise_rowmap", place, &format!("below {rows}, as many rows as there are")));
    }
    // Before all rows stands one of zeros, for choices of no expert.
    let with_zeros = |view: &View| -> Result<View> {
        let zeros = c.constant(view.dtype, &[1, view.shape[1]], 0.0)?;
        c.apply(&openmps_graph::operators::concat::Concat { axis: 0 }, &[zeros, view.clone()])
    };
    let probabilities = with_zeros(&c.shaped(&c.cast(&probabilities.view()?, DType::F32)?, &[rows, 1])?)?;
    let take = |from: &View, numbers: &[i64], of_token: usize| {
        let numbers: Vec<i64> = numbers.iter().map(|&number| (number + 1).max(0)).collect();
        let index = uploaded(&c, DType::I64, &[tokens, of_token], &numbers)?;
        c.apply(&Gather { axis: 0 }, &[from.clone(), index])
    };
    let place_of = |(at, &expert): (usize, &i64)| match usize::try_from(expert) {
        Ok(expert) => places[at / choices.of_token * choices.experts + expert],
        Err(_) => -1,
    };
    let own: Vec<i64> = choices.numbers.iter().enumerate().map(place_of).collect();
    probabilities_out.set_dims(&[tokens, choices.of_token]);
    c.store_value(&probabilities_out, DType::F32, &take(&probabilities, &own, choices.of_token)?)?;
    out.set_dims(&[tokens, width]);
    let (places, most) = of_tokens(&places, choices.experts);
    let mut found = take(&with_zeros(&c.input(&x)?)?, &places, most)?;
    if weighs {
        let weights = c.cast(&take(&probabilities, &places, most)?, found.dtype)?;
        found = c.map(Elementwise::Binary(Binary::Multiply), &[&found, &weights], &[])?;
    }
    c.store_value(&out, dtype, &c.reduce(Reduction::Sum, &found, &[1])?)
}
