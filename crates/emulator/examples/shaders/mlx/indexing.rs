//! Gathering and scattering by indices. MLX makes these kernels when they are asked for: the list is our own choice of element types, types of
//! indices and layouts, and so are the two kernels around its functions for several arrays of indices.

use super::folds::{Fold, MAX, MIN, PROD, SUM};
use super::types::{BOOL, COMPLEX, FLOATS, Type, WHOLE};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, input, ints, near, output, sizes, threads};
use crate::kind::Kind;
use openmps_emulator::Grid;

/// With one array of indices, and with two; the indices have one dimension, or two.
pub const GATHER: &str = "
template <typename T, typename I, typename L> [[kernel]] void gather_one(
    const device T* src [[buffer(0)]], device T* out [[buffer(1)]], const constant int* shape [[buffer(2)]], const constant int64_t* strides [[buffer(3)]],
    const constant size_t& ndim [[buffer(4)]], const constant int* slices [[buffer(5)]], const constant int* axes [[buffer(6)]],
    const constant int* idx_shapes [[buffer(7)]], const constant int64_t* idx_strides [[buffer(8)]], const constant bool* contiguous [[buffer(9)]],
    const constant int& idx_ndim [[buffer(10)]], const device I* first [[buffer(11)]], uint3 index [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
  Indices<I, 1> indices{{{first}}, idx_shapes, idx_strides, contiguous, idx_ndim};
  return gather_impl<T, I, 1, 1, L>(src, out, shape, strides, ndim, slices, axes, indices, index, grid);
}
template <typename T, typename I, typename L> [[kernel]] void gather_two(
    const device T* src [[buffer(0)]], device T* out [[buffer(1)]], const constant int* shape [[buffer(2)]], const constant int64_t* strides [[buffer(3)]],
    const constant size_t& ndim [[buffer(4)]], const constant int* slices [[buffer(5)]], const constant int* axes [[buffer(6)]],
    const constant int* idx_shapes [[buffer(7)]], const constant int64_t* idx_strides [[buffer(8)]], const constant bool* contiguous [[buffer(9)]],
    const constant int& idx_ndim [[buffer(10)]], const device I* first [[buffer(11)]], const device I* second [[buffer(12)]],
    uint3 index [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
  Indices<I, 2> indices{{{first, second}}, idx_shapes, idx_strides, contiguous, idx_ndim};
  return gather_impl<T, I, 2, 2, L>(src, out, shape, strides, ndim, slices, axes, indices, index, grid);
}
";
pub const SCATTER: &str = "
template <typename T, typename I, typename Op, bool UPD, int WORK, typename L> [[kernel]] void scatter_one(
    const device T* updates [[buffer(0)]], device mlx_atomic<T>* out [[buffer(1)]], const constant int* upd_shape [[buffer(2)]],
    const constant int64_t* upd_strides [[buffer(3)]], const constant size_t& upd_ndim [[buffer(4)]], const constant size_t& upd_size [[buffer(5)]],
    const constant int* shape [[buffer(6)]], const constant int64_t* strides [[buffer(7)]], const constant size_t& ndim [[buffer(8)]],
    const constant int* axes [[buffer(9)]], const constant int* idx_shapes [[buffer(10)]], const constant int64_t* idx_strides [[buffer(11)]],
    const constant bool* contiguous [[buffer(12)]], const constant int& idx_ndim [[buffer(13)]], const constant size_t& idx_size [[buffer(14)]],
    const device I* first [[buffer(15)]], uint2 gid [[thread_position_in_grid]]) {
  Indices<I, 1> indices{{{first}}, idx_shapes, idx_strides, contiguous, idx_ndim};
  return scatter_impl<T, I, Op, 1, UPD, WORK, L>(
      updates, out, upd_shape, upd_strides, upd_ndim, upd_size, shape, strides, ndim, axes, idx_size, indices, gid);
}
";

/// uint32, int32.
const INDICES: [Type; 2] = [WHOLE[2], WHOLE[6]];
const LOCATIONS: [(&str, &str); 2] = [("int", "int"), ("int64", "int64_t")];

pub fn gather() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in WHOLE.into_iter().chain(FLOATS).chain([COMPLEX, BOOL]) {
        for (index, (word, location)) in
            INDICES.into_iter().flat_map(|index| LOCATIONS.map(|location| (index, location)))
        {
            let name = format!("{}_{}_{word}", of.name, index.name);
            let arguments = format!("{}, {}, {location}", of.text, index.text);
            list.push(kernel(format!("gather{name}_1_1"), format!("gather_one<{arguments}>"), move || one(of, index)));
            list.push(kernel(format!("gather{name}_2_2"), format!("gather_two<{arguments}>"), move || two(of, index)));
            for each in [1, 4] {
                let instance = format!("gather_front<{arguments}, {each}>");
                list.push(kernel(format!("gather_front{name}_{each}"), instance, move || front(of, index, each)));
            }
            for (src, idx) in [(true, true), (true, false), (false, true), (false, false)] {
                let instance = format!("gather_axis<{arguments}, {src}, {idx}>");
                list.push(kernel(format!("gather_axis{name}_{src}_{idx}"), instance, move || {
                    axis(of, index, src, idx)
                }));
            }
        }
    }
    list
}

/// Indices below a size, some of them from its end where the type has that.
fn indices(of: Type, count: usize, below: usize, step: usize) -> (Vec<f64>, Vec<usize>) {
    let which: Vec<usize> = (0..count).map(|at| at * step % below).collect();
    let negative = |at: usize| of.kind == Kind::I32 && at % 3 == 1;
    let given =
        which.iter().enumerate().map(|(at, index)| *index as f64 - if negative(at) { below as f64 } else { 0.0 });
    (given.collect(), which)
}

fn elements(of: Type, values: &[f64], places: impl Iterator<Item = usize>) -> Vec<f64> {
    places.flat_map(|at| values[at * of.lanes..][..of.lanes].to_vec()).collect()
}

fn grid(threads_of: [usize; 3], of: Type, args: Vec<Arg>, expected: Vec<f64>, roundings: f64) -> Case {
    let case = threads(1, args, near(of.kind, expected, roundings, 8.0));
    Case { grid: Grid::Threads(threads_of.map(|n| n as u32)), group: [4, 2, 2], ..case }
}

/// Rows of a matrix.
fn one(of: Type, index: Type) -> Case {
    let (rows, columns, count) = (5, 7, 4);
    let values = of.numbers(rows * columns, 140);
    let (given, which) = indices(index, count, rows, 3);
    let expected = elements(of, &values, which.iter().flat_map(|row| row * columns..(row + 1) * columns));
    let mut args = vec![input(of.kind, &values), output(of.kind, expected.len()), ints(&[rows, columns])];
    args.extend([sizes(&[columns, 1]), sizes(&[2]), ints(&[1, columns]), ints(&[0]), ints(&[count]), sizes(&[1])]);
    args.extend([Arg::Bytes(vec![1]), ints(&[1]), input(index.kind, &given)]);
    grid([count, 1, columns], of, args, expected, 0.0)
}

/// Rows of a matrix of rows; the second indices lie column by column.
fn two(of: Type, index: Type) -> Case {
    let ([a, b, c], [x, y]) = ([5, 7, 3], [2, 3]);
    let values = of.numbers(a * b * c, 141);
    let ((first, of_first), (second, of_second)) = (indices(index, x * y, a, 3), indices(index, x * y, b, 4));
    let row = |at: usize| (of_first[at] * b + of_second[at % y * x + at / y]) * c;
    let expected = elements(of, &values, (0..x * y).flat_map(|at| row(at)..row(at) + c));
    let mut args = vec![input(of.kind, &values), output(of.kind, expected.len()), ints(&[a, b, c])];
    args.extend([sizes(&[b * c, c, 1]), sizes(&[3]), ints(&[1, 1, c]), ints(&[0, 1]), ints(&[x, y, x, y])]);
    args.extend([sizes(&[y, 1, 1, x]), Arg::Bytes(vec![1, 0]), ints(&[2])]);
    args.extend([input(index.kind, &first), input(index.kind, &second)]);
    grid([x, y, c], of, args, expected, 0.0)
}

fn front(of: Type, index: Type, each: usize) -> Case {
    let (rows, columns, count) = (5, 11, 4);
    let values = of.numbers(rows * columns, 142);
    let (given, which) = indices(index, count, rows, 3);
    let expected = elements(of, &values, which.iter().flat_map(|row| row * columns..(row + 1) * columns));
    let mut args = vec![input(of.kind, &values), input(index.kind, &given), output(of.kind, expected.len())];
    args.extend([sizes(&[columns]), ints(&[rows])]);
    grid([columns.div_ceil(each), count, 1], of, args, expected, 0.0)
}

/// Outer, inner, and along the axis: of the array that has all of it, and of the indices.
const OUTER: usize = 2;
const INNER: usize = 3;
const ALL: usize = 5;
const SOME: usize = 4;

/// Places in order, or with the inner dimension outermost: one of each outer, axis and inner place, and the strides of these.
fn strides(length: usize, in_order: bool) -> [usize; 3] {
    if in_order { [length * INNER, INNER, 1] } else { [1, OUTER, OUTER * length] }
}

fn place([a, b, c]: [usize; 3], outer: usize, at: usize, inner: usize) -> usize {
    outer * a + at * b + inner * c
}

fn cells() -> impl Iterator<Item = (usize, usize, usize)> {
    (0..OUTER).flat_map(|outer| (0..SOME).flat_map(move |at| (0..INNER).map(move |inner| (outer, at, inner))))
}

fn axis(of: Type, index: Type, src_in_order: bool, idx_in_order: bool) -> Case {
    let values = of.numbers(OUTER * ALL * INNER, 143);
    let (given, which) = indices(index, OUTER * SOME * INNER, ALL, 3);
    let (src, idx) = (strides(ALL, src_in_order), strides(SOME, idx_in_order));
    let places = cells().map(|(outer, at, inner)| place(src, outer, which[place(idx, outer, at, inner)], inner));
    let expected = elements(of, &values, places);
    let mut args = vec![input(of.kind, &values), input(index.kind, &given), output(of.kind, expected.len())];
    args.extend(layout(src, idx));
    args.extend([sizes(&[src[1]]), sizes(&[idx[1]])]);
    grid([INNER, SOME, OUTER], of, args, expected, 0.0)
}

/// Dimensions and strides without the axis, and the axis.
fn layout(one: [usize; 3], other: [usize; 3]) -> Vec<Arg> {
    let outside = |[a, _, c]: [usize; 3]| sizes(&[a, c]);
    vec![ints(&[OUTER, INNER]), outside(one), outside(other), sizes(&[2]), ints(&[1]), ints(&[ALL])]
}

/// What scattering does with an element that is there, under the name that the text has it.
const UPDATES: [(&str, Fold); 5] =
    [("None", |_, new| new.to_vec()), ("Sum", SUM.fold), ("Prod", PROD.fold), ("Max", MAX.fold), ("Min", MIN.fold)];

pub fn scatter() -> Vec<Kernel> {
    let mut list = Vec::new();
    // Those of eight bytes have no atomic operations in Metal.
    for of in WHOLE.into_iter().filter(|of| of.size() < 8).chain(FLOATS) {
        for (index, (op, fold)) in INDICES.into_iter().flat_map(|index| UPDATES.map(|update| (index, update))) {
            let text = if op == "None" { op.to_owned() } else { format!("{op}<{}>", of.text) };
            let types = format!("{}, {}", of.text, index.text);
            let name = format!("{}_{}_{op}", of.name, index.name);
            for (in_order, work) in [(true, 1), (false, 4)] {
                let instance = format!("scatter_one<{types}, {text}, {in_order}, {work}, int>");
                let case = move || rows(of, index, op, fold, in_order, work);
                list.push(kernel(format!("scatter{name}_1_updc_{in_order}_nwork{work}"), instance, case));
            }
            for (upd, idx) in [(true, true), (true, false), (false, true), (false, false)] {
                if !matches!(op, "None" | "Sum") {
                    continue;
                }
                let instance = format!("scatter_axis<{types}, int, {text}, {upd}, {idx}>");
                let case = move || into_axis(of, index, op, fold, [upd, idx]);
                list.push(kernel(format!("scatter_axis{name}_{upd}_{idx}"), instance, case));
            }
        }
    }
    list
}

/// Different indices where the last update would stay, some alike else.
fn targets(index: Type, op: &str, count: usize, below: usize) -> (Vec<f64>, Vec<usize>) {
    indices(index, count, if op == "None" { below } else { below - 2 }, 1)
}

/// Rows into the rows of a matrix.
fn rows(of: Type, index: Type, op: &str, fold: Fold, in_order: bool, work: usize) -> Case {
    let (rows, columns, count) = (6, 7, 5);
    let (before, updates) = (of.numbers(rows * columns, 144), of.numbers(count * columns, 145));
    // From the end of the whole, not of the part that has targets.
    let (_, which) = targets(index, op, count, rows);
    let negative = |at: usize| index.kind == Kind::I32 && at % 3 == 1;
    let given: Vec<f64> =
        which.iter().enumerate().map(|(at, row)| *row as f64 - if negative(at) { rows as f64 } else { 0.0 }).collect();
    let strides = if in_order { [columns, 1] } else { [1, count] };
    let mut expected = before.clone();
    for (at, column) in (0..count).flat_map(|at| (0..columns).map(move |column| (at, column))) {
        let slot = &mut expected[which[at] * columns + column];
        *slot = of.kind.round(fold(&[*slot], &[updates[at * strides[0] + column * strides[1]]])[0]);
    }
    let mut args = vec![input(of.kind, &updates), Arg::Out(of.kind, before), ints(&[count, 1, columns])];
    args.extend([sizes(&[strides[0], 0, strides[1]]), sizes(&[3]), sizes(&[columns]), ints(&[rows, columns])]);
    args.extend([sizes(&[columns, 1]), sizes(&[2]), ints(&[0]), ints(&[count]), sizes(&[1]), Arg::Bytes(vec![1])]);
    args.extend([ints(&[1]), sizes(&[count]), input(index.kind, &given)]);
    grid([columns, count.div_ceil(work), 1], of, args, expected, if of.kind.is_float() { 4.0 } else { 0.0 })
}

fn into_axis(of: Type, index: Type, op: &str, fold: Fold, [upd_in_order, idx_in_order]: [bool; 2]) -> Case {
    let (before, updates) = (of.numbers(OUTER * ALL * INNER, 146), of.numbers(OUTER * SOME * INNER, 147));
    let (upd, idx) = (strides(SOME, upd_in_order), strides(SOME, idx_in_order));
    let mut given = vec![0.0; OUTER * SOME * INNER];
    let mut expected = before.clone();
    for (outer, at, inner) in cells() {
        // Along the axis no two are alike, where the last update would stay.
        let target = if op == "None" { (at + inner + outer) % ALL } else { at % 2 + inner };
        let negative = index.kind == Kind::I32 && (at + inner) % 3 == 1;
        given[place(idx, outer, at, inner)] = target as f64 - if negative { ALL as f64 } else { 0.0 };
        let slot = &mut expected[(outer * ALL + target) * INNER + inner];
        *slot = of.kind.round(fold(&[*slot], &[updates[place(upd, outer, at, inner)]])[0]);
    }
    let mut args = vec![input(of.kind, &updates), input(index.kind, &given), Arg::Out(of.kind, before)];
    args.extend(layout(upd, idx));
    args.extend([sizes(&[upd[1]]), sizes(&[idx[1]])]);
    grid([INNER, SOME, OUTER], of, args, expected, if of.kind.is_float() { 4.0 } else { 0.0 })
}
