//! Matrices by vectors: one, gathered ones, and a few at once.

use super::types::{COMPLEX, FLOATS, Type, mul};
use super::{Kernel, Variant, kernel};
use crate::case::{Arg, Case, Check, float, groups, input, ints, near, output, sizes};
use crate::kind::Kind;
use openmps_emulator::Value;

/// bm, bn, sm, sn, tm, tn.
type Tile = [usize; 6];

const PLAIN: [Tile; 7] = [
    [1, 8, 1, 32, 4, 4],
    [1, 8, 1, 32, 1, 4],
    [1, 1, 8, 4, 4, 4],
    [1, 1, 8, 4, 1, 4],
    [4, 1, 1, 32, 1, 4],
    [4, 1, 1, 32, 4, 4],
    [8, 1, 1, 32, 4, 4],
];
const TURNED: [Tile; 5] =
    [[1, 2, 8, 4, 4, 1], [1, 2, 8, 4, 4, 4], [1, 4, 8, 4, 4, 4], [1, 16, 8, 4, 4, 4], [1, 16, 4, 8, 4, 4]];
/// Of these, gathered ones that are not turned have the last three.
const GATHERED: usize = 4;

/// Elements of a vector, and of a result.
const LENGTH: usize = 75;
const COUNT: usize = 45;
const BATCH: usize = 2;
/// Which vector and which matrix.
const CHOSEN: [[usize; 3]; 2] = [[1, 0, 1], [0, 1, 1]];

pub fn kernels() -> Vec<Kernel> {
    let mut list = all();
    // Only the kernels for several vectors ask for these.
    for variant in
        list.iter_mut().flat_map(|kernel| &mut kernel.variants).filter(|variant| variant.constants.is_empty())
    {
        variant.constants = vec![(0, Value::Bool(false)), (1, Value::Bool(false))];
    }
    list
}

fn all() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS.into_iter().chain([COMPLEX]) {
        for (turned, word, tiles) in [(false, "gemv", &PLAIN[..]), (true, "gemv_t", &TURNED[..])] {
            for (at, tile) in tiles.iter().copied().enumerate() {
                let [bm, bn, sm, sn, tm, tn] = tile;
                let name = format!("{}_bm{bm}_bn{bn}_sm{sm}_sn{sn}_tm{tm}_tn{tn}", of.name);
                let arguments = format!("{}, {bm}, {bn}, {sm}, {sn}, {tm}, {tn}", of.text);
                for (nc, added) in [(0, false), (0, true), (1, false), (1, true)] {
                    let added_word = u8::from(added);
                    let name = format!("{word}_{name}_nc{nc}_axpby{added_word}");
                    let instance = format!("{word}<{arguments}, {nc}, {added_word}>");
                    list.push(kernel(name, instance, move || plain(of, tile, turned, added)));
                }
                if turned || at >= GATHERED {
                    let instance = format!("{word}_gather<{arguments}>");
                    list.push(kernel(format!("{word}_gather_{name}"), instance, move || gathered(of, tile, turned)));
                }
            }
        }
    }
    for of in [FLOATS[0], FLOATS[2]] {
        for (lanes, vectors) in [16, 32].into_iter().flat_map(|lanes| [2, 3, 4, 5].map(|vectors| (lanes, vectors))) {
            let tail = format!("{}_nv{vectors}_kl{lanes}", of.name);
            let arguments = format!("{}, {vectors}, {lanes}", of.text);
            let variant = |batched: bool, added: bool| Variant {
                constants: vec![(0, Value::Bool(batched)), (1, Value::Bool(added))],
                case: Box::new(move || wide(of, vectors, lanes, added)),
            };
            let variants = vec![variant(false, false), variant(true, true)];
            list.push(Kernel {
                name: format!("gemv_wide_{tail}"),
                instance: Some(format!("gemv_wide<{arguments}>")),
                variants,
            });
            let instance = format!("gemv_wide_gather<{arguments}>");
            list.push(kernel(format!("gemv_wide_gather_{tail}"), instance, move || wide_gathered(of, vectors, lanes)));
        }
    }
    list
}

