//! Reading elements and rows by index: gather along an axis, embedding, gather by tuples, one index per element.

use super::memory::{by_size, move_bytes, slice};
use crate::{Error, threads};

/// The element type of an index tensor.
#[derive(Clone, Copy, Debug)]
pub enum Indices<'a> {
    /// 32-bit indices.
    I32(&'a [i32]),
    /// 64-bit indices.
    I64(&'a [i64]),
}

impl<'a> Indices<'a> {
    /// A dense index tensor at an address, of 64 or 32 bits.
    ///
    /// # Safety
    /// `len` aligned indices must be readable there for `'a`.
    pub unsafe fn at(address: usize, len: usize, wide: bool) -> Indices<'a> {
        // SAFETY: promised by the caller.
        unsafe { if wide { Indices::I64(slice(address, len)) } else { Indices::I32(slice(address, len)) } }
    }

    /// How many there are.
    pub fn len(self) -> usize {
        match self {
            Indices::I32(values) => values.len(),
            Indices::I64(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The index as it stands in the tensor.
    #[inline]
    pub fn get(self, position: usize) -> i64 {
        match self {
            Indices::I32(values) => values[position] as i64,
            Indices::I64(values) => values[position],
        }
    }

    /// The index with negative ones counted from the end; it must have passed [`Indices::check`].
    #[inline]
    pub fn wrapped(self, position: usize, size: usize) -> usize {
        let index = self.get(position);
        if index < 0 { (index + size as i64) as usize } else { index as usize }
    }

    /// Refuses the first index outside `-size..size`.
    pub fn check(self, size: usize) -> Result<(), Error> {
        self.check_from(-(size as i64), size)
    }

    /// Refuses the first index outside `lowest..size`.
    pub fn check_from(self, lowest: i64, size: usize) -> Result<(), Error> {
        // No early exit inside a block, so that the comparison vectorises.
        fn first_bad<T: Copy + Into<i64>>(values: &[T], range: std::ops::Range<i64>) -> Option<usize> {
            let bad = |&value: &T| !range.contains(&value.into());
            values
                .chunks(256)
                .position(|block| block.iter().fold(false, |any, value| any | bad(value)))
                .and_then(|block| values[block * 256..].iter().position(bad).map(|at| block * 256 + at))
        }
        let found = match self {
            Indices::I32(values) => first_bad(values, lowest..size as i64),
            Indices::I64(values) => first_bad(values, lowest..size as i64),
        };
        match found {
            Some(position) => Err(Error::Index { index: self.get(position), position, lowest, size }),
            None => Ok(()),
        }
    }
}

/// How a dense tensor is cut at an axis: `outer` x `size` x `inner`, where an inner row has `row` bytes.
#[derive(Clone, Copy, Debug)]
pub struct AxisSplit {
    /// Product of the dimensions before the axis.
    pub outer: usize,
    /// The axis' own size.
    pub size: usize,
    /// Bytes of everything after the axis.
    pub row: usize,
}

/// `out[o][k][..] = x[o][indices[k]][..]`.
///
/// # Safety
/// `x` must hold `rows.outer * rows.size` rows, `out` as many as `rows.outer * indices.len()`, without overlap.
pub unsafe fn gather(x: usize, out: usize, rows: AxisSplit, indices: Indices) -> Result<(), Error> {
    indices.check(rows.size)?;
    // SAFETY: promised by the caller; the indices were checked.
    unsafe { gather_checked(x, out, rows, indices) };
    Ok(())
}

/// # Safety
/// As [`gather`], with indices that have passed a check against `rows.size`.
unsafe fn gather_checked(x: usize, out: usize, rows: AxisSplit, indices: Indices) {
    let AxisSplit { outer, size, row } = rows;
    let count = indices.len();
    if count == 0 {
        return;
    }
    threads::parallel_for(outer * count, 1 + row / 8, |begin, end| {
        let source = |flat: usize| x + (flat / count * size + indices.wrapped(flat % count, size)) * row;
        // SAFETY: indices were checked; rows lie inside the tensors, as the caller promised.
        unsafe { move_rows(row, begin, end, source, |flat| out + flat * row) }
    });
}

/// Rows of `table` for each index, none of which counts from the end; the row of `padding` is zeros instead.
///
/// # Safety
/// As [`gather`] with one outer index.
pub unsafe fn embedding(
    table: usize,
    out: usize,
    (size, row): (usize, usize),
    indices: Indices,
    padding: Option<i64>,
) -> Result<(), Error> {
    indices.check_from(0, size)?;
    // SAFETY: promised by the caller; the indices were checked.
    unsafe { gather_checked(table, out, AxisSplit { outer: 1, size, row }, indices) };
    if let Some(padding) = padding {
        for position in (0..indices.len()).filter(|&position| indices.get(position) == padding) {
            // SAFETY: one row of `out`.
            unsafe { std::ptr::write_bytes((out + position * row) as *mut u8, 0, row) }
        }
    }
    Ok(())
}

/// The flat row number of each index tuple (`dims.len()` indices each) of a tensor with these leading dimensions.
pub fn tuples(dims: &[usize], indices: Indices) -> Result<Vec<usize>, Error> {
    let width = dims.len();
    let mut rows = vec![0; indices.len().checked_div(width).unwrap_or(0)];
    for (tuple, row) in rows.iter_mut().enumerate() {
        for (d, &size) in dims.iter().enumerate() {
            let position = tuple * width + d;
            let index = indices.get(position);
            if !(-(size as i64)..size as i64).contains(&index) {
                return Err(Error::Index { index, position, lowest: -(size as i64), size });
            }
            *row = *row * size + indices.wrapped(position, size);
        }
    }
    Ok(rows)
}

/// Copies the rows of `x` that are named by their numbers, as [`tuples`] gives them.
///
/// # Safety
/// Every named row of `row` bytes must be in `x`, and `out` must hold all of them, without overlap.
pub unsafe fn gather_numbered(x: usize, out: usize, row: usize, numbers: &[usize]) {
    threads::parallel_for(numbers.len(), 1 + row / 8, |begin, end| {
        // SAFETY: promised by the caller.
        unsafe { move_rows(row, begin, end, |flat| x + numbers[flat] * row, |flat| out + flat * row) }
    });
}

/// Copies rows between addresses; short rows are single loads and stores.
unsafe fn move_rows(row: usize, begin: usize, end: usize, from: impl Fn(usize) -> usize, to: impl Fn(usize) -> usize) {
    // SAFETY: promised by the caller.
    unsafe {
        if matches!(row, 1 | 2 | 4 | 8 | 16) {
            by_size!(row, T => for i in begin..end {
                (to(i) as *mut T).write_unaligned((from(i) as *const T).read_unaligned());
            });
        } else {
            for i in begin..end {
                move_bytes(from(i) as *const u8, to(i) as *mut u8, row);
            }
        }
    }
}

/// Where one index per element leads: a dense tensor `x`, dense indices of the same rank, one axis.
///
/// Lines along the axis are independent of each other, which is how the work is split between threads.
pub struct Along<'a> {
    indices: Indices<'a>,
    /// Size of the axis in `x` and in the indices.
    size: usize,
    count: usize,
    outer: usize,
    /// Distance of neighbours along the axis in `x`.
    stride: usize,
    /// Offset in `x` of each combination of the dimensions before and after the axis.
    outer_offsets: Vec<usize>,
    inner_offsets: Vec<usize>,
}

impl<'a> Along<'a> {
    /// Checks indices of dimensions `index_dims` for use along `axis` of a tensor of dimensions `dims`; none may be below `lowest`, which is
    /// minus the axis' size where indices count from its end too.
    pub fn new(
        dims: &[usize],
        index_dims: &[usize],
        axis: usize,
        (indices, lowest): (Indices<'a>, i64),
    ) -> Result<Self, Error> {
        Along::check(dims, index_dims, axis)?;
        indices.check_from(lowest, dims[axis])?;
        let stride: usize = dims[axis + 1..].iter().product();
        let outer_offsets = offsets(&dims[..axis], &index_dims[..axis], stride * dims[axis]);
        let inner_offsets = offsets(&dims[axis + 1..], &index_dims[axis + 1..], 1);
        let (size, count) = (dims[axis], index_dims[axis]);
        Ok(Along { indices, size, count, outer: outer_offsets.len(), stride, outer_offsets, inner_offsets })
    }

    /// Refuses index dimensions beyond those of the tensor, but along the axis.
    pub fn check(dims: &[usize], index_dims: &[usize], axis: usize) -> Result<(), Error> {
        let fits = dims.len() == index_dims.len()
            && dims.iter().zip(index_dims).enumerate().all(|(d, (size, wanted))| d == axis || wanted <= size);
        if fits {
            return Ok(());
        }
        Err(Error::Invalid(format!("indices of shape {index_dims:?} do not fit shape {dims:?} at {axis}")))
    }

    /// Calls `visit(position in the indices, offset in x)` for every index; those of one line come in order, on one thread.
    pub fn visit(&self, visit: impl Fn(usize, usize) + Sync) {
        let inner = self.inner_offsets.len();
        let part = |outer: usize, columns: std::ops::Range<usize>| {
            for k in 0..self.count {
                for column in columns.clone() {
                    let position = (outer * self.count + k) * inner + column;
                    let index = self.indices.wrapped(position, self.size);
                    visit(position, self.outer_offsets[outer] + index * self.stride + self.inner_offsets[column]);
                }
            }
        };
        if self.outer >= threads::count() {
            let ns = 2 * self.count * inner;
            threads::parallel_for(self.outer, ns, |begin, end| (begin..end).for_each(|outer| part(outer, 0..inner)));
        } else {
            let ns = 2 * self.count * self.outer;
            threads::parallel_for(inner, ns, |begin, end| (0..self.outer).for_each(|outer| part(outer, begin..end)));
        }
    }

    /// `out[p] = x[.., indices[p], ..]`, elements of `element` bytes.
    ///
    /// # Safety
    /// `x` and `out` must be dense tensors of the two shapes given to [`Along::new`].
    pub unsafe fn take(&self, element: usize, x: usize, out: usize) {
        by_size!(element, T => self.visit(|position, offset| {
            // SAFETY: both are inside the tensors; each position is visited once.
            unsafe { *(out as *mut T).add(position) = *(x as *const T).add(offset) }
        }));
    }
}

/// The offset, in a dense tensor of `dims` times `stride`, of every index of the smaller `wanted`.
fn offsets(dims: &[usize], wanted: &[usize], stride: usize) -> Vec<usize> {
    let mut all = vec![0];
    let mut strides = vec![stride; dims.len()];
    for d in (1..dims.len()).rev() {
        strides[d - 1] = strides[d] * dims[d];
    }
    for (&size, &stride) in wanted.iter().zip(&strides) {
        all = all.iter().flat_map(|&base| (0..size).map(move |i| base + i * stride)).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_the_first_bad_index() {
        let mut values = vec![1_i64; 1000];
        values[700] = -4;
        values[900] = 9;
        let error = Indices::I64(&values).check(3).unwrap_err();
        assert_eq!(error.to_string(), "index -4 at position 700 is outside -3..3");
        assert!(Indices::I64(&values[..700]).check(3).is_ok());
    }

    #[test]
    fn gathers_rows_of_every_width() {
        for (outer, size, inner, count) in [(1, 5, 1, 9), (3, 4, 2, 7), (2, 6, 5, 3), (1, 1000, 300, 400)] {
            let x: Vec<i32> = (0..outer * size * inner).map(|i| i as i32).collect();
            let indices: Vec<i32> = (0..count).map(|k| (k * 7 % (2 * size)) as i32 - size as i32).collect();
            let mut out = vec![0; outer * count * inner];
            let rows = AxisSplit { outer, size, row: inner * 4 };
            // SAFETY: the vectors have the sizes named.
            unsafe { gather(x.as_ptr() as usize, out.as_mut_ptr() as usize, rows, Indices::I32(&indices)).unwrap() };
            for (flat, &got) in out.iter().enumerate() {
                let (o, k, i) = (flat / inner / count, flat / inner % count, flat % inner);
                let index = indices[k].rem_euclid(size as i32) as usize;
                assert_eq!(got, x[(o * size + index) * inner + i]);
            }
        }
    }
}
