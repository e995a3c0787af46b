//! Sorts of several blocks, in three steps: every block on its own, how pairs of sorted blocks are to be parted, and their merging.

use crate::case::{Case, exact, groups, input, ints, output, sizes};
use crate::kind::Kind;
use std::ops::Range;

const ROWS: usize = 2;
/// Two whole blocks, and a third that is not full.
const BLOCKS: usize = 3;

/// Rows of numbers, some of them alike.
struct Rows {
    kind: Kind,
    width: usize,
    block: usize,
    columns: usize,
    values: Vec<f64>,
}

/// `sort_mbsort_float32_uint32_bn512_tn8`, `partition_...`, `merge_...`.
pub fn sorts(name: &str) -> Option<Case> {
    let (step, rest) = name.split_once("_mbsort_")?;
    let mut words = rest.split('_');
    let kind = Kind::named(words.next()?)?;
    let width: usize = words.nth(1)?.strip_prefix("bn")?.parse().ok()?;
    let each: usize = words.next()?.strip_prefix("tn")?.parse().ok()?;
    let block = each * width;
    let columns = 2 * block + 501;
    let values = match kind {
        Kind::U32 | Kind::I64 => (0..ROWS * columns).map(|at| (at * 7919 % 10_007) as f64).collect(),
        _ => kind.numbers(ROWS * columns, 49),
    };
    let rows = Rows { kind, width, block, columns, values };
    match step {
        "sort" => Some(rows.sorted()),
        "partition" => Some(rows.parted()),
        "merge" => Some(rows.merged()),
        _ => None,
    }
}

impl Rows {
    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks(self.columns)
    }

    /// Every part of a row of so many numbers, the last one shorter.
    fn parts(&self, length: usize) -> impl Iterator<Item = Range<usize>> {
        let columns = self.columns;
        (0..columns.div_ceil(length)).map(move |part| part * length..columns.min((part + 1) * length))
    }

    /// Where the numbers of each part of each row are, in order; those that are alike keep theirs.
    fn order(&self, length: usize) -> Vec<usize> {
        let of_part = |row: &[f64], part: Range<usize>| {
            let mut order: Vec<usize> = part.collect();
            order.sort_by(|a, b| row[*a].total_cmp(&row[*b]));
            order
        };
        self.rows().flat_map(|row| self.parts(length).flat_map(move |part| of_part(row, part))).collect()
    }

    /// Numbers and places that are sorted in parts, as the kernels hand them on.
    fn in_order(&self, length: usize) -> (Vec<f64>, Vec<f64>) {
        let order = self.order(length);
        let values = order.iter().enumerate().map(|(at, from)| self.values[at / self.columns * self.columns + from]);
        (values.collect(), order.iter().map(|from| *from as f64).collect())
    }

    /// Sorted in parts: the numbers are these, and each place is that of an equal number, none of them twice.
    fn check(&self, length: usize) -> crate::case::Check {
        let (expected, _) = self.in_order(length);
        let (columns, values) = (self.columns, self.values.clone());
        let parts: Vec<Range<usize>> = self.parts(length).collect();
        Box::new(move |outputs| {
            let (sorted, places) = (&outputs[0], &outputs[1]);
            if let Some(at) = sorted.iter().zip(&expected).position(|(got, expected)| got != expected) {
                return Err(format!("{} at {at}, not {}", sorted[at], expected[at]));
            }
            for row in 0..ROWS {
                let places = &places[row * columns..][..columns];
                let from = |place: &f64| values.get(row * columns + *place as usize).copied();
                let equal = |(at, place): (usize, &f64)| from(place) == Some(expected[row * columns + at]);
                if let Some((at, place)) = places.iter().enumerate().find(|found| !equal(*found)) {
                    return Err(format!("place {place} at {at} of row {row} has another number"));
                }
                for part in &parts {
                    let mut seen: Vec<usize> = places[part.clone()].iter().map(|place| *place as usize).collect();
                    seen.sort_unstable();
                    if !seen.into_iter().eq(part.clone()) {
                        return Err(format!("the places of {part:?} of row {row} are not those of that part"));
                    }
                }
            }
            Ok(())
        })
    }

    fn sorted(&self) -> Case {
        let count = ROWS * self.columns;
        let args = vec![
            input(self.kind, &self.values),
            output(self.kind, count),
            output(Kind::U32, count),
            ints(&[self.columns]),
            ints(&[1]),
            ints(&[1]),
            ints(&[ROWS]),
            sizes(&[self.columns]),
        ];
        groups([BLOCKS, ROWS, 1], [self.width, 1, 1], args, self.check(self.block))
    }

    /// Where the first of each pair of blocks is parted, for every block of the merged pairs and the end.
    fn partitions(&self) -> Vec<f64> {
        let merged = self.order(2 * self.block);
        let one = |row: usize, at: usize| {
            let begin = self.columns.min(at / 2 * 2 * self.block);
            let end = self.columns.min(begin + 2 * self.block);
            let before = (end - begin).min(at % 2 * self.block);
            let of_first = |from: &&usize| **from < begin + self.block;
            let merged = &merged[row * self.columns + begin..][..before];
            (begin + merged.iter().filter(of_first).count()) as f64
        };
        (0..ROWS).flat_map(|row| (0..=BLOCKS).map(move |at| (row, at))).map(|(row, at)| one(row, at)).collect()
    }

    fn parted(&self) -> Case {
        let ((values, places), expected) = (self.in_order(self.block), self.partitions());
        let out = output(Kind::U32, expected.len());
        let tail = [self.columns, 2, BLOCKS].map(|value| ints(&[value]));
        let mut args = vec![out, input(self.kind, &values), input(Kind::U32, &places)];
        args.extend(tail);
        groups([1, ROWS, 1], [BLOCKS + 1, 1, 1], args, exact(Kind::U32, expected))
    }

    fn merged(&self) -> Case {
        let ((values, places), count) = (self.in_order(self.block), ROWS * self.columns);
        let mut args = vec![input(Kind::U32, &self.partitions()), input(self.kind, &values), input(Kind::U32, &places)];
        args.extend([output(self.kind, count), output(Kind::U32, count)]);
        args.extend([self.columns, 2, BLOCKS].map(|value| ints(&[value])));
        groups([BLOCKS, ROWS, 1], [self.width, 1, 1], args, self.check(2 * self.block))
    }
}