/// A matrix by a vector.
fn product(of: Type, matrix: &[f64], vector: &[f64], turned: bool) -> Vec<f64> {
    let lanes = of.lanes;
    let (length, count) = (vector.len() / lanes, matrix.len() / vector.len());
    let place = |out: usize, k: usize| if turned { k * count + out } else { out * length + k };
    let one = |out: usize| {
        let terms = (0..length).map(|k| (&matrix[place(out, k) * lanes..][..lanes], &vector[k * lanes..][..lanes]));
        terms.fold(vec![0.0; lanes], |sum, term| {
            let term = match term {
                (&[a, b], &[c, d]) => mul([a, b], [c, d]).to_vec(),
                (a, b) => vec![a[0] * b[0]],
            };
            sum.iter().zip(term).map(|(sum, term)| sum + term).collect()
        })
    };
    (0..count).flat_map(one).collect()
}

fn check(of: Type, expected: Vec<f64>) -> Check {
    // float32 is as exact as its sums are.
    near(of.kind, expected, 8.0, if of.kind == Kind::F32 { 32.0 } else { 8.0 })
}

fn grid(tile: Tile, turned: bool, batch: usize) -> ([usize; 3], [usize; 3]) {
    let [bm, bn, sm, sn, tm, tn] = tile;
    let per_group = if turned { bn * sn * tn } else { bm * sm * tm };
    ([COUNT.div_ceil(per_group), 1, batch], [32, bn, bm])
}

fn plain(of: Type, tile: Tile, turned: bool, added: bool) -> Case {
    let [matrix, vector, bias] =
        [(LENGTH * COUNT, 110), (LENGTH, 111), (COUNT, 112)].map(|(count, seed)| of.numbers(BATCH * count, seed));
    let (alpha, beta) = if added { (0.5, 2.0) } else { (1.0, 0.0) };
    let both = matrix.chunks(LENGTH * COUNT * of.lanes).zip(vector.chunks(LENGTH * of.lanes));
    let products = both.flat_map(|(matrix, vector)| product(of, matrix, vector, turned));
    let expected = products.zip(&bias).map(|(sum, bias)| alpha * sum + beta * bias).collect();
    let mut args = vec![input(of.kind, &matrix), input(of.kind, &vector), input(of.kind, &bias)];
    args.extend([output(of.kind, bias.len()), ints(&[LENGTH]), ints(&[COUNT])]);
    args.extend([ints(&[if turned { COUNT } else { LENGTH }]), float(alpha), float(beta), ints(&[1]), ints(&[BATCH])]);
    args.extend([sizes(&[LENGTH]), sizes(&[LENGTH * COUNT]), sizes(&[COUNT]), ints(&[1])]);
    let (grid, group) = grid(tile, turned, BATCH);
    groups(grid, group, args, check(of, expected))
}

/// Dimensions, sizes and strides of what is chosen from, and the choices.
fn choices(args: &mut Vec<Arg>, length: usize, matrix: usize) {
    let count = CHOSEN[0].len();
    args.extend([ints(&[1]), ints(&[count]), sizes(&[1, 1])]);
    args.extend([ints(&[1]), ints(&[BATCH]), sizes(&[length]), ints(&[1]), ints(&[BATCH]), sizes(&[matrix])]);
    args.extend(CHOSEN.map(|which| ints(&which)));
}

fn gathered(of: Type, tile: Tile, turned: bool) -> Case {
    let [matrix, vector] = [(LENGTH * COUNT, 113), (LENGTH, 114)].map(|(count, seed)| of.numbers(BATCH * count, seed));
    let one = |at: usize| {
        let vector = &vector[CHOSEN[0][at] * LENGTH * of.lanes..][..LENGTH * of.lanes];
        product(of, &matrix[CHOSEN[1][at] * LENGTH * COUNT * of.lanes..][..LENGTH * COUNT * of.lanes], vector, turned)
    };
    let expected: Vec<f64> = (0..CHOSEN[0].len()).flat_map(one).collect();
    let mut args = vec![input(of.kind, &matrix), input(of.kind, &vector), input(of.kind, &[0.0; 2])];
    args.extend([output(of.kind, expected.len()), ints(&[LENGTH]), ints(&[COUNT])]);
    args.extend([ints(&[if turned { COUNT } else { LENGTH }]), float(1.0), float(0.0)]);
    choices(&mut args, LENGTH, LENGTH * COUNT);
    let (grid, group) = grid(tile, turned, CHOSEN[0].len());
    groups(grid, group, args, check(of, expected))
}

