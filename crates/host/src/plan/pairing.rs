//! Operations become one step, which reads and writes the first-level cache once: a sum, difference, product or quotient of float32 that only another one
//! reads, two such pairs, a difference of which only the squares are summed, a comparison by which only one choice is made, and two choices that
//! keep a number within bounds.

use super::effects::{operands, slots_written, writes, writes_memory};
use super::operand::{Extents, Operand, Register, Target, ViewKind, plain};
use super::step::{MapKind, Step};
use crate::vector::chain::chain;
use crate::vector::choice::{Comparison, clamp};
use crate::vector::pair::{Arithmetic, Pair, Side, pair};
use crate::vector::sum_of_pairs::{self, PairSum};
use openmps_tile::Compare;

/// Joins the steps of a body, whose registers are read so often.
pub(super) fn join(body: &mut Vec<Step>, reads: &[usize]) {
    // Pairs first: a chain is two of them.
    join_by(body, reads, joined);
    join_by(body, reads, chained);
}

/// What two steps become, of which the second alone reads what the first makes.
type Join = fn(&Step, &Step) -> Option<Step>;

fn join_by(body: &mut Vec<Step>, reads: &[usize], join: Join) {
    let mut at = 0;
    while at < body.len() {
        body[at].bodies_mut().iter_mut().for_each(|body| join_by(body, reads, join));
        match with_operand(body, at, reads, join) {
            Some((first, step)) => {
                body[at] = step;
                body.remove(first);
            }
            None => at += 1,
        }
    }
}

/// A step that makes an operand of this one and may be done as late as this, and what both become.
fn with_operand(body: &[Step], at: usize, reads: &[usize], join: Join) -> Option<(usize, Step)> {
    let (Step::MapBinary { kind: MapKind::Arithmetic(_), .. }
    | Step::MapFused { pair: Some(_), .. }
    | Step::SumOfPairs { .. }
    | Step::MapSelect { .. }
    | Step::MapChoice { .. }) = &body[at]
    else {
        return None;
    };
    let mut read: Vec<Register> = Vec::new();
    operands(&body[at], |operand| {
        if let Operand::Register { register, view: ViewKind::Plain } = *operand {
            read.push(register);
        }
    });
    read.iter().find_map(|&register| {
        if reads[register] != read.iter().filter(|&&other| other == register).count() {
            return None;
        }
        let first = (0..at).rev().find(|&i| writes(&body[i], register))?;
        let step = join(&body[first], &body[at])?;
        let between = &body[first + 1..at];
        (!between.iter().any(|step| changes_operands(step, &body[first]))).then_some((first, step))
    })
}

/// Whether a step changes what another one reads.
fn changes_operands(step: &Step, of: &Step) -> bool {
    let mut changes = writes_memory(step) || !step.bodies().is_empty();
    operands(of, |operand| match *operand {
        Operand::Register { register, .. } => changes |= writes(step, register),
        Operand::Uniform(slot) => slots_written(step, |written| changes |= written == slot),
    });
    changes
}

/// Two operations, a difference and the sum of its squares, or a comparison and what is chosen by it.
fn joined(first: &Step, second: &Step) -> Option<Step> {
    let Step::MapBinary { kind, target, x, y, extents: within, .. } = first else { return None };
    let made = made_in_register(target)?;
    let inner = match kind {
        MapKind::Arithmetic(inner) => inner,
        MapKind::Comparison(comparison) => return chosen(*comparison, [*x, *y], (made, within), second),
        _ => return None,
    };
    match second {
        Step::MapBinary { kind: MapKind::Arithmetic(outer), target, x: left, y: right, extents, .. }
            if within == extents =>
        {
            let (side, z) = if *left == made { (Side::Left, right) } else { (Side::Right, left) };
            let of = Pair { first: *inner, second: *outer, side };
            let (function, operands) = (pair(of)?, [*x, *y, *z]);
            let step = Step::MapFused { function, pair: Some(of), target: *target, operands, extents: *extents };
            (*z != made).then_some(step)
        }
        Step::SumOfPairs { destination, operands, extents, .. }
            if *inner == Arithmetic::Subtract && *operands == [made; 2] && within == extents =>
        {
            let (function, destination, operands) = (sum_of_pairs::sum_of_squares(), *destination, [*x, *y]);
            let kind = PairSum::SquaredDifferences;
            Some(Step::SumOfPairs { function, kind, destination, operands, extents: *extents })
        }
        _ => None,
    }
}

