//! Functions of two elements, in up to eighteen forms each, with one result or two.

use super::types::{self, BOOL, COMPLEX, Complex, FLOATS, Type, WHOLE};
use super::unary::{COUNT, DIMS, line, places, rows, strides};
use super::{Kernel, kernel};
use crate::case::{Case, Check, input, ints, near, output, sizes};
use openmps_emulator::Grid;

/// Of elements of a type: its lanes in, the result's lanes out.
type Function = fn(Type, &[f64], &[f64]) -> Vec<f64>;

/// How a type's operation is done: of numbers, of complex numbers.
macro_rules! both {
    ($real:expr, $complex:expr) => {
        |of, x, y| {
            if of.is_complex() {
                let complex: fn(Complex, Complex) -> Complex = $complex;
                complex([x[0], x[1]], [y[0], y[1]]).to_vec()
            } else {
                let real: fn(f64, f64) -> f64 = $real;
                vec![real(x[0], y[0])]
            }
        }
    };
}

macro_rules! test {
    ($real:expr, $complex:expr) => {
        |of, x, y| {
            let real: fn(f64, f64) -> bool = $real;
            let complex: fn(Complex, Complex) -> bool = $complex;
            let holds = if of.is_complex() { complex([x[0], x[1]], [y[0], y[1]]) } else { real(x[0], y[0]) };
            vec![f64::from(holds)]
        }
    };
}

/// Which types an operation has, and how its second operands are chosen.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// Every type, into the same one.
    Every,
    /// Every type, into bool.
    Test,
    Floats,
    FloatsAndComplex,
    FloatTest,
    Bool,
    Whole,
    WholeAndBool,
}

const OPERATIONS: [(&str, Of, Function); 24] = [
    ("Add", Of::Every, both!(|x, y| x + y, types::add)),
    ("Divide", Of::Every, |of, x, y| match (of.is_complex(), of.kind.is_float()) {
        (true, _) => types::div([x[0], x[1]], [y[0], y[1]]).to_vec(),
        (_, true) => vec![x[0] / y[0]],
        _ => vec![(x[0] / y[0]).trunc()],
    }),
    ("Equal", Of::Test, test!(|x, y| x == y, |x, y| x == y)),
    ("Greater", Of::Test, test!(|x, y| x > y, types::is_greater)),
    ("GreaterEqual", Of::Test, test!(|x, y| x >= y, |x, y| !types::is_greater(y, x))),
    ("Less", Of::Test, test!(|x, y| x < y, |x, y| types::is_greater(y, x))),
    ("LessEqual", Of::Test, test!(|x, y| x <= y, |x, y| !types::is_greater(x, y))),
    ("NotEqual", Of::Test, test!(|x, y| x != y, |x, y| x != y)),
    ("LogAddExp", Of::FloatsAndComplex, both!(|x, y| (x.exp() + y.exp()).ln(), log_add_exp)),
    ("Maximum", Of::Every, both!(f64::max, |x, y| if types::is_greater(x, y) { x } else { y })),
    ("Minimum", Of::Every, both!(f64::min, |x, y| if types::is_greater(y, x) { x } else { y })),
    ("Multiply", Of::Every, both!(|x, y| x * y, types::mul)),
    ("Subtract", Of::Every, both!(|x, y| x - y, types::sub)),
    ("Power", Of::Every, both!(f64::powf, |x, y| types::exp(types::mul(types::ln(x), y)))),
    ("Remainder", Of::Every, both!(remainder, |x, y| [remainder(x[0], y[0]), remainder(x[1], y[1])])),
    ("ArcTan2", Of::Floats, both!(f64::atan2, |x, _| x)),
    ("NaNEqual", Of::FloatTest, |_, x, y| vec![f64::from(x == y)]),
    ("LogicalOr", Of::Bool, both!(f64::max, |x, _| x)),
    ("LogicalAnd", Of::Bool, both!(f64::min, |x, _| x)),
    ("BitwiseAnd", Of::WholeAndBool, both!(|x, y| (x as i64 & y as i64) as f64, |x, _| x)),
    ("BitwiseOr", Of::WholeAndBool, both!(|x, y| (x as i64 | y as i64) as f64, |x, _| x)),
    ("BitwiseXor", Of::WholeAndBool, both!(|x, y| (x as i64 ^ y as i64) as f64, |x, _| x)),
    ("LeftShift", Of::Whole, both!(|x, y| ((x as i64) << y as i64) as f64, |x, _| x)),
    ("RightShift", Of::Whole, both!(|x, y| (x as i64 >> y as i64) as f64, |x, _| x)),
];

