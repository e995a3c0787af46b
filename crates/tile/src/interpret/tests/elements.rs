//! What operations do to one element, against numbers written by hand.

use super::*;
use crate::interpret::element;
use Scalar::*;

pub const FLOATS: [Scalar; 4] = [F16, BF16, F32, F64];
pub const INTEGERS: [Scalar; 4] = [I8, I16, I32, I64];
pub const INF: f64 = f64::INFINITY;
pub const NAN: f64 = f64::NAN;

/// The same float with the same sign, or both NaN.
pub fn same(x: f64, y: f64) -> bool {
    x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()
}

fn integer(scalar: Scalar, x: i64) -> u64 {
    element::constant(Number::Integer(x), scalar)
}

fn check_float(what: &str, scalar: Scalar, found: u64, expected: f64) {
    let (found, expected) = (element::float(scalar, found), element::float(scalar, element::round(scalar, expected)));
    assert!(same(found, expected), "{what} of {}: {found:?}, expected {expected:?}", scalar.name());
}

#[test]
fn unary_of_floats() {
    use Unary::*;
    let e = std::f64::consts::E;
    let pi = std::f64::consts::PI;
    let table: &[(Unary, f64, f64)] = &[
        (Negate, 1.5, -1.5),
        (Negate, 0.0, -0.0),
        (Negate, INF, -INF),
        (Negate, NAN, NAN),
        (Absolute, -2.5, 2.5),
        (Absolute, -0.0, 0.0),
        (Absolute, -INF, INF),
        (Absolute, NAN, NAN),
        (Exp, 0.0, 1.0),
        (Exp, 1.0, e),
        (Exp, -INF, 0.0),
        (Exp, INF, INF),
        (Exp, 1000.0, INF),
        (Exp, NAN, NAN),
        (Exp2, 3.0, 8.0),
        (Exp2, -1.0, 0.5),
        (Exp2, -INF, 0.0),
        (Exp2, NAN, NAN),
        (Expm1, 0.0, 0.0),
        (Expm1, -0.0, -0.0),
        (Expm1, -INF, -1.0),
        (Expm1, 1.0, 1.718281828459045),
        (Log, 1.0, 0.0),
        (Log, 0.0, -INF),
        (Log, -1.0, NAN),
        (Log, INF, INF),
        (Log, 2.0, std::f64::consts::LN_2),
        (Log2, 8.0, 3.0),
        (Log2, 0.0, -INF),
        (Log2, -1.0, NAN),
        (Log1p, 0.0, 0.0),
        (Log1p, -1.0, -INF),
        (Log1p, -2.0, NAN),
        (Log1p, 1.0, std::f64::consts::LN_2),
        (Sqrt, 4.0, 2.0),
        (Sqrt, -0.0, -0.0),
        (Sqrt, -1.0, NAN),
        (Sqrt, INF, INF),
        (Sqrt, 2.0, std::f64::consts::SQRT_2),
        (Rsqrt, 4.0, 0.5),
        (Rsqrt, 0.0, INF),
        (Rsqrt, INF, 0.0),
        (Rsqrt, -1.0, NAN),
        (Sin, 0.0, 0.0),
        (Sin, 1.0, 0.8414709848078965),
        (Sin, INF, NAN),
        (Cos, 0.0, 1.0),
        (Cos, 1.0, 0.5403023058681398),
        (Cos, INF, NAN),
        (Tan, 0.0, 0.0),
        (Tan, 1.0, 1.5574077246549023),
        (Tan, INF, NAN),
        (Asin, 1.0, pi / 2.0),
        (Asin, 2.0, NAN),
        (Acos, 1.0, 0.0),
        (Acos, 0.0, pi / 2.0),
        (Acos, 2.0, NAN),
        (Atan, 1.0, pi / 4.0),
        (Atan, INF, pi / 2.0),
        (Atan, -0.0, -0.0),
        (Sinh, 1.0, 1.1752011936438014),
        (Sinh, -INF, -INF),
        (Cosh, 0.0, 1.0),
        (Cosh, -INF, INF),
        (Tanh, 1.0, 0.7615941559557649),
        (Tanh, INF, 1.0),
        (Tanh, -0.0, -0.0),
        (Tanh, NAN, NAN),
        (Erf, 0.0, 0.0),
        (Erf, 1.0, 0.8427007929497149),
        (Erf, -INF, -1.0),
        (Erf, NAN, NAN),
        (Floor, -1.5, -2.0),
        (Floor, -0.0, -0.0),
        (Floor, INF, INF),
        (Ceil, -1.5, -1.0),
        (Ceil, -0.5, -0.0),
        (Round, 0.5, 0.0),
        (Round, 1.5, 2.0),
        (Round, -0.5, -0.0),
        (Round, -2.5, -2.0),
        (Round, NAN, NAN),
        (Truncate, 1.75, 1.0),
        (Truncate, -1.75, -1.0),
        (Truncate, -0.25, -0.0),
    ];
    let missing: Vec<_> = Unary::ALL.iter().filter(|x| **x != Not && !table.iter().any(|row| row.0 == **x)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for &(operation, x, expected) in table {
        for scalar in FLOATS {
            let found = element::unary(operation, scalar, element::round(scalar, x));
            check_float(&format!("{} {x}", operation.text()), scalar, found, expected);
        }
    }
}

#[test]
fn binary_of_floats() {
    use Binary::*;
    let table: &[(Binary, f64, f64, f64)] = &[
        (Add, 1.5, 2.25, 3.75),
        (Add, INF, -INF, NAN),
        (Add, -0.0, -0.0, -0.0),
        (Add, 0.0, -0.0, 0.0),
        (Subtract, 1.5, 2.25, -0.75),
        (Subtract, INF, INF, NAN),
        (Multiply, 1.5, -2.0, -3.0),
        (Multiply, 0.0, INF, NAN),
        (Divide, 1.0, 4.0, 0.25),
        (Divide, 1.0, -0.0, -INF),
        (Divide, 0.0, 0.0, NAN),
        (Divide, -1.0, INF, -0.0),
        (Remainder, 5.5, 2.0, 1.5),
        (Remainder, -5.5, 2.0, -1.5),
        (Remainder, 1.0, 0.0, NAN),
        (Remainder, 1.0, INF, 1.0),
        (Minimum, 1.0, 2.0, 1.0),
        (Minimum, NAN, 1.0, NAN),
        (Minimum, 1.0, NAN, NAN),
        (Minimum, 0.0, -0.0, -0.0),
        (Minimum, -0.0, 0.0, -0.0),
        (Minimum, -INF, 1.0, -INF),
        (Maximum, 1.0, 2.0, 2.0),
        (Maximum, NAN, 1.0, NAN),
        (Maximum, 1.0, NAN, NAN),
        (Maximum, 0.0, -0.0, 0.0),
        (Maximum, -0.0, 0.0, 0.0),
        (Maximum, -INF, INF, INF),
        (Power, 2.0, 3.0, 8.0),
        (Power, -8.0, 0.5, NAN),
        (Power, 0.0, 0.0, 1.0),
        (Power, 0.0, -1.0, INF),
        (Power, NAN, 0.0, 1.0),
        (Atan2, 0.0, -1.0, std::f64::consts::PI),
        (Atan2, 1.0, 1.0, std::f64::consts::FRAC_PI_4),
        (MinimumNumber, NAN, 1.0, 1.0),
        (MinimumNumber, -2.0, NAN, -2.0),
        (MinimumNumber, NAN, NAN, NAN),
        (MinimumNumber, 3.0, -1.0, -1.0),
        (MaximumNumber, NAN, 1.0, 1.0),
        (MaximumNumber, -2.0, NAN, -2.0),
        (MaximumNumber, 3.0, -1.0, 3.0),
        (Atan2, NAN, 1.0, NAN),
        (Atan2, -0.0, 1.0, -0.0),
    ];
    for &(operation, x, y, expected) in table {
        for scalar in FLOATS {
            let found = element::binary(operation, scalar, element::round(scalar, x), element::round(scalar, y));
            check_float(&format!("{} {x} {y}", operation.text()), scalar, found, expected);
        }
    }
}

#[test]
fn half_types_round_after_each_operation() {
    let add = |scalar, x: f64, y: f64| {
        element::float(
            scalar,
            element::binary(Binary::Add, scalar, element::round(scalar, x), element::round(scalar, y)),
        )
    };
    assert_eq!(add(F16, 2048.0, 1.0), 2048.0);
    assert_eq!(add(F16, 2048.0, 3.0), 2052.0);
    assert_eq!(add(F16, 65504.0, 65504.0), INF);
    assert_eq!(add(BF16, 256.0, 1.0), 256.0);
    assert_eq!(add(BF16, 256.0, 3.0), 260.0);
    assert_eq!(add(F32, 16_777_216.0, 1.0), 16_777_216.0);
    // Through float32: 1 + 2^-11 is half-way between two f16, and what is 2^-40 above it is that in float32.
    assert_eq!(element::round(F16, 1.0 + 2_f64.powi(-11) + 2_f64.powi(-40)), element::round(F16, 1.0));
    assert_eq!(element::float(F16, element::round(F16, 6e-8)), 2_f64.powi(-24));
}

#[test]
fn binary_of_integers() {
    use Binary::*;
    for scalar in INTEGERS {
        let width = 8 * scalar.size() as i64;
        let (least, most) = (i64::MIN >> (64 - width), i64::MAX >> (64 - width));
        let table: &[(Binary, i64, i64, i64)] = &[
            (Add, 100, 27, 127),
            (Add, most, 1, least),
            (Subtract, least, 1, most),
            (Subtract, 3, 5, -2),
            (Multiply, -3, 5, -15),
            (Multiply, least, -1, least),
            (Multiply, most, 2, -2),
            (Divide, 7, 2, 3),
            (Divide, -7, 2, -3),
            (Divide, 7, 0, 0),
            (Divide, least, -1, least),
            (Divide, 0, 0, 0),
            (DivideUnsigned, -1, 2, most),
            (DivideUnsigned, 7, 0, 0),
            (DivideUnsigned, 7, 2, 3),
            (Remainder, 7, 2, 1),
            (Remainder, -7, 2, -1),
            (Remainder, 7, -2, 1),
            (Remainder, 7, 0, 0),
            (Remainder, least, -1, 0),
            (RemainderUnsigned, -1, 2, 1),
            (RemainderUnsigned, 7, 0, 0),
            (RemainderUnsigned, 7, 4, 3),
            (Minimum, -1, 1, -1),
            (Maximum, -1, 1, 1),
            (MinimumUnsigned, -1, 1, 1),
            (MaximumUnsigned, -1, 1, -1),
            (And, 12, 10, 8),
            (And, -1, 5, 5),
            (Or, 12, 10, 14),
            (Xor, 12, 10, 6),
            (Xor, -1, 0, -1),
            (MultiplyHighUnsigned, -1, -1, -2),
            (MultiplyHighUnsigned, least, 2, 1),
            (ShiftLeft, 3, 2, 12),
            (ShiftLeft, 1, width - 1, least),
            (ShiftLeft, 1, width, 0),
            (ShiftLeft, 1, -1, 0),
            (ShiftRight, -8, 1, -4),
            (ShiftRight, -8, width, -1),
            (ShiftRight, 8, width, 0),
            (ShiftRight, -8, -1, -1),
            (ShiftRightUnsigned, -1, 1, most),
            (ShiftRightUnsigned, -1, width, 0),
            (ShiftRightUnsigned, -1, -1, 0),
        ];
        let floats_only = [Power, Atan2, MinimumNumber, MaximumNumber];
        assert!(Binary::ALL.iter().all(|x| floats_only.contains(x) || table.iter().any(|row| row.0 == *x)));
        for &(operation, x, y, expected) in table {
            let found = element::binary(operation, scalar, integer(scalar, x), integer(scalar, y));
            assert_eq!(found, integer(scalar, expected), "{} {x} {y} of {}", operation.text(), scalar.name());
        }
        let unary: &[(Unary, i64, i64)] = &[
            (Unary::Negate, 5, -5),
            (Unary::Negate, least, least),
            (Unary::Absolute, -5, 5),
            (Unary::Absolute, least, least),
            (Unary::Not, 0, -1),
        ];
        for &(operation, x, expected) in unary {
            let found = element::unary(operation, scalar, integer(scalar, x));
            assert_eq!(found, integer(scalar, expected), "{} {x} of {}", operation.text(), scalar.name());
        }
    }
}

#[test]
fn truth_values() {
    for (x, y) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(element::binary(Binary::And, I1, x, y), x & y);
        assert_eq!(element::binary(Binary::Or, I1, x, y), x | y);
        assert_eq!(element::binary(Binary::Xor, I1, x, y), x ^ y);
        assert_eq!(element::compare(Compare::Equal, I1, x, y), u64::from(x == y));
        assert_eq!(element::compare(Compare::NotEqual, I1, x, y), u64::from(x != y));
    }
    assert_eq!((element::unary(Unary::Not, I1, 0), element::unary(Unary::Not, I1, 1)), (1, 0));
}

