//! Sums over products named by letters (`ij,jk->ik`), as products of matrices.

use super::reduction::Over;
use crate::error::Result;
use crate::lower::{Lowering, Table, Value, wrong};
use crate::program::Operation;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::reduce::Reduction;

pub(super) const TABLE: Table = &[("Einsum", einsum)];

/// A tensor with a letter for each dimension.
struct Named {
    value: Value,
    letters: Vec<char>,
}

fn einsum(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let equation: String = operation.text("equation", "")?.split_whitespace().collect();
    let inputs = lowering.inputs(operation)?;
    let (given, asked) = equation.split_once("->").map_or((&equation[..], None), |(given, asked)| (given, Some(asked)));
    let terms: Vec<&str> = given.split(',').collect();
    if terms.len() != inputs.len() || inputs.is_empty() {
        return Err(wrong(operation, format!("{} inputs of {equation:?}", inputs.len())));
    }
    let mut ranks = Vec::with_capacity(inputs.len());
    for input in &inputs {
        ranks.push(lowering.shape(input)?.len());
    }
    let free = |term: &str, rank: usize| (rank + 3).saturating_sub(term.chars().count());
    let dots =
        terms.iter().zip(&ranks).filter(|(term, _)| term.contains("...")).map(|(term, &rank)| free(term, rank)).max();
    let dots = dots.unwrap_or(0);
    let mut named = Vec::with_capacity(inputs.len());
    for ((term, &rank), value) in terms.iter().zip(&ranks).zip(inputs) {
        let own = if term.contains("...") { free(term, rank) } else { 0 };
        let letters = spelled(term, own);
        if letters.len() != rank {
            return Err(wrong(operation, format!("{term:?} of a tensor of {rank} dimensions")));
        }
        named.push(lowering.diagonal(operation, Named { value, letters })?);
    }
    let result = match asked {
        Some(asked) => spelled(asked, dots),
        None => implied(&terms, dots),
    };
    let mut named = named.into_iter();
    let mut product = named.next().ok_or_else(|| wrong(operation, "no input"))?;
    let rest: Vec<Named> = named.collect();
    for (at, next) in rest.iter().enumerate() {
        // A letter that nobody else has, and the result has not, is summed over.
        let kept = |letter: &char| {
            result.contains(letter) || rest[at + 1..].iter().any(|named| named.letters.contains(letter))
        };
        product = lowering.contracted(product, next, kept)?;
    }
    Ok(vec![lowering.in_order(operation, product, &result)?])
}

/// Letters, with those of as many free dimensions (digits from the last one on) in place of dots.
fn spelled(term: &str, free: usize) -> Vec<char> {
    let digits: String = (0..free).rev().filter_map(|at| char::from_u32('\u{e000}' as u32 + at as u32)).collect();
    term.replace("...", &digits).chars().collect()
}

/// What a result without letters has: the free dimensions, and the letters that appear once, in the alphabet's order.
fn implied(terms: &[&str], dots: usize) -> Vec<char> {
    let all: Vec<char> = terms.iter().flat_map(|term| term.chars()).filter(|letter| *letter != '.').collect();
    let mut once: Vec<char> =
        all.iter().copied().filter(|letter| all.iter().filter(|other| *other == letter).count() == 1).collect();
    once.sort_unstable();
    let mut result = spelled("...", dots);
    result.extend(once);
    result
}

