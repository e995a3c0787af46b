//! Rows that are stored past the caches: the CPU need not read the lines that they overwrite, a third of what an addition of two tensors moves. Only where a
//! launch stores more than the last cache holds, so that the next kernel would not find it there anyway.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Shorter rows are stored as usual.
pub(super) const SHORTEST: usize = 1024;

/// Bytes of a line of the caches.
pub(super) const LINE: usize = 64;

/// Part of a row, in the first-level cache. So short that the CPU reads what the next one is made of while it writes this one: of 16M sums by 512 bytes take 6.1 ms,
/// by 1,024 8.5, by 4,096 9.9, as long as stored as usual (Zen 4, one thread).
#[repr(align(64))]
pub(super) struct Piece([MaybeUninit<u8>; Piece::BYTES]);

impl Piece {
    pub const BYTES: usize = 512;

    pub fn new() -> Piece {
        Piece([const { MaybeUninit::uninit() }; Piece::BYTES])
    }

    pub fn address(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    /// Writes the first bytes to memory.
    ///
    /// # Safety
    /// There are so many, and room for them. [`finish`] comes before another thread reads them.
    #[inline(always)]
    pub unsafe fn write(&mut self, to: *mut u8, bytes: usize) {
        debug_assert!(bytes <= Piece::BYTES, "bytes of a piece");
        // SAFETY: the caller's promise.
        unsafe { copy(to, self.address(), bytes) };
    }
}

/// # Safety
/// There are so many bytes to read and to write.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    // Whole lines: others would be written in two parts.
    let head = to.align_offset(LINE).min(bytes);
    let lines = (bytes - head) / LINE;
    // SAFETY: within the bytes; each line is aligned.
    unsafe {
        from.copy_to_nonoverlapping(to, head);
        for line in 0..lines {
            let at = head + line * LINE;
            for part in (0..LINE).step_by(size_of::<__m128i>()) {
                _mm_stream_si128(to.add(at + part).cast(), _mm_loadu_si128(from.add(at + part).cast()));
            }
        }
        let rest = head + lines * LINE;
        from.add(rest).copy_to_nonoverlapping(to.add(rest), bytes - rest);
    }
}

/// # Safety
/// There are so many bytes to read and to write.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { from.copy_to_nonoverlapping(to, bytes) };
}

/// Lets other threads see what has been written.
pub(super) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has this instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Whether so many bytes are better stored so.
pub(in crate::plan) fn is_worth(bytes: usize) -> bool {
    cfg!(target_arch = "x86_64") && bytes > last_cache()
}

/// Bytes of the last cache, as Linux tells, where it is small. (Of a Xeon's 300 MiB a virtual machine has a part: additions of tensors of 64 MiB took 23 ms there, 14 past the
/// caches. `sysconf` tells even more.)
fn last_cache() -> usize {
    /// A large one, and where nobody tells.
    const MOST: usize = 32 << 20;
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let told = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size");
        let kilobytes = told.ok().and_then(|size| size.trim().strip_suffix('K')?.parse::<usize>().ok());
        kilobytes.map_or(MOST, |kilobytes| MOST.min(kilobytes << 10))
    })
}

#[cfg(test)]
mod tests {
    use super::super::run_programs;
    use super::*;
    use crate::interrupt::Poll;
    use crate::plan::{Launch, Program};
    use openmps_tile::{Builder, Cast, Scalar, Type};

    #[test]
    fn bytes_are_written_wherever_lines_begin() {
        let from: Vec<u8> = (0..Piece::BYTES).map(|i| i as u8).collect();
        for (begin, bytes) in [(0, 0), (0, 64), (1, 62), (1, 64), (63, 512), (64, 500), (17, 129)] {
            let (mut piece, mut to) = (Piece::new(), vec![255_u8; 2 * Piece::BYTES]);
            // SAFETY: a piece has so many bytes, and there is room behind `begin`.
            unsafe {
                piece.address().copy_from_nonoverlapping(from.as_ptr(), from.len());
                piece.write(to.as_mut_ptr().add(begin), bytes);
            }
            finish();
            assert_eq!(to[begin..begin + bytes], from[..bytes], "{begin} {bytes}");
            assert!(to[..begin].iter().chain(&to[begin + bytes..]).all(|&byte| byte == 255), "{begin} {bytes}");
        }
    }

    /// `out = f32(x) + y` for half-precision x, 512 elements a program.
    fn sums() -> Program {
        const LENGTH: usize = 512;
        let mut b = Builder::new("sums");
        let scalars = [("x", Scalar::F16), ("y", Scalar::F32), ("out", Scalar::F32)];
        let pointers = scalars.map(|(name, scalar)| b.parameter(name, Type::pointer(scalar)));
        let (id, length, range) = (b.program_id(0), b.integer(LENGTH as i64, Scalar::I32), b.range(LENGTH));
        let first = b.multiply(id, length);
        let all = b.splat(first, &[LENGTH]);
        let places = b.add(all, range);
        let [x, y, out] = pointers.map(|pointer| {
            let all = b.splat(pointer, &[LENGTH]);
            b.add_pointer(all, places)
        });
        let x = b.load(x, None, None);
        let (x, y) = (b.cast(Cast::Float, x, Scalar::F32), b.load(y, None, None));
        let sum = b.add(x, y);
        b.store(out, sum, None);
        Program::new(&b.finish()).expect("planned")
    }

    #[test]
    fn rows_past_the_caches_are_those_that_go_there_as_usual() {
        let (program, count) = (sums(), 4 * 512);
        assert_eq!(program.stored, 2048);
        let x: Vec<half::f16> = (0..count).map(|i| half::f16::from_f32(i as f32)).collect();
        for shift in [0, 1, 5, 16] {
            // Apart, in place, and one element further on than what is read.
            for [from, to] in [[0, 3000], [0, 0], [0, 1], [1, 0]] {
                let numbers: Vec<f32> = (0..6000).map(|i| i as f32 * 0.25).collect();
                let runs = [false, true].map(|streams| {
                    let mut memory = numbers.clone();
                    let at = |place: usize| memory[shift + place..].as_ptr().expose_provenance() as u64;
                    let arguments = [x.as_ptr().expose_provenance() as u64, at(from), at(to)];
                    let launch = Launch { grid: [4, 1, 1], arguments: &arguments, number: 0, streams };
                    // SAFETY: 2,048 elements of each, and nobody else uses the memory.
                    unsafe { run_programs(&program, launch, 0..4, Poll::new(None)) }.expect("runs");
                    std::hint::black_box(&mut memory).clone()
                });
                assert_eq!(runs[0], runs[1], "{shift} {from} {to}");
                assert_ne!(runs[0], numbers, "{shift} {from} {to}");
            }
        }
    }
}
