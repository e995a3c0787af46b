//! Products of matrices in tiles beside the plain ones: of gathered matrices, of segments of K, of parts of K that are added up later.

use super::steel::{Sides, TURNS, Tile, flags, longs, named, words};
use super::types::{COMPLEX, FLOATS, Type};
use super::{Constants, Kernel, MakeCase, Variant, kernel};
use crate::case::{Arg, Case, float, groups, input, ints, near, output, sizes};
use crate::kind::Kind;
use openmps_emulator::Grid;

const TILES: [Tile; 5] =
    [[64, 64, 16, 2, 2], [64, 64, 16, 1, 2], [64, 32, 32, 2, 2], [32, 64, 16, 1, 2], [32, 32, 16, 2, 2]];
/// For rows that have a matrix each.
const OF_ROWS: Tile = [16, 64, 16, 1, 2];
const SPLIT: [Tile; 4] = [[16, 16, 16, 2, 2], [16, 32, 16, 2, 2], [32, 16, 16, 2, 2], [32, 32, 16, 2, 2]];
/// Parts of K.
const PARTS: usize = 3;
/// Matrices that are chosen from, and the choices.
const MATRICES: usize = 2;
const CHOSEN: [[usize; 3]; 2] = [[1, 0, 1], [0, 1, 1]];

fn with(name: String, instance: String, variants: Vec<(Constants, MakeCase)>) -> Kernel {
    let variants = variants.into_iter().map(|(constants, case)| Variant { constants, case }).collect();
    Kernel { name, instance: Some(instance), variants }
}

/// A matrix of a row, from one on.
fn nth(of: Type, values: &[f64], at: usize, elements: usize) -> &[f64] {
    &values[at * elements * of.lanes..][..elements * of.lanes]
}

fn indices(values: &[usize]) -> Arg {
    Arg::Buffer(words(values))
}

fn template(name: &str, of: Type, [bm, bn, bk, wm, wn]: Tile, [a, b]: [bool; 2]) -> String {
    format!("{name}<{}, {bm}, {bn}, {bk}, {wm}, {wn}, {a}, {b}, float>", of.text)
}

pub fn gathered() -> Vec<Kernel> {
    let mut list = Vec::new();
    let edges = [(200, false), (201, false), (202, false)];
    let constants = move |batched: bool| flags(&[[(10, batched)].as_slice(), &edges].concat());
    for of in FLOATS {
        for (turns, turned) in TURNS.into_iter().take(2) {
            let name = format!("steel_gather_mm_rhs_{turns}_{0}_{0}_{1}", of.name, named(OF_ROWS));
            let case: MakeCase = Box::new(move || of_rows(of, turned));
            list.push(with(name, template("gather_mm_rhs", of, OF_ROWS, turned), vec![(constants(false), case)]));
        }
        for (tile, (turns, turned)) in TILES.into_iter().flat_map(|tile| TURNS.map(|turns| (tile, turns))) {
            let name = format!("steel_gather_mm_{turns}_{0}_{0}_{1}", of.name, named(tile));
            let case = |batched: bool| -> (Constants, MakeCase) {
                (constants(batched), Box::new(move || by_indices(of, tile, turned)))
            };
            list.push(with(name, template("gather_mm", of, tile, turned), vec![case(false), case(true)]));
        }
    }
    list
}

/// Rows of which each says which matrix it is multiplied by.
fn of_rows(of: Type, turned: [bool; 2]) -> Case {
    let sides = Sides { m: 37, n: 67, k: 38, turned };
    let Sides { m, n, k, .. } = sides;
    let matrix_of = |row: usize| usize::from((5..22).contains(&row));
    let (a, b) = (of.numbers(m * k, 160), of.numbers(MATRICES * k * n, 161));
    let each: Vec<Vec<f64>> = (0..MATRICES).map(|at| sides.whole(of, [&a, nth(of, &b, at, k * n)])).collect();
    let expected: Vec<f64> = (0..m).flat_map(|row| each[matrix_of(row)][row * n..][..n].to_vec()).collect();
    let chosen: Vec<usize> = (0..m).map(matrix_of).collect();
    let args = vec![
        input(of.kind, &a),
        input(of.kind, &b),
        indices(&chosen),
        output(of.kind, expected.len()),
        sides.parameters(OF_ROWS, [0, k * n, 0], 1),
    ];
    let [columns, rows] = sides.tiles(OF_ROWS);
    groups([columns, rows, 1], [32, OF_ROWS[4], OF_ROWS[3]], args, sides.close(of, of.kind, expected))
}

