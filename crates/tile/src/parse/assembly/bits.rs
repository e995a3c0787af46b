//! Instructions of PTX on bits: permuted bytes, tables of three operands, shifts of two registers at once, fields.

use crate::builder::Builder;
use crate::kernel::{Binary, Cast, Compare, Unary, Value};
use crate::parse::small::{masked, shifted};
use crate::types::Scalar;

/// `prmt`: each half byte of the selector names the byte of two registers that stands there, with its highest bit alone the sign of that byte.
pub(super) fn permuted(b: &mut Builder, [x, y, selector]: [Value; 3]) -> Value {
    let known = b.known(selector);
    let bytes: Vec<Value> = (0..4)
        .map(|at| {
            let byte = match known {
                Some(selector) => known_byte(b, [x, y], selector >> (4 * at) & 15),
                None => chosen_byte(b, [x, y], selector, at),
            };
            if at == 0 { byte } else { shifted(b, Binary::ShiftLeft, byte, 8 * at) }
        })
        .collect();
    bytes.into_iter().reduce(|so_far, byte| b.binary(Binary::Or, so_far, byte)).unwrap_or(x)
}

/// The byte that half a byte names, which is known.
fn known_byte(b: &mut Builder, sources: [Value; 2], selector: i64) -> Value {
    let source = sources[(selector >> 2 & 1) as usize];
    let moved = shifted(b, Binary::ShiftRightUnsigned, source, 8 * (selector & 3));
    let byte = masked(b, moved, 0xff);
    if selector & 8 == 0 { byte } else { sign_of_byte(b, byte) }
}

/// The byte that half a byte of a selector names.
fn chosen_byte(b: &mut Builder, [x, y]: [Value; 2], selector: Value, at: i64) -> Value {
    let selector = shifted(b, Binary::ShiftRightUnsigned, selector, 4 * at);
    let (of_second, sign) = (is_set(b, selector, 4), is_set(b, selector, 8));
    let source = b.select(of_second, y, x);
    let place = masked(b, selector, 3);
    let distance = shifted(b, Binary::ShiftLeft, place, 3);
    let moved = b.binary(Binary::ShiftRightUnsigned, source, distance);
    let byte = masked(b, moved, 0xff);
    let signs = sign_of_byte(b, byte);
    b.select(sign, signs, byte)
}

fn is_set(b: &mut Builder, x: Value, bit: i64) -> Value {
    let bit = masked(b, x, bit);
    let zero = b.constant_like(0.0, x);
    b.compare(Compare::NotEqual, bit, zero)
}

/// A byte of which every bit is the highest one.
fn sign_of_byte(b: &mut Builder, byte: Value) -> Value {
    let sign = shifted(b, Binary::ShiftRightUnsigned, byte, 7);
    let all = b.constant_like(255.0, sign);
    b.binary(Binary::Multiply, sign, all)
}

/// `lop3`: bit by bit the entry of a table whose number is made of the operands' bits, that of the first one highest.
pub(super) fn looked_up(b: &mut Builder, first: Value, rest: &[Value], table: u32) -> Value {
    let entries = 1_u32 << rest.len();
    let all = (1_u32 << entries) - 1;
    let (set, clear) = (table >> entries & all, table & all);
    let entry = |b: &mut Builder, table: u32| match rest {
        &[next, ref rest @ ..] if table != 0 && table != all => looked_up(b, next, rest, table),
        _ => b.constant_like(if table == 0 { 0.0 } else { -1.0 }, first),
    };
    match (set, clear) {
        _ if set == clear => entry(b, set),
        _ if (set, clear) == (all, 0) => first,
        _ if (set, clear) == (0, all) => b.unary(Unary::Not, first),
        (set, 0) => {
            let set = entry(b, set);
            b.binary(Binary::And, first, set)
        }
        (0, clear) => {
            let (clear, not) = (entry(b, clear), b.unary(Unary::Not, first));
            b.binary(Binary::And, not, clear)
        }
        _ => {
            let (difference, clear) = (entry(b, set ^ clear), entry(b, clear));
            let chosen = b.binary(Binary::And, first, difference);
            b.binary(Binary::Xor, chosen, clear)
        }
    }
}

