//! Copies from type to type and from layout to layout, and choices between two arrays.

use super::types::{BOOL, COMPLEX, FLOATS, Type, WHOLE};
use super::unary::{COUNT, DIMS, line, places, rows, strides};
use super::{Kernel, kernel};
use crate::case::{Arg, Case, exact, input, ints, near, output, sizes};
use crate::kind::Kind;
use openmps_emulator::Grid;

/// Where elements lie: all at one place, in order, in order with a gap behind each, or as an array whose dimensions go the other way round.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    First,
    Order,
    Gaps,
    Turned,
}

/// How threads go over elements.
#[derive(Clone, Copy, PartialEq)]
enum Walk {
    /// In a row, or in two.
    Line,
    Two,
    /// So many dimensions, strides only.
    Dims(usize),
    /// Shape and strides.
    Strided,
}

/// Name and template of a form, what follows its types, elements of a thread (0: as the type says), and how it walks.
type Form = (&'static str, &'static str, &'static str, usize, Walk);

const GENERAL: [Form; 8] = [
    ("g1", "g_nd1", ", int", 1, Walk::Dims(1)),
    ("g2", "g_nd2", ", int", 1, Walk::Dims(2)),
    ("g3", "g_nd3", ", int", 1, Walk::Dims(3)),
    ("gn2", "g", ", 2, int", 2, Walk::Strided),
    ("g1large", "g_nd1", "", 1, Walk::Dims(1)),
    ("g2large", "g_nd2", "", 1, Walk::Dims(2)),
    ("g3large", "g_nd3", "", 1, Walk::Dims(3)),
    ("gn4large", "g", ", 4", 4, Walk::Strided),
];
/// Offsets of source and destination.
const OFFSETS: [usize; 2] = [3, 5];

fn types() -> impl Iterator<Item = Type> {
    [BOOL].into_iter().chain(WHOLE).chain(FLOATS).chain([COMPLEX])
}

impl Place {
    /// The place of each element.
    fn places(self) -> Vec<usize> {
        match self {
            Place::First => vec![0; COUNT],
            Place::Order => (0..COUNT).collect(),
            Place::Gaps => (0..COUNT).map(|at| 2 * at).collect(),
            Place::Turned => places().collect(),
        }
    }

    /// Strides of a walk; two dimensions are those of a matrix of the last one.
    fn strides(self, walk: Walk) -> Vec<usize> {
        match (self, walk) {
            (Place::Gaps, _) => vec![2],
            (_, Walk::Dims(1)) => vec![1],
            (_, Walk::Dims(2)) => vec![DIMS[2], 1],
            (Place::Turned, _) => strides().to_vec(),
            _ => vec![DIMS[1] * DIMS[2], DIMS[2], 1],
        }
    }
}

/// The layout that a walk of one dimension, of two, and of more can tell from one in order.
fn other(walk: Walk) -> Place {
    match walk {
        Walk::Dims(1) => Place::Gaps,
        Walk::Dims(2) => Place::Order,
        _ => Place::Turned,
    }
}

fn threads(walk: Walk, each: usize) -> [u32; 3] {
    match walk {
        Walk::Line => line(each, false),
        Walk::Two => line(each, true),
        Walk::Dims(1) => line(1, false),
        Walk::Dims(2) => [DIMS[2] as u32, (DIMS[0] * DIMS[1]) as u32, 1],
        _ => rows(each),
    }
}

pub fn copies() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (from, to) in types().flat_map(|from| types().map(move |to| (from, to))) {
        let names = format!("copy{}{}", from.name, to.name);
        let types = format!("{}, {}", from.text, to.text);
        let mut push =
            |name: String, instance: String, copy: Copy| list.push(kernel(name, instance, move || copy.case()));
        let each = to.per_thread();
        for (form, place) in [("s", Place::First), ("v", Place::Order)] {
            let copy = |each: usize, walk: Walk| Copy {
                from,
                to,
                source: place,
                target: Place::Order,
                each,
                walk,
                bind: Bind::Size,
            };
            push(format!("{form}_{names}"), format!("copy_{form}<{types}, 1>"), copy(1, Walk::Line));
            push(format!("{form}2_{names}"), format!("copy_{form}2<{types}>"), copy(each, Walk::Two));
            if each > 1 {
                push(format!("{form}n_{names}"), format!("copy_{form}<{types}>"), copy(each, Walk::Line));
            }
        }
        for (form, template, rest, each, walk) in GENERAL {
            let copy = Copy { from, to, source: other(walk), target: Place::Order, each, walk, bind: Bind::Source };
            push(format!("{form}_{names}"), format!("copy_{template}<{types}{rest}>"), copy);
            if from.name == to.name {
                // From order to the other layout.
                let copy = Copy { source: Place::Order, target: other(walk), bind: Bind::Both, ..copy };
                push(format!("g{form}_{names}"), format!("copy_g{template}<{types}{rest}>"), copy);
                let template = template.replacen('g', "gg_dynamic", 1);
                let copy = Copy { bind: Bind::Offsets, ..copy };
                push(format!("g{form}_dynamic_{names}"), format!("copy_{template}<{types}{rest}>"), copy);
            }
        }
    }
    list
}

/// What is bound beside the two arrays.
#[derive(Clone, Copy, PartialEq)]
enum Bind {
    Size,
    Source,
    Both,
    Offsets,
}

