//! Conversions of one element, against numbers written by hand.

use super::elements::{FLOATS, INF, NAN, same};
use super::*;
use crate::interpret::element;
use Scalar::*;

#[test]
fn conversions_between_integers() {
    let table: &[(Cast, Scalar, i64, Scalar, i64)] = &[
        (Cast::Signed, I8, -1, I64, -1),
        (Cast::Signed, I8, 127, I16, 127),
        (Cast::Signed, I64, 0x1_0000_00ff, I32, 255),
        (Cast::Signed, I32, 0x180, I8, -128),
        (Cast::Signed, I32, 2, I1, 0),
        (Cast::Signed, I8, -1, I1, 1),
        (Cast::Unsigned, I8, -1, I64, 255),
        (Cast::Unsigned, I16, -1, I32, 65535),
        (Cast::Unsigned, I1, 1, I8, 1),
        (Cast::Unsigned, I1, 1, I64, 1),
    ];
    for &(cast, from, x, to, expected) in table {
        let found = element::cast(cast, from, to, element::wrap(from, x as u64));
        assert_eq!(
            found,
            element::wrap(to, expected as u64),
            "{} {x} from {} to {}",
            cast.text(),
            from.name(),
            to.name()
        );
    }
}

#[test]
fn conversions_to_floats() {
    let table: &[(Cast, Scalar, i64, Scalar, f64)] = &[
        (Cast::SignedToFloat, I8, -128, F16, -128.0),
        (Cast::SignedToFloat, I32, 16_777_217, F32, 16_777_216.0),
        (Cast::SignedToFloat, I64, i64::MIN, F64, -9_223_372_036_854_775_808.0),
        (Cast::SignedToFloat, I32, 100_000, F16, INF),
        (Cast::UnsignedToFloat, I8, -1, F32, 255.0),
        (Cast::UnsignedToFloat, I64, -1, F64, 18_446_744_073_709_551_616.0),
        (Cast::UnsignedToFloat, I1, 1, BF16, 1.0),
        // Once from the integer to float32: by way of float64 this would be a tie, and lower.
        (Cast::SignedToFloat, I64, (1 << 60) + (1 << 36) + 1, F32, ((1_i64 << 60) + (1 << 37)) as f64),
    ];
    for &(cast, from, x, to, expected) in table {
        let found = element::cast(cast, from, to, element::wrap(from, x as u64));
        assert_eq!(element::float(to, found), expected, "{} {x} from {} to {}", cast.text(), from.name(), to.name());
    }
}

#[test]
fn floats_become_the_nearest_of_wide_integers() {
    for from in FLOATS {
        for to in [I32, I64] {
            let (least, most) = (i64::MIN >> (64 - 8 * to.size()), i64::MAX >> (64 - 8 * to.size()));
            let signed = [(1.75, 1), (-1.75, -1), (NAN, 0), (INF, most), (-INF, least), (-0.0, 0)];
            for (x, expected) in signed {
                let found = element::cast(Cast::FloatToSigned, from, to, element::round(from, x));
                assert_eq!(element::signed(to, found), expected, "{x} from {} to {}", from.name(), to.name());
            }
            let unsigned =
                [(1.75, 1), (-1.75, 0), (NAN, 0), (INF, u64::MAX >> (64 - 8 * to.size())), (-INF, 0), (200.0, 200)];
            for (x, expected) in unsigned {
                let found = element::cast(Cast::FloatToUnsigned, from, to, element::round(from, x));
                assert_eq!(found, expected, "{x} from {} to {}", from.name(), to.name());
            }
        }
    }
}

/// The numbers are what NumPy, PyTorch and Paddle's CPU give.
#[test]
fn floats_become_the_low_bits_of_short_integers() {
    let table: &[(f64, u64, u64)] = &[
        (1.75, 1, 1),
        (-1.75, 0xff, 0xffff),
        (-0.5, 0, 0),
        (200.0, 200, 200),
        (300.0, 44, 300),
        (-200.0, 56, 65336),
        (70_000.0, 112, 4464),
        (16_777_215.0, 255, 65535),
        (3e9, 0, 0),
        (-3e9, 0, 0),
        (NAN, 0, 0),
        (INF, 0, 0),
        (-INF, 0, 0),
    ];
    for conversion in [Cast::FloatToSigned, Cast::FloatToUnsigned] {
        for from in FLOATS {
            // A half type may not have the number.
            for &(x, byte, short) in
                table.iter().filter(|row| same(element::float(from, element::round(from, row.0)), row.0))
            {
                let found = [I8, I16].map(|to| element::cast(conversion, from, to, element::round(from, x)));
                assert_eq!(found, [byte, short], "{x} from {}", from.name());
            }
        }
    }
}

#[test]
fn conversions_between_floats() {
    let table: &[(Scalar, f64, Scalar, f64)] = &[
        (F64, 0.1, F32, f64::from(0.1_f32)),
        (F32, 65520.0, F16, INF),
        (F32, 65519.0, F16, 65504.0),
        (F64, 1e300, F32, INF),
        (F16, -0.0, F64, -0.0),
        (F32, 1.00390625, BF16, 1.0),
        (F32, 1.01171875, BF16, 1.015625),
        (BF16, 1e38, F16, INF),
        (F16, NAN, BF16, NAN),
        (F32, 1e-46, F32, 0.0),
    ];
    for &(from, x, to, expected) in table {
        let found = element::float(to, element::cast(Cast::Float, from, to, element::round(from, x)));
        assert!(same(found, expected), "{x} from {} to {}: {found}", from.name(), to.name());
    }
    assert_eq!(element::cast(Cast::Bits, F32, I32, 0x3f80_0000), 0x3f80_0000);
}
