//! Integer functions at every width against definitions in 128 bits.
#![cfg(target_os = "linux")]

mod harness;

use harness::{SCHEDULES, buffer, compile, dispatch, run};
use openmps_emulator::{Argument, Grid};

const TEXT: &str = include_str!("kernels/integers.metal");
const FUNCTIONS: usize = 20;

/// A width: bits and whether it is signed.
#[derive(Clone, Copy)]
struct Kind {
    bits: u32,
    signed: bool,
}

impl Kind {
    /// The value of the low bits.
    fn wrap(self, value: i128) -> i128 {
        let shift = 128 - self.bits;
        if self.signed { value << shift >> shift } else { ((value as u128) << shift >> shift) as i128 }
    }

    fn pattern(self, value: i128) -> u128 {
        (value as u128) << (128 - self.bits) >> (128 - self.bits)
    }

    fn clamp(self, value: i128) -> i128 {
        let (low, high) =
            if self.signed { (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1) } else { (0, (1 << self.bits) - 1) };
        value.clamp(low, high)
    }

    fn expected(self, x: i128, y: i128) -> [i128; FUNCTIONS] {
        let (bits, px) = (self.bits, self.pattern(x));
        let turn = y as u32 & (bits - 1);
        let rotated = if turn == 0 { px } else { px << turn | px >> (bits - turn) };
        let high = if self.signed || bits < 64 { (x * y) >> bits } else { ((x as u128 * y as u128) >> bits) as i128 };
        let saturated = if self.signed || bits < 64 {
            self.clamp(x * y + x)
        } else {
            (x as u128 * y as u128 + x as u128).min(u128::from(u64::MAX)) as i128
        };
        let extracted = self.wrap((px << (bits - 7)) as i128);
        let inserted = (px & !(31 << 2)) | (self.pattern(y) & 31) << 2;
        [
            self.wrap(high),
            i128::from(px.count_ones()),
            i128::from(px.leading_zeros() - (128 - bits)),
            i128::from(px.trailing_zeros().min(bits)),
            self.wrap(rotated as i128),
            self.clamp(x + y),
            self.clamp(x - y),
            self.absolute(x - y),
            (x + y) >> 1,
            (x + y + 1) >> 1,
            self.wrap((px.reverse_bits() >> (128 - bits)) as i128),
            x.max(y),
            x.min(y),
            x,
            extracted >> (bits - 4),
            self.wrap(inserted as i128),
            self.wrap(x.abs()),
            self.wrap(high + x),
            saturated,
            x.min(y).max(x.max(y).min(7)),
        ]
    }

    /// A difference has the unsigned type.
    fn absolute(self, difference: i128) -> i128 {
        Kind { signed: false, ..self }.wrap(difference.abs())
    }

    fn values(self) -> Vec<i128> {
        let mut values = vec![0, 1, 2, 3, 7, 31, 100, -1, -2, -100];
        values.extend((0..self.bits).flat_map(|bit| [1_i128 << bit, (1 << bit) - 1, !(1 << bit)]));
        values.iter().map(|value| self.wrap(*value)).collect()
    }
}

fn check(kernel: &str, kind: Kind) {
    let library = compile(TEXT);
    let values = kind.values();
    let pairs: Vec<(i128, i128)> = values.iter().flat_map(|x| values.iter().map(|y| (*x, *y))).collect();
    let bytes = |value: i128| value.to_le_bytes()[..kind.bits as usize / 8].to_vec();
    let mut a: Vec<u8> = pairs.iter().flat_map(|(x, _)| bytes(*x)).collect();
    let mut b: Vec<u8> = pairs.iter().flat_map(|(_, y)| bytes(*y)).collect();
    // Vectors of bytes are aligned to what the allocator gives, at least 8.
    for schedule in SCHEDULES {
        let mut out = vec![i64::MIN; FUNCTIONS * pairs.len()];
        let count = (pairs.len() as u32).to_ne_bytes();
        let arguments = [buffer(&mut a), buffer(&mut b), buffer(&mut out), Argument::Bytes(&count)];
        let grid = Grid::Threads([pairs.len() as u32, 1, 1]);
        run(&library, kernel, &dispatch(grid, [128, 1, 1], &arguments, schedule)).unwrap();
        for (index, (x, y)) in pairs.iter().enumerate() {
            for (function, expected) in kind.expected(*x, *y).into_iter().enumerate() {
                let got = out[function * pairs.len() + index];
                assert_eq!(got, expected as i64, "{kernel}: function {function} of {x} and {y}");
            }
        }
    }
}

#[test]
fn integers_of_every_width() {
    let kind = |bits, signed| Kind { bits, signed };
    check("of_int", kind(32, true));
    check("of_uint", kind(32, false));
    check("of_short", kind(16, true));
    check("of_uchar", kind(8, false));
    check("of_long", kind(64, true));
    check("of_ulong", kind(64, false));
}