/// `shf`: 32 bits of two registers behind each other, moved to the left or right.
pub(super) fn funnel(b: &mut Builder, is_left: bool, wraps: bool, [low, high, distance]: [Value; 3]) -> Value {
    let distance = if wraps {
        masked(b, distance, 31)
    } else {
        let most = b.constant_like(32.0, distance);
        b.binary(Binary::MinimumUnsigned, distance, most)
    };
    let [low, high, distance] = [low, high, distance].map(|x| b.cast(Cast::Unsigned, x, Scalar::I64));
    let high = shifted(b, Binary::ShiftLeft, high, 32);
    let both = b.binary(Binary::Or, high, low);
    let moved = b.binary(if is_left { Binary::ShiftLeft } else { Binary::ShiftRightUnsigned }, both, distance);
    let moved = if is_left { shifted(b, Binary::ShiftRightUnsigned, moved, 32) } else { moved };
    b.cast(Cast::Signed, moved, Scalar::I32)
}

/// `bfe` of unsigned integers: so many bits from a place on.
pub(super) fn field(b: &mut Builder, [x, place, length]: [Value; 3]) -> Value {
    let place = masked(b, place, 255);
    let mask = field_mask(b, length);
    let moved = b.binary(Binary::ShiftRightUnsigned, x, place);
    b.binary(Binary::And, moved, mask)
}

/// `bfi`: the low bits of a number in the place of so many of another one's.
pub(super) fn inserted(b: &mut Builder, [x, into, place, length]: [Value; 4]) -> Value {
    let place = masked(b, place, 255);
    let mask = field_mask(b, length);
    let field = b.binary(Binary::And, x, mask);
    let [field, mask] = [field, mask].map(|bits| b.binary(Binary::ShiftLeft, bits, place));
    let others = b.unary(Unary::Not, mask);
    let kept = b.binary(Binary::And, into, others);
    b.binary(Binary::Or, kept, field)
}

/// So many low bits; all where they are more than there are.
fn field_mask(b: &mut Builder, length: Value) -> Value {
    let length = masked(b, length, 255);
    let one = b.constant_like(1.0, length);
    // A distance of the width or more leaves 0, of which 1 less is every bit.
    let above = b.binary(Binary::ShiftLeft, one, length);
    b.binary(Binary::Subtract, above, one)
}

/// Bits of 32 that are the lower one of two, the lower two of four and so on, and how far above them the upper ones are.
const HALVES: [(i64, i64); 5] = [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0f0f_0f0f), (8, 0x00ff_00ff), (16, 0xffff)];

/// `popc`: how many bits of 32 are set.
pub(super) fn population(b: &mut Builder, x: Value) -> Value {
    HALVES.into_iter().fold(x, |x, (distance, mask)| {
        let high = shifted(b, Binary::ShiftRightUnsigned, x, distance);
        let (high, low) = (masked(b, high, mask), masked(b, x, mask));
        b.binary(Binary::Add, high, low)
    })
}

/// `brev`: 32 bits in reverse.
pub(super) fn reversed(b: &mut Builder, x: Value) -> Value {
    HALVES.into_iter().fold(x, |x, (distance, mask)| {
        let high = shifted(b, Binary::ShiftRightUnsigned, x, distance);
        let (high, low) = (masked(b, high, mask), masked(b, x, mask));
        let low = shifted(b, Binary::ShiftLeft, low, distance);
        b.binary(Binary::Or, high, low)
    })
}

/// `clz`: how many of 32 bits are above the highest one that is set.
pub(super) fn leading_zeros(b: &mut Builder, x: Value) -> Value {
    let below = [1, 2, 4, 8, 16].into_iter().fold(x, |x, distance| {
        let moved = shifted(b, Binary::ShiftRightUnsigned, x, distance);
        b.binary(Binary::Or, x, moved)
    });
    let above = b.unary(Unary::Not, below);
    population(b, above)
}