/// With the sign of the divisor.
pub fn remainder(x: f64, y: f64) -> f64 {
    x - y * (x / y).floor()
}

/// The imaginary part is the angle of the larger one and what is added to it.
fn log_add_exp(x: Complex, y: Complex) -> Complex {
    let (most, least) = if types::is_greater(x, y) { (x, y) } else { (y, x) };
    let rest = types::exp(types::sub(least, most));
    types::add(most, types::ln([1.0 + rest[0], rest[1]]))
}

pub fn kernels() -> Vec<Kernel> {
    let mut list = Vec::new();
    for (op, which, f) in OPERATIONS {
        let chosen = |of: &Type| match which {
            Of::Every | Of::Test => true,
            Of::Floats => of.kind.is_float() && !of.is_complex(),
            Of::FloatsAndComplex | Of::FloatTest => of.kind.is_float(),
            Of::Bool => of.name == BOOL.name,
            Of::Whole => !of.kind.is_float() && of.name != BOOL.name,
            Of::WholeAndBool => !of.kind.is_float(),
        };
        let to_bool = matches!(which, Of::Test | Of::FloatTest);
        for of in FLOATS.into_iter().chain(WHOLE).chain([BOOL, COMPLEX]).filter(chosen) {
            forms(&mut list, op, of, if to_bool { BOOL } else { of }, &[f]);
        }
    }
    list
}

/// `DivMod`: kernels with two results, the quotient as it is rounded and then cut down, and what remains.
const QUOTIENT_AND_REST: [Function; 2] = [
    |of, x, y| match (of.is_complex(), of.kind.is_float()) {
        (true, _) => types::div([x[0], x[1]], [y[0], y[1]]).to_vec(),
        (_, true) => vec![of.kind.round(x[0] / y[0]).floor()],
        _ => vec![(x[0] / y[0]).floor()],
    },
    both!(remainder, |x, y| [remainder(x[0], y[0]), remainder(x[1], y[1])]),
];

pub fn two() -> Vec<Kernel> {
    let mut list = Vec::new();
    for of in FLOATS.into_iter().chain(WHOLE).chain([BOOL, COMPLEX]) {
        forms(&mut list, "DivMod", of, of, &QUOTIENT_AND_REST);
    }
    list
}

/// Two operands for an operation, some elements alike.
fn given(op: &str, of: Type) -> (Vec<f64>, Vec<f64>) {
    let (mut x, mut y) = (of.numbers(COUNT, 90), of.numbers(COUNT, 91));
    for at in (0..COUNT * of.lanes).step_by(5) {
        y[at] = x[at];
    }
    let small = |y: &mut Vec<f64>| y.iter_mut().for_each(|y| *y %= 4.0);
    match op {
        "Power" if of.kind.is_float() && !of.is_complex() => {
            x.iter_mut().for_each(|x| *x = of.kind.round(x.abs() + 0.25))
        }
        "Power" | "LeftShift" | "RightShift" if !of.kind.is_float() => small(&mut y),
        // No division by zero or nearly zero.
        "Divide" | "Remainder" | "DivMod" if of.kind.is_float() => {
            y.iter_mut().for_each(|y| *y = of.kind.round(if y.abs() < 0.5 { *y + 1.0_f64.copysign(*y) } else { *y }));
        }
        "Divide" | "Remainder" | "DivMod" => y.iter_mut().for_each(|y| *y = y.max(1.0)),
        _ => {}
    }
    (x, y)
}

#[derive(Clone, Copy, PartialEq)]
enum Read {
    First,
    Order,
    Strides,
}

/// Name, template, what it has of operands in which order of reading, elements of a thread (0: as the type says), and layout.
const FORMS: [(&str, &str, &str, [Read; 2], usize, Layout); 18] = {
    use Layout::{Dims, Line, Rows, Single, Strided, Two};
    use Read::{First, Order, Strides};
    [
        ("ss", "binary_ss", "", [First, First], 1, Single),
        ("sv", "binary_sv", ", 1", [First, Order], 1, Line),
        ("vs", "binary_vs", ", 1", [Order, First], 1, Line),
        ("vv", "binary_vv", ", 1", [Order, Order], 1, Line),
        ("sv2", "binary_sv2", "", [First, Order], 0, Two),
        ("vs2", "binary_vs2", "", [Order, First], 0, Two),
        ("vv2", "binary_vv2", "", [Order, Order], 0, Two),
        ("gn2", "binary_g", ", 2, int", [Strides, Order], 2, Strided),
        ("gn4large", "binary_g", ", 4", [Order, Strides], 4, Strided),
        ("g1", "binary_g_nd1", ", int", [Order, Order], 1, Dims(1)),
        ("g1large", "binary_g_nd1", "", [Order, Order], 1, Dims(1)),
        ("g2", "binary_g_nd2", ", int", [Order, Order], 1, Dims(2)),
        ("g2large", "binary_g_nd2", "", [Order, Order], 1, Dims(2)),
        ("g3", "binary_g_nd3", ", int", [Strides, Order], 1, Dims(3)),
        ("g3large", "binary_g_nd3", "", [Order, Strides], 1, Dims(3)),
        ("svn", "binary_sv", "", [First, Order], 0, Rows),
        ("vsn", "binary_vs", "", [Order, First], 0, Rows),
        ("vvn", "binary_vv", "", [Order, Order], 0, Rows),
    ]
};

