//! The transforms of tiles: of the input's, and of the sums back to outputs.

use super::{ALONG, DOWN, FAR, Job, NEAR, TALL, Tiles, WIDE};
use crate::native::convolution::finish::finish_row;
use crate::native::epilogue::Single;
use crate::native::lanes::{Arithmetic, Lanes};

/// The transform of a tile's column of inputs.
#[inline(always)]
unsafe fn input_down<V: Arithmetic>(d: [V; DOWN]) -> [V; DOWN] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe { [d[0].sub(d[2]), d[1].add(d[2]), d[2].sub(d[1]), d[3].sub(d[1])] }
}

/// The transform of a tile's row of inputs.
#[inline(always)]
unsafe fn input_along<V: Arithmetic>(d: [V; ALONG]) -> [V; ALONG] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (both, half, two) = (V::splat(-2.5), V::splat(-0.5), V::splat(-2.0));
        let (even, odd) = (d[2].fma(two, d[4]), d[1].fma(two, d[3]));
        let (even2, odd2) = (d[2].fma(half, d[4]), d[1].fma(half, d[3]));
        [
            d[2].fma(both, d[4]).add(d[0]),
            odd.fma(V::splat(NEAR), even),
            odd.fma(V::splat(-NEAR), even),
            odd2.fma(V::splat(FAR), even2),
            odd2.fma(V::splat(-FAR), even2),
            d[3].fma(both, d[5]).add(d[1]),
        ]
    }
}

/// A column of outputs from the sums of products.
#[inline(always)]
unsafe fn output_down<V: Lanes>(m: [V; DOWN]) -> [V; TALL] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe { [m[0].add(m[1].add(m[2])), m[3].add(m[1].sub(m[2]))] }
}

/// A row of outputs from the sums of products.
#[inline(always)]
unsafe fn output_along<V: Lanes>(m: [V; ALONG]) -> [V; WIDE] {
    // SAFETY: the caller vouches for the instructions of `V`.
    unsafe {
        let (sum, difference) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (sum2, difference2) = (m[3].add(m[4]), m[3].sub(m[4]));
        [
            m[0].add(sum).add(sum2),
            difference2.fma(V::splat(FAR), difference.mul(V::splat(NEAR))),
            sum2.fma(V::splat(2.0), sum.mul(V::splat(0.5))),
            difference2.fma(V::splat(2.0 * FAR), difference.fma(V::splat(0.5 * NEAR), m[5])),
        ]
    }
}

/// Transforms tiles of some channels.
///
/// # Safety
/// The buffers have the sizes that the job says; these channels of `transformed` are the caller's alone.
#[inline(always)]
pub(super) unsafe fn bring_in<V: Lanes>(
    job: &Job,
    tiles: Tiles,
    channels: (usize, usize),
    rows: &mut [f32],
    transformed: *mut f32,
) {
    let shape = job.shape;
    let [height, width] = shape.input;
    let (top, left) = (shape.padding[0], shape.padding[2]);
    let position = job.position(shape.channels);
    let length = job.row();
    let rows = rows.as_mut_ptr();
    for channel in channels.0..channels.1 {
        let mut place = 0;
        while place < tiles.count {
            let (image, tile_row, tile_column, run) = job.run_at(tiles, place);
            let plane = job.input[(image * shape.channels + channel) * height * width..][..height * width].as_ptr();
            // Columns of the padded input that these tiles see, and the part of them that exists.
            let start = WIDE * tile_column;
            let needed = WIDE * run + 2;
            let begin = left.saturating_sub(start).min(needed);
            let end = (width + left).saturating_sub(start).clamp(begin, needed);
            // SAFETY: `begin..end` of the needed columns lie in the input; each row of `rows` has room for what vectors write
            // past the needed columns; what they read past the existing ones lies in `rows`.
            unsafe {
                let mut sources = [std::ptr::null(); DOWN];
                for (i, source) in sources.iter_mut().enumerate() {
                    let y = (TALL * tile_row + i).wrapping_sub(top);
                    if y < height {
                        *source = plane.add(y * width + start).wrapping_sub(left);
                    }
                    let row = rows.add(i * length);
                    for x in 0..begin {
                        *row.add(x) = 0.0;
                    }
                    for x in end..needed {
                        *row.add(x) = 0.0;
                    }
                }
                let mut x = begin;
                while x + V::N <= end {
                    vertical::<V>(&sources, x, rows, length);
                    x += V::N;
                }
                if x < end && end - begin >= V::N {
                    // The last vector overlaps the one before it.
                    vertical::<V>(&sources, end - V::N, rows, length);
                } else {
                    while x < end {
                        vertical::<Single>(&sources, x, rows, length);
                        x += 1;
                    }
                }
                let out = transformed.add(channel * job.pitch() + place);
                for i in 0..DOWN {
                    let row = rows.add(i * length).cast_const();
                    let mut tile = 0;
                    while tile < run {
                        let [d0, d1, d2, d3] = V::load_by_4(row.add(WIDE * tile));
                        let [d4, d5, _, _] = V::load_by_4(row.add(WIDE * tile + WIDE));
                        let t = input_along([d0, d1, d2, d3, d4, d5]);
                        for j in 0..ALONG {
                            // Lanes past the run are overwritten by the next run, or lie behind the row.
                            t[j].store(out.add((i * ALONG + j) * position + tile));
                        }
                        tile += V::N;
                    }
                }
            }
            place += run;
        }
    }
}