#[derive(Clone, Copy)]
struct Copy {
    from: Type,
    to: Type,
    source: Place,
    target: Place,
    each: usize,
    walk: Walk,
    bind: Bind,
}

impl Copy {
    /// An element as the other type.
    fn cast(&self, value: &[f64]) -> Vec<f64> {
        let is_bool = self.to.name == BOOL.name;
        match self.to.lanes {
            2 if self.from.lanes == 2 => value.to_vec(),
            2 => vec![value[0], 0.0],
            _ if is_bool => vec![f64::from(value.iter().any(|part| *part != 0.0))],
            _ if self.to.kind.is_float() => vec![self.to.kind.round(value[0])],
            _ => vec![value[0].trunc()],
        }
    }

    fn case(self) -> Case {
        let Copy { from, to, source, target, each, walk, bind } = self;
        let [skipped, before] = if bind == Bind::Offsets { OFFSETS } else { [0; 2] };
        // Nothing below zero, of which an unsigned integer is not defined.
        let values: Vec<f64> = from.numbers(2 * COUNT + skipped, 190).iter().map(|value| value.abs()).collect();
        let length = before + target.places().iter().max().map_or(0, |last| last + 1);
        let mut expected = vec![0.0; length * to.lanes];
        for (place, into) in source.places().into_iter().zip(target.places()) {
            let value = &values[(skipped + place) * from.lanes..][..from.lanes];
            expected[(before + into) * to.lanes..][..to.lanes].copy_from_slice(&self.cast(value));
        }
        let mut args = vec![input(from.kind, &values), output(to.kind, expected.len())];
        let shape = if walk == Walk::Strided { ints(&DIMS) } else { Arg::None };
        args.push(match (bind, walk) {
            (Bind::Size, Walk::Two) => sizes(&[COUNT]),
            (Bind::Size, _) => ints(&[COUNT]),
            _ => shape,
        });
        if bind != Bind::Size {
            let of_target = if bind == Bind::Source { Arg::None } else { sizes(&target.strides(walk)) };
            args.extend([sizes(&source.strides(walk)), of_target, ints(&[DIMS.len()])]);
        }
        if bind == Bind::Offsets {
            args.extend(OFFSETS.map(|offset| sizes(&[offset])));
        }
        let check = if to.kind == Kind::Bool { exact(to.kind, expected) } else { near(to.kind, expected, 1.0, 0.0) };
        Case { grid: Grid::Threads(threads(walk, each)), group: [16, 2, 1], args, memory: Vec::new(), check }
    }
}

/// Forms that read in order: name, template, and which of the two arrays is one element.
const CHOICES: [(&str, &str, [bool; 2]); 3] =
    [("v", "false, false", [false; 2]), ("vs", "false, true", [false, true]), ("sv", "true, false", [true, false])];

/// `Select`: of two arrays by a third.
pub fn choices() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in types() {
        let each = of.per_thread();
        let names = format!("Select{}", of.name);
        for (form, flags, firsts) in CHOICES {
            let places = firsts.map(|first| if first { Place::First } else { Place::Order });
            let mut push = |name: String, template: &str, rest: &str, each: usize, walk: Walk| {
                let instance = format!("{template}<{}, Select, {flags}{rest}>", of.text);
                list.push(kernel(name, instance, move || choice(of, places, each, walk)));
            };
            push(format!("{form}_{names}"), "ternary_v", ", 1", 1, Walk::Line);
            push(format!("{form}2_{names}"), "ternary_v2", "", each, Walk::Two);
            if each > 1 {
                push(format!("{form}n_{names}"), "ternary_v", "", each, Walk::Line);
            }
        }
        for (form, template, rest, each, walk) in GENERAL {
            let instance = format!("ternary_{template}<{}, Select{rest}>", of.text);
            list.push(kernel(format!("{form}_{names}"), instance, move || {
                choice(of, [other(walk), Place::Order], each, walk)
            }));
        }
    }
    list
}

fn choice(of: Type, [of_x, of_y]: [Place; 2], each: usize, walk: Walk) -> Case {
    let (which, x, y) = (Kind::Bool.numbers(COUNT, 191), of.numbers(2 * COUNT, 192), of.numbers(COUNT, 193));
    let both = of_x.places().into_iter().zip(of_y.places());
    let one = |(which, (left, right)): (&f64, (usize, usize))| {
        let (values, place) = if *which != 0.0 { (&x, left) } else { (&y, right) };
        values[place * of.lanes..][..of.lanes].to_vec()
    };
    let expected: Vec<f64> = which.iter().zip(both).flat_map(one).collect();
    let mut args = vec![input(Kind::Bool, &which), input(of.kind, &x), input(of.kind, &y)];
    args.push(output(of.kind, expected.len()));
    let all = [Place::Order, of_x, of_y];
    match walk {
        Walk::Line => args.push(ints(&[COUNT])),
        Walk::Two => args.push(sizes(&[COUNT])),
        Walk::Dims(_) => args.extend(all.map(|place| sizes(&place.strides(walk)))),
        Walk::Strided => {
            args.push(ints(&DIMS));
            args.extend(all.map(|place| sizes(&place.strides(walk))));
            args.push(ints(&[DIMS.len()]));
        }
    }
    Case {
        grid: Grid::Threads(threads(walk, each)),
        group: [16, 2, 1],
        args,
        memory: Vec::new(),
        check: exact(of.kind, expected),
    }
}