#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// One thread.
    Single,
    /// All elements in a row of threads.
    Line,
    /// In two rows.
    Two,
    /// A row, with as many elements a thread as the type says: only of types that are smaller than eight bytes.
    Rows,
    /// Three dimensions and strides.
    Strided,
    /// So many dimensions, strides only.
    Dims(usize),
}

fn forms(list: &mut Vec<Kernel>, op: &'static str, of: Type, to: Type, functions: &[Function]) {
    for (form, template, rest, reads, each, layout) in FORMS {
        if layout == Layout::Rows && of.per_thread() == 1 {
            continue;
        }
        let each = if each == 0 { of.per_thread() } else { each };
        let instance = format!("{template}<{}, {}, {op}{rest}>", of.text, to.text);
        let functions = functions.to_vec();
        list.push(kernel(format!("{form}_{op}{}", of.name), instance, move || {
            case(op, of, to, &functions, reads, each, layout)
        }));
    }
}

fn case(op: &str, of: Type, to: Type, functions: &[Function], reads: [Read; 2], each: usize, layout: Layout) -> Case {
    let (x, y) = given(op, of);
    let strided: Vec<usize> = places().collect();
    let at = |values: &[f64], read: Read, index: usize| {
        let place = match read {
            Read::First => 0,
            Read::Order => index,
            Read::Strides => strided[index],
        };
        values[place * of.lanes..][..of.lanes].to_vec()
    };
    let count = if layout == Layout::Single { 1 } else { COUNT };
    let all = |f: &Function| -> Vec<f64> {
        (0..count).flat_map(|index| f(of, &at(&x, reads[0], index), &at(&y, reads[1], index))).collect()
    };
    let mut args = vec![input(of.kind, &x), input(of.kind, &y)];
    args.extend(functions.iter().map(|_| output(to.kind, count * to.lanes)));
    let in_order = [DIMS[1] * DIMS[2], DIMS[2], 1];
    let [of_x, of_y] = reads.map(|read| if read == Read::Strides { strides() } else { in_order });
    let grid = match layout {
        Layout::Single => [1, 1, 1],
        Layout::Line | Layout::Rows => {
            args.push(ints(&[COUNT]));
            line(each, false)
        }
        Layout::Two => {
            args.push(sizes(&[COUNT]));
            line(each, true)
        }
        Layout::Strided => {
            args.extend([ints(&DIMS), sizes(&of_x), sizes(&of_y), ints(&[3])]);
            rows(each)
        }
        Layout::Dims(3) => {
            args.extend([sizes(&of_x), sizes(&of_y)]);
            rows(1)
        }
        Layout::Dims(2) => {
            args.extend([sizes(&[DIMS[2], 1]), sizes(&[DIMS[2], 1])]);
            [DIMS[2] as u32, (DIMS[0] * DIMS[1]) as u32, 1]
        }
        Layout::Dims(_) => {
            args.extend([sizes(&[1]), sizes(&[1])]);
            line(1, false)
        }
    };
    // Of complex numbers a product of several is as wrong as its parts, and a power as its exponent is large.
    let scale = if of.is_complex() { 8.0 } else { 1.0 };
    let roundings = match op {
        _ if !to.kind.is_float() => 0.0,
        "Power" if of.is_complex() => 64.0,
        _ => 16.0,
    };
    let checks: Vec<Check> = functions.iter().map(|f| near(to.kind, all(f), roundings, scale)).collect();
    let check = Box::new(move |outputs: &[Vec<f64>]| {
        checks.iter().enumerate().try_for_each(|(at, check)| check(&outputs[at..]))
    });
    Case { grid: Grid::Threads(grid), group: [16, 2, 1], args, memory: Vec::new(), check }
}