/// What the truth that two operands made decides, if it decides nothing else.
fn chosen(
    comparison: Compare,
    [x, y]: [Operand; 2],
    (made, within): (Operand, &Extents),
    second: &Step,
) -> Option<Step> {
    let &Step::MapSelect { target, condition, x: yes, y: no, extents, .. } = second else { return None };
    let is_one = condition == made && target.size == size_of::<f32>() && *within == extents;
    let (comparison, operands) = Comparison::of(comparison, [x, y, yes, no]).filter(|_| is_one)?;
    Some(Step::MapChoice { function: comparison.function(), comparison, target, operands, extents })
}

/// Two choices that keep a number within bounds, the lower one first.
fn clamped(first: &Step, second: &Step) -> Option<Step> {
    let (x, low, target, within) = bound(first)?;
    let made = made_in_register(target)?;
    let &Step::MapChoice { comparison: Comparison::Less, target, operands, extents, .. } = second else { return None };
    let [high, raised, upper, otherwise] = operands;
    let is_one = raised == made && otherwise == made && upper == high && high != made && *within == extents;
    is_one.then(|| Step::MapFused { function: clamp(), pair: None, target, operands: [x, low, high], extents })
}

/// A number and its lower bound, where a choice is that.
fn bound(step: &Step) -> Option<(Operand, Operand, &Target, &Extents)> {
    let Step::MapChoice { comparison: Comparison::Less, target, operands: [x, low, yes, no], extents, .. } = step
    else {
        return None;
    };
    (yes == low && no == x).then_some((*x, *low, target, extents))
}

/// Two pairs, where there is a function for them.
fn chained(first: &Step, second: &Step) -> Option<Step> {
    if let Step::MapChoice { .. } = first {
        return clamped(first, second);
    }
    let Step::MapFused { pair: Some(inner), target, operands: [x, y, z], extents: within, .. } = first else {
        return None;
    };
    let made = made_in_register(target)?;
    let Step::MapFused { pair: Some(outer), target, operands, extents, .. } = second else { return None };
    let (place, u, v) = match *operands {
        [of, u, v] if of == made => (Side::Left, u, v),
        [u, of, v] if of == made => (Side::Right, u, v),
        _ => return None,
    };
    let is_one = u != made && v != made && within == extents;
    let function = chain(*inner, *outer, place).filter(|_| is_one)?;
    Some(Step::MapChain { function, target: *target, operands: [*x, *y, *z, u, v], extents: *extents })
}