fn by_indices(of: Type, tile: Tile, turned: [bool; 2]) -> Case {
    let sides = Sides { m: tile[0] + 5, n: tile[1] + 3, k: tile[2] + 6, turned };
    let Sides { m, n, k, .. } = sides;
    let (a, b) = (of.numbers(MATRICES * m * k, 162), of.numbers(MATRICES * k * n, 163));
    let one = |at: usize| sides.whole(of, [nth(of, &a, CHOSEN[0][at], m * k), nth(of, &b, CHOSEN[1][at], k * n)]);
    let expected: Vec<f64> = (0..CHOSEN[0].len()).flat_map(one).collect();
    let mut args = vec![input(of.kind, &a), input(of.kind, &b), indices(&CHOSEN[0]), indices(&CHOSEN[1])];
    // The first two are the distances of indices here.
    args.extend([output(of.kind, expected.len()), sides.parameters(tile, [1, 1, m * n], 1)]);
    args.extend([ints(&[CHOSEN[0].len()]), sizes(&[1]), sizes(&[1])]);
    args.extend([ints(&[1]), ints(&[MATRICES]), sizes(&[m * k]), ints(&[1]), ints(&[MATRICES]), sizes(&[k * n])]);
    let [columns, rows] = sides.tiles(tile);
    groups([columns, rows, CHOSEN[0].len()], [32, tile[4], tile[3]], args, sides.close(of, of.kind, expected))
}

pub fn segmented() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (of, tile, (turns, turned)) in
        FLOATS.into_iter().flat_map(|of| TILES.map(|tile| TURNS.map(|turns| (of, tile, turns)))).flatten()
    {
        let name = format!("steel_segmented_mm_{turns}_{0}_{0}_{1}", of.name, named(tile));
        let case = |pairs: bool| -> (Constants, MakeCase) {
            let constants = flags(&[(199, pairs), (200, false), (201, false)]);
            (constants, Box::new(move || of_segments(of, tile, turned, pairs)))
        };
        list.push(with(name, template("segmented_mm", of, tile, turned), vec![case(false), case(true)]));
    }
    list
}

/// Parts of K, each with a result: by beginning and end, or by ends that are the next one's beginnings. One is empty.
fn of_segments(of: Type, tile: Tile, turned: [bool; 2], pairs: bool) -> Case {
    let sides = Sides { m: tile[0] + 5, n: tile[1] + 3, k: 3 * tile[2] + 6, turned };
    let Sides { m, n, k, .. } = sides;
    let ends = [0, tile[2] + 5, tile[2] + 5, k];
    let (a, b) = (of.numbers(m * k, 164), of.numbers(k * n, 165));
    let parts = ends.windows(2).map(|part| part[0]..part[1]);
    let expected: Vec<f64> = parts.flat_map(|part| sides.sums(of, [&a, &b], part, |_, _, _| 1.0)).collect();
    let bounds = if pairs { ends.windows(2).flatten().copied().collect() } else { ends.to_vec() };
    let args = vec![
        input(of.kind, &a),
        input(of.kind, &b),
        indices(&bounds),
        output(of.kind, expected.len()),
        sides.parameters(tile, [0, 0, m * n], 1),
    ];
    let [columns, rows] = sides.tiles(tile);
    groups([columns, rows, ends.len() - 1], [32, tile[4], tile[3]], args, sides.close(of, of.kind, expected))
}

/// Whether sides are multiples of a tile's, as names have it.
pub fn aligned(is_aligned: bool) -> &'static str {
    if is_aligned { "taligned" } else { "naligned" }
}