#[test]
fn comparisons() {
    use Compare::*;
    // For x below, equal to and above y.
    let table = [
        (Equal, [0, 1, 0]),
        (NotEqual, [1, 0, 1]),
        (Less, [1, 0, 0]),
        (LessEqual, [1, 1, 0]),
        (Greater, [0, 0, 1]),
        (GreaterEqual, [0, 1, 1]),
    ];
    for (comparison, expected) in table {
        let pairs = [(-1, 1), (1, 1), (1, -1)];
        for scalar in FLOATS {
            let float = |x: i64| element::round(scalar, x as f64);
            assert_eq!(pairs.map(|(x, y)| element::compare(comparison, scalar, float(x), float(y))), expected);
            let (nan, one) = (element::round(scalar, NAN), float(1));
            let unordered = u64::from(comparison == NotEqual);
            assert_eq!(
                [(nan, one), (one, nan), (nan, nan)].map(|(x, y)| element::compare(comparison, scalar, x, y)),
                [unordered; 3]
            );
            let zeros = element::compare(comparison, scalar, element::round(scalar, -0.0), float(0));
            assert_eq!(zeros, expected[1]);
        }
        for scalar in INTEGERS {
            assert_eq!(
                pairs.map(|(x, y)| element::compare(comparison, scalar, integer(scalar, x), integer(scalar, y))),
                expected
            );
        }
    }
    let unsigned = [
        (LessUnsigned, [0, 0, 1]),
        (LessEqualUnsigned, [0, 1, 1]),
        (GreaterUnsigned, [1, 0, 0]),
        (GreaterEqualUnsigned, [1, 1, 0]),
    ];
    for (comparison, expected) in unsigned {
        for scalar in INTEGERS {
            let pairs = [(-1, 1), (1, 1), (1, -1)];
            assert_eq!(
                pairs.map(|(x, y)| element::compare(comparison, scalar, integer(scalar, x), integer(scalar, y))),
                expected
            );
        }
    }
}