/// The vertical half of the transform for N columns from `x` on; a source row that does not exist is zero.
#[inline(always)]
unsafe fn vertical<V: Arithmetic>(sources: &[*const f32; DOWN], x: usize, rows: *mut f32, length: usize) {
    // SAFETY: the caller vouches for N numbers of each source row and of each row of `rows`.
    unsafe {
        let mut d = [V::splat(0.0); DOWN];
        for i in 0..DOWN {
            if !sources[i].is_null() {
                d[i] = V::load(sources[i].wrapping_add(x));
            }
        }
        let t = input_down(d);
        for i in 0..DOWN {
            t[i].store(rows.add(i * length + x));
        }
    }
}

/// Transforms the sums of some filters back and writes their outputs.
///
/// # Safety
/// As [`bring_in`]; the outputs of these tiles of the filters are the caller's alone.
#[inline(always)]
pub(super) unsafe fn bring_out<V: Lanes>(
    job: &Job,
    tiles: Tiles,
    filters: (usize, usize),
    line: &mut [f32],
    sums: *const f32,
) {
    let shape = job.shape;
    let [height, width] = shape.output();
    let position = job.position(shape.filters);
    let length = job.line();
    for filter in filters.0..filters.1 {
        let mut place = 0;
        while place < tiles.count {
            let (image, tile_row, tile_column, run) = job.run_at(tiles, place);
            let from = sums.wrapping_add(filter * job.pitch() + place);
            let mut tile = 0;
            while tile < run {
                // SAFETY: lanes past the run read what lies behind its row, and land behind the line's used part.
                unsafe {
                    let mut half = [[V::splat(0.0); ALONG]; TALL];
                    for j in 0..ALONG {
                        let mut m = [V::splat(0.0); DOWN];
                        for i in 0..DOWN {
                            m[i] = V::load(from.add((i * ALONG + j) * position + tile));
                        }
                        let column = output_down(m);
                        for y in 0..TALL {
                            half[y][j] = column[y];
                        }
                    }
                    for y in 0..TALL {
                        V::store_by_4(output_along(half[y]), line.as_mut_ptr().add(y * length + WIDE * tile));
                    }
                }
                tile += V::N;
            }
            let column = WIDE * tile_column;
            let columns = (WIDE * run).min(width - column);
            for y in 0..TALL.min(height - TALL * tile_row) {
                let at = ((image * shape.filters + filter) * height + TALL * tile_row + y) * width + column;
                // SAFETY: this task alone writes these tiles' outputs.
                let to = unsafe { job.output.part(at, columns) };
                finish_row(&line[y * length..][..columns], to, job.epilogue, filter, at);
            }
            place += run;
        }
    }
}