pub fn split() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS.into_iter().chain([COMPLEX]) {
        let (to, text) = if of.is_complex() { (of.name, of.text) } else { ("float32", "float") };
        for (tile, (turns, turned)) in SPLIT.into_iter().flat_map(|tile| TURNS.map(|turns| (tile, turns))) {
            for (whole, depth) in [(true, true), (true, false), (false, true), (false, false)] {
                let [bm, bn, bk, wm, wn] = tile;
                let tail = format!("MN_{}_K_{}", aligned(whole), aligned(depth));
                let name = format!("steel_gemm_splitk_{turns}_{}_{to}_{}_{tail}", of.name, named(tile));
                let [a, b] = turned;
                let sizes = format!("{bm}, {bn}, {bk}, {wm}, {wn}, {a}, {b}, {whole}, {depth}");
                let instance = format!("gemm_splitk<{}, {text}, {sizes}>", of.text);
                list.push(kernel(name, instance, move || in_parts(of, tile, turned, [whole, depth])));
            }
        }
        for (tail, added, template) in [("", false, "gemm_splitk_accum"), ("_axbpy", true, "gemm_splitk_accum_axpby")] {
            let name = format!("steel_gemm_splitk_accum_{}_{to}{tail}", of.name);
            list.push(kernel(name, format!("{template}<{text}, {}>", of.text), move || added_up(of, added)));
        }
    }
    list
}

/// K in parts of whole tiles, of which the last one has what remains.
fn in_parts(of: Type, tile: Tile, turned: [bool; 2], [whole, depth]: [bool; 2]) -> Case {
    let over = |is_whole: bool, more: usize| if is_whole { 0 } else { more };
    let sides = Sides {
        m: 2 * tile[0] + over(whole, 5),
        n: tile[1] + over(whole, 3),
        k: (2 * PARTS + 1) * tile[2] + over(depth, 6),
        turned,
    };
    let Sides { m, n, k, .. } = sides;
    let (a, b) = (of.numbers(m * k, 166), of.numbers(k * n, 167));
    let turns = k / tile[2] / PARTS;
    let part = turns * tile[2];
    let range = |at: usize| at * part..if at + 1 == PARTS { k } else { (at + 1) * part };
    let expected: Vec<f64> = (0..PARTS).flat_map(|at| sides.sums(of, [&a, &b], range(at), |_, _, _| 1.0)).collect();
    let ([columns, rows], [of_a, of_b]) = (sides.tiles(tile), sides.pitches());
    let parameters = words(&[m, n, k, of_a, of_b, n, columns, rows, PARTS, m * n, part, 0, turns]);
    let args = vec![input(of.kind, &a), input(of.kind, &b), output(Kind::F32, expected.len()), Arg::Bytes(parameters)];
    groups([columns, rows, PARTS], [32, tile[4], tile[3]], args, sides.close(of, Kind::F32, expected))
}

fn added_up(of: Type, added: bool) -> Case {
    let (m, n) = (7, 45);
    let count = m * n * of.lanes;
    let (parts, more) = (Kind::F32.numbers(PARTS * count, 168), of.numbers(m * n, 169));
    let (alpha, beta) = if added { (0.5, 2.0) } else { (1.0, 0.0) };
    let sum = |at: usize| parts.iter().skip(at).step_by(count).sum::<f64>();
    let expected = (0..count).map(|at| alpha * sum(at) + beta * more[at]).collect();
    let mut args = vec![input(Kind::F32, &parts), output(of.kind, count), ints(&[PARTS]), ints(&[m * n]), ints(&[n])];
    if added {
        args.extend([input(of.kind, &more), ints(&[n]), ints(&[1]), float(alpha), float(beta)]);
    }
    let check = near(of.kind, expected, 4.0, 4.0);
    Case { grid: Grid::Threads([n as u32, m as u32, 1]), group: [16, 2, 1], args, memory: Vec::new(), check }
}

/// What is read of a batch's strides.
pub fn strides(values: &[usize]) -> Arg {
    Arg::Bytes(longs(values))
}