impl Lowering<'_> {
    /// A letter twice is the diagonal: what lies beside it is zeroed, and summed away.
    fn diagonal(&mut self, operation: &Operation, named: Named) -> Result<Named> {
        let Named { value, letters } = named;
        let twice = (0..letters.len()).find_map(|at| {
            let second = letters[at + 1..].iter().position(|letter| *letter == letters[at])?;
            Some((at, at + 1 + second))
        });
        let Some((first, second)) = twice else { return Ok(Named { value, letters }) };
        let shape = self.shape(&value)?;
        if shape[first] != shape[second] {
            return Err(wrong(operation, format!("a diagonal of {} x {}", shape[first], shape[second])));
        }
        let places = self.counted(shape[first], openmps::DataType::I64)?;
        let mut sides = Vec::with_capacity(2);
        for at in [first, second] {
            sides.push(self.spread_along(&places, &value, at)?);
        }
        let same = self.binary(Binary::Equal, &sides[0], &sides[1])?;
        let zero = self.number_like(&value, 0.0)?;
        let only = self.choose(&same, &value, &zero)?;
        let over = Over { axes: vec![second as i64], keep_dims: false };
        let value = self.reduced(Reduction::Sum, &only, &over)?;
        let letters = letters.iter().enumerate().filter(|(at, _)| *at != second).map(|(_, letter)| *letter).collect();
        self.diagonal(operation, Named { value, letters })
    }

    /// A tensor without the letters that are not kept.
    fn summed(&mut self, named: &Named, kept: impl Fn(&char) -> bool) -> Result<Named> {
        let axes: Vec<i64> =
            (0..named.letters.len()).filter(|&at| !kept(&named.letters[at])).map(|at| at as i64).collect();
        if axes.is_empty() {
            return Ok(Named { value: named.value.clone(), letters: named.letters.clone() });
        }
        let value = self.reduced(Reduction::Sum, &named.value, &Over { axes, keep_dims: false })?;
        Ok(Named { value, letters: named.letters.iter().copied().filter(kept).collect() })
    }

    /// The product of two, summed over what both have and nobody keeps.
    fn contracted(&mut self, x: Named, y: &Named, kept: impl Fn(&char) -> bool) -> Result<Named> {
        let x = self.summed(&x, |letter| kept(letter) || y.letters.contains(letter))?;
        let y = self.summed(y, |letter| kept(letter) || x.letters.contains(letter))?;
        let both = |letter: &&char| y.letters.contains(letter);
        let batch: Vec<char> = x.letters.iter().filter(both).filter(|letter| kept(letter)).copied().collect();
        let depth: Vec<char> = x.letters.iter().filter(both).filter(|letter| !kept(letter)).copied().collect();
        let rows: Vec<char> = x.letters.iter().filter(|letter| !y.letters.contains(letter)).copied().collect();
        let columns: Vec<char> = y.letters.iter().filter(|letter| !x.letters.contains(letter)).copied().collect();
        let mut letters = batch.clone();
        if depth.is_empty() {
            letters.extend(rows.iter().chain(&columns));
            let left = self.spread(&x, &letters)?;
            let right = self.spread(&y, &letters)?;
            return Ok(Named { value: self.binary(Binary::Multiply, &left, &right)?, letters });
        }
        let (left, left_sizes) = self.matrix(&x, [&batch, &rows, &depth])?;
        let (right, right_sizes) = self.matrix(&y, [&batch, &depth, &columns])?;
        let product = self.matmul(&left, &right, [false; 2])?;
        let of = |groups: &[Vec<usize>; 3], at: usize| groups[at].clone();
        // A batch's dimension may be 1 on one side.
        let shared = left_sizes[0].iter().zip(&right_sizes[0]).map(|(a, b)| *a.max(b));
        let shape: Vec<usize> = shared.chain(of(&left_sizes, 1)).chain(of(&right_sizes, 2)).collect();
        letters.extend(rows.into_iter().chain(columns));
        Ok(Named { value: self.reshape(&product, &shape)?, letters })
    }

    /// Dimensions in the order of these letters, of size 1 where it has none.
    fn spread(&mut self, named: &Named, letters: &[char]) -> Result<Value> {
        let order: Vec<usize> =
            letters.iter().filter_map(|letter| named.letters.iter().position(|own| own == letter)).collect();
        let shape = self.shape(&named.value)?;
        let turned = self.transpose(&named.value, &order.iter().map(|&axis| axis as i64).collect::<Vec<_>>())?;
        let size = |letter: &char| named.letters.iter().position(|own| own == letter).map_or(1, |at| shape[at]);
        self.reshape(&turned, &letters.iter().map(size).collect::<Vec<_>>())
    }

    /// Matrices: the letters of the first group are batches, those of the others rows and columns. And the groups' sizes.
    fn matrix(&mut self, named: &Named, groups: [&[char]; 3]) -> Result<(Value, [Vec<usize>; 3])> {
        let value = self.spread(named, &groups.concat())?;
        let shape = self.shape(&value)?;
        let (batch, rest) = shape.split_at(groups[0].len());
        let (rows, columns) = rest.split_at(groups[1].len());
        let mut flat = batch.to_vec();
        flat.extend([rows.iter().product::<usize>(), columns.iter().product()]);
        Ok((self.reshape(&value, &flat)?, [batch.to_vec(), rows.to_vec(), columns.to_vec()]))
    }

    fn in_order(&mut self, operation: &Operation, named: Named, result: &[char]) -> Result<Value> {
        if let Some(missing) = result.iter().find(|letter| !named.letters.contains(letter)) {
            return Err(wrong(operation, format!("a result with {missing:?}, which no input has")));
        }
        let named = self.summed(&named, |letter| result.contains(letter))?;
        self.spread(&named, result)
    }
}