/// What a step makes, where it does not store it.
fn made_in_register(target: &Target) -> Option<Operand> {
    target.store.is_none().then(|| plain(target.register))
}

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::super::row::Work;
    use super::Step;
    use openmps_tile::{Builder, Compare, Scalar, Type, Value};

    /// The numbers of operands of the steps on rows of `out = formula(x)`, loads left out, and what 100 numbers become, NaN and both zeros among them.
    fn run(formula: impl Fn(&mut Builder, Value) -> Value) -> (Vec<usize>, Vec<[f32; 2]>) {
        const LENGTH: usize = 128;
        let mut b = Builder::new("formula");
        let pointers = ["x", "out"].map(|name| b.parameter(name, Type::pointer(Scalar::F32)));
        let range = b.range(LENGTH);
        let [x, out] = pointers.map(|pointer| {
            let all = b.splat(pointer, &[LENGTH]);
            b.add_pointer(all, range)
        });
        let count = b.integer(100, Scalar::I32);
        let count = b.splat(count, &[LENGTH]);
        let mask = b.compare(Compare::Less, range, count);
        let x = b.load(x, Some(mask), None);
        let result = formula(&mut b, x);
        b.store(out, result, Some(mask));
        let program = Program::new(&b.finish()).expect("planned");
        let within = program.body.iter().flat_map(Step::bodies).flatten();
        let operands = program.body.iter().chain(within).filter_map(|step| match step {
            Step::Row(row) => Some(match row.work {
                Work::Load(_) => 0,
                Work::Unary(..) => 1,
                Work::Binary(..) => 2,
                Work::Fused(..) => 3,
                Work::Choice(..) => 4,
                Work::Chain(..) => 5,
            }),
            step => step.target().map(|_| 99),
        });
        let operands = operands.filter(|&operands| operands > 0).collect();
        let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let x: Vec<f32> = (0..100).map(|i| special.get(i).copied().unwrap_or((i as f32 - 50.0) / 7.0)).collect();
        let mut out = vec![0.0_f32; 100];
        let arguments = [x.as_ptr().expose_provenance() as u64, out.as_mut_ptr().expose_provenance() as u64];
        // SAFETY: the kernel loads and stores 100 numbers.
        unsafe { program.run([1, 1, 1], &arguments) }.expect("runs");
        (operands, x.into_iter().zip(out).map(|(x, y)| [x, y]).collect())
    }

    /// Whether all results are those of a function, bit by bit.
    fn agrees(results: &[[f32; 2]], of: impl Fn(f32) -> f32) {
        for &[x, y] in results {
            assert!(y.to_bits() == of(x).to_bits(), "{x}: {y}, not {}", of(x));
        }
    }

    fn number(b: &mut Builder, number: f64) -> Value {
        b.constant(number, &Type::tile(Scalar::F32, &[128]))
    }

    #[test]
    fn a_comparison_that_only_a_choice_reads_is_one_step_with_it() {
        let (operands, results) = run(|b, x| {
            let (zero, slope) = (number(b, 0.0), number(b, 0.5));
            let (is_positive, less) = (b.compare(Compare::Greater, x, zero), b.multiply(x, slope));
            b.select(is_positive, x, less)
        });
        assert_eq!(operands, [2, 4]);
        agrees(&results, |x| if x > 0.0 { x } else { x * 0.5 });
        let (operands, results) = run(|b, x| {
            let (zero, one) = (number(b, 0.0), number(b, 1.0));
            let differs = b.compare(Compare::NotEqual, x, zero);
            let chosen = b.select(differs, one, x);
            let again = b.select(differs, x, one);
            b.add(chosen, again)
        });
        assert_eq!(operands.len(), 4, "{operands:?}: the truth is read twice");
        agrees(&results, |x| 1.0 + x);
    }

    #[test]
    fn bounds_are_one_step_with_the_number_that_they_keep() {
        let clamp = |b: &mut Builder, x, lower_first: bool| {
            let (low, high) = (number(b, -2.0), number(b, 3.0));
            let raise = |b: &mut Builder, x| {
                let is_below = b.compare(Compare::Less, x, low);
                b.select(is_below, low, x)
            };
            let lower = |b: &mut Builder, x| {
                let is_above = b.compare(Compare::Greater, x, high);
                b.select(is_above, high, x)
            };
            if lower_first {
                let raised = raise(b, x);
                return lower(b, raised);
            }
            let lowered = lower(b, x);
            raise(b, lowered)
        };
        let of = |x: f32| x.clamp(-2.0, 3.0);
        let (operands, results) = run(|b, x| clamp(b, x, true));
        assert_eq!(operands, [3]);
        agrees(&results, of);
        let (operands, results) = run(|b, x| clamp(b, x, false));
        assert_eq!(operands, [4, 4]);
        agrees(&results, of);
    }
}