/// Long enough for every lane to go around more than once; a multiple of four, as the kernel wants it.
const WIDE: usize = 1100;

/// Some vectors by one matrix: what is read, and each batch's result.
fn rows(of: Type, matrix: &[f64], vectors: &[f64]) -> Vec<f64> {
    vectors.chunks(WIDE).flat_map(|vector| product(of, matrix, vector, false)).collect()
}

fn wide_grid(lanes: usize, batch: usize) -> ([usize; 3], [usize; 3]) {
    let simdgroups = lanes / 8;
    ([2, COUNT.div_ceil(32 / lanes * simdgroups), batch], [32, simdgroups, 1])
}

fn wide(of: Type, vectors: usize, lanes: usize, added: bool) -> Case {
    let many = 2 * vectors + 1;
    let [matrix, vector, bias] = [(WIDE * COUNT, 115), (WIDE * many, 116), (COUNT * many, 117)]
        .map(|(count, seed)| of.numbers(BATCH * count, seed));
    let (alpha, beta) = if added { (0.5, 2.0) } else { (1.0, 0.0) };
    let both = matrix.chunks(WIDE * COUNT).zip(vector.chunks(WIDE * many));
    let products = both.flat_map(|(matrix, vectors)| rows(of, matrix, vectors));
    let expected = products.zip(&bias).map(|(sum, bias)| alpha * sum + beta * bias).collect();
    let mut args = vec![input(of.kind, &matrix), input(of.kind, &vector), input(of.kind, &bias)];
    args.extend([
        output(of.kind, bias.len()),
        ints(&[WIDE]),
        ints(&[COUNT]),
        ints(&[many]),
        ints(&[WIDE]),
        ints(&[WIDE]),
    ]);
    args.extend([float(alpha), float(beta), ints(&[1]), ints(&[BATCH]), sizes(&[WIDE * many]), sizes(&[WIDE * COUNT])]);
    args.extend([sizes(&[COUNT * many]), ints(&[COUNT]), ints(&[1])]);
    let (grid, group) = wide_grid(lanes, BATCH);
    groups(grid, group, args, near(of.kind, expected, 8.0, 16.0))
}

fn wide_gathered(of: Type, vectors: usize, lanes: usize) -> Case {
    let many = 2 * vectors + 1;
    let [matrix, vector] =
        [(WIDE * COUNT, 118), (WIDE * many, 119)].map(|(count, seed)| of.numbers(BATCH * count, seed));
    let one = |at: usize| {
        let vectors = &vector[CHOSEN[0][at] * WIDE * many..][..WIDE * many];
        rows(of, &matrix[CHOSEN[1][at] * WIDE * COUNT..][..WIDE * COUNT], vectors)
    };
    let expected: Vec<f64> = (0..CHOSEN[0].len()).flat_map(one).collect();
    let mut args = vec![input(of.kind, &matrix), input(of.kind, &vector), input(of.kind, &[0.0])];
    args.extend([
        output(of.kind, expected.len()),
        ints(&[WIDE]),
        ints(&[COUNT]),
        ints(&[many]),
        ints(&[WIDE]),
        ints(&[WIDE]),
    ]);
    args.extend([Arg::None, Arg::None]);
    choices(&mut args, WIDE * many, WIDE * COUNT);
    let (grid, group) = wide_grid(lanes, CHOSEN[0].len());
    groups(grid, group, args, near(of.kind, expected, 8.0, 16.0))
}
