//! Rotary embedding, and places of the least and greatest elements.

use super::types::{BOOL, FLOATS, Type, WHOLE};
use super::{Kernel, Variant};
use crate::case::{Arg, Case, exact, float, groups, input, ints, near, output, sizes};
use crate::kind::Kind;
use openmps_emulator::{Grid, Value};

/// Batches, heads (no multiple of four), positions, elements of a head.
const BATCH: usize = 2;
const HEADS: usize = 5;
const LENGTH: usize = 3;
const WIDTH: usize = 10;
const BASE: f64 = 13.25;
const SCALE: f64 = 0.5;
/// Where the first position of each batch is.
const OFFSETS: [f64; BATCH] = [3.0, 5.0];

#[derive(Clone, Copy)]
struct Rope {
    of: Type,
    freqs: bool,
    forward: bool,
    traditional: bool,
    transposed: bool,
}

/// Forwards, pairs of neighbours, heads behind positions in memory.
const MODES: [[bool; 3]; 5] =
    [[true, false, false], [true, true, false], [false, false, false], [false, true, false], [true, false, true]];

pub fn rope() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS {
        for freqs in [false, true] {
            let word = if freqs { "_freqs" } else { "" };
            for form in ["rope_single", "rope", "rope_large"] {
                let name = match form {
                    "rope_large" => format!("rope{word}_large_{}", of.name),
                    _ => format!("{form}{word}_{}", of.name),
                };
                let variant = |[forward, traditional, transposed]: [bool; 3]| {
                    let rope = Rope { of, freqs, forward, traditional, transposed };
                    let case = move || if form == "rope_single" { rope.single() } else { rope.whole() };
                    let constants = [(1, forward), (2, traditional), (3, transposed)];
                    Variant {
                        constants: constants.map(|(at, on)| (at, Value::Bool(on))).to_vec(),
                        case: Box::new(case),
                    }
                };
                list.push(Kernel { name, instance: None, variants: MODES.into_iter().map(variant).collect() });
            }
        }
    }
    list
}

impl Rope {
    /// The frequency of a pair.
    fn frequency(&self, pair: usize) -> f64 {
        if self.freqs { 1.0 / periods()[pair] } else { (-BASE * pair as f64 / (WIDTH / 2) as f64).exp2() }
    }

    /// Turns the pairs of a head.
    fn turned(&self, head: &[f64], position: f64) -> Vec<f64> {
        let mut result = vec![0.0; WIDTH];
        for pair in 0..WIDTH / 2 {
            let [a, b] = if self.traditional { [2 * pair, 2 * pair + 1] } else { [pair, pair + WIDTH / 2] };
            let angle = SCALE * position * self.frequency(pair);
            let (sin, cos) = if self.forward { angle.sin_cos() } else { (-angle).sin_cos() };
            result[a] = head[a] * cos - head[b] * sin;
            result[b] = head[a] * sin + head[b] * cos;
        }
        result
    }

    fn tail(&self, args: &mut Vec<Arg>) {
        args.resize_with(10, || Arg::None);
        if self.freqs {
            args.extend([input(Kind::F32, &periods()), sizes(&[1])]);
        } else {
            args.push(float(BASE));
        }
    }

    fn single(&self) -> Case {
        let kind = self.of.kind;
        let values = kind.numbers(BATCH * HEADS * WIDTH, 97);
        let expected = values.chunks(WIDTH).flat_map(|head| self.turned(head, OFFSETS[0])).collect();
        let mut args = vec![input(kind, &values), output(kind, values.len())];
        args.extend([ints(&[OFFSETS[0] as usize]), float(SCALE), sizes(&[WIDTH])]);
        self.tail(&mut args);
        let grid = Grid::Threads([(WIDTH / 2) as u32, (BATCH * HEADS) as u32, 1]);
        Case { grid, ..groups([1; 3], [4, 4, 1], args, near(kind, expected, 8.0, 2.0)) }
    }

    fn whole(&self) -> Case {
        let kind = self.of.kind;
        let values = kind.numbers(BATCH * HEADS * LENGTH * WIDTH, 98);
        let mut expected = Vec::new();
        for (batch, head, position) in
            (0..BATCH).flat_map(|b| (0..HEADS).flat_map(move |h| (0..LENGTH).map(move |l| (b, h, l))))
        {
            let row = if self.transposed {
                (batch * LENGTH + position) * HEADS + head
            } else {
                (batch * HEADS + head) * LENGTH + position
            };
            expected.extend(self.turned(&values[row * WIDTH..][..WIDTH], position as f64 + OFFSETS[batch]));
        }
        let in_order = [LENGTH * WIDTH, WIDTH, 1];
        let strides = if self.transposed { [WIDTH, HEADS * WIDTH, 1] } else { in_order };
        let mut args = vec![input(kind, &values), output(kind, values.len()), input(Kind::I32, &OFFSETS)];
        args.extend([float(SCALE), sizes(&strides), sizes(&in_order), sizes(&[1]), ints(&[HEADS])]);
        self.tail(&mut args);
        let grid = Grid::Threads([(WIDTH / 2) as u32, LENGTH as u32, (BATCH * HEADS.div_ceil(4)) as u32]);
        Case { grid, ..groups([1; 3], [4, 2, 2], args, near(kind, expected, 8.0, 2.0)) }
    }
}

fn periods() -> Vec<f64> {
    (0..WIDTH / 2).map(|pair| Kind::F32.round(1.0 + 2.5 * pair as f64)).collect()
}

pub fn arg_reduce() -> Vec<Kernel> {
    let types = || WHOLE.into_iter().chain(FLOATS).chain([BOOL]);
    let both = types().flat_map(|of| [("argmin", of), ("argmax", of)]);
    both.map(|(operation, of)| {
        let case = move || places(of, operation == "argmax");
        let variant = Variant { constants: Vec::new(), case: Box::new(case) };
        Kernel { name: format!("{operation}_{}", of.name), instance: None, variants: vec![variant] }
    })
    .collect()
}

/// Of columns, which lie element by element apart.
fn places(of: Type, greatest: bool) -> Case {
    let (dims, length) = ([2, 3], 301);
    let columns = dims[0] * dims[1];
    let values = of.numbers(length * columns, 99);
    let place = |column: usize| {
        let best = |best: usize, at: usize| {
            let (x, y) = (values[best * columns + column], values[at * columns + column]);
            if if greatest { y > x } else { y < x } { at } else { best }
        };
        (0..length).fold(0, best) as f64
    };
    let expected = (0..columns).map(place).collect();
    let mut args = vec![input(of.kind, &values), output(Kind::U32, columns), ints(&dims)];
    args.extend([sizes(&[3, 1]), sizes(&[3, 1]), sizes(&[2]), sizes(&[columns]), sizes(&[length])]);
    groups([1, columns, 1], [64, 1, 1], args, exact(Kind::U32, expected))
}
