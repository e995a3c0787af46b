//! Reading a tensor's shape without a call per dimension: where `phi::DenseTensor` keeps its dimensions, strides and type.
//!
//! The places are not assumed: at load a tensor is made with a pattern of dimensions, the pattern is searched for in its memory, and
//! the find is checked against a second pattern. Where that fails, every read goes through the C interface, which is only slower.

use super::symbols::Symbols;
use super::types::PdTensor;
use std::os::raw::c_int;
use std::sync::OnceLock;

/// Byte offsets of a tensor's fields. A `DDim` is nine 64-bit numbers and an int, its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// Of `meta_.dims`.
    pub dims: usize,
    /// Of `meta_.strides`.
    pub strides: usize,
    /// Of `meta_.dtype`.
    pub dtype: usize,
}

/// The rank follows the nine numbers of a `DDim`.
pub const RANK_OFFSET: usize = 72;
/// The most dimensions that Paddle has.
pub const MAX_RANK: usize = 9;
/// How far into a tensor the probe looks; `sizeof(DenseTensor)` is 264 in 3.3.1, and its metadata comes first.
const PROBED_BYTES: usize = 232;

static LAYOUT: OnceLock<Option<TensorLayout>> = OnceLock::new();

/// What [`probe`] found.
#[inline]
pub fn layout() -> Option<TensorLayout> {
    *LAYOUT.get().unwrap_or(&None)
}

/// Finds the layout, once. `OPENMPS_PADDLE_LAYOUT=0` makes every read go through the C interface.
pub fn probe(symbols: &Symbols) -> Option<TensorLayout> {
    *LAYOUT.get_or_init(|| {
        if openmps_settings::PADDLE_LAYOUT.get() == Some(false) {
            return None;
        }
        // SAFETY: the tensor is made, read within its size and deleted here; the C interface is called as its headers say.
        unsafe {
            let found = |dims, strides| {
                let tensor = (symbols.new_tensor)();
                let found = find(symbols, tensor, dims, strides);
                (symbols.delete_tensor)(tensor);
                found
            };
            let first = found([3, 5, 7], [61, 67, 71]);
            first.filter(|_| first == found([2, 13, 11], [83, 73, 79]))
        }
    })
}

/// # Safety
/// `tensor` is a live tensor without memory.
unsafe fn find(symbols: &Symbols, tensor: *mut PdTensor, dims: [i64; 3], strides: [i64; 3]) -> Option<TensorLayout> {
    let mut status: c_int = 0;
    let mut types = [0i32; 2];
    // SAFETY: as the caller promises; the arrays outlive the calls.
    let words = unsafe {
        (symbols.tensor_set_dims)(tensor, 3, dims.as_ptr(), &mut status);
        (symbols.tensor_set_strides)(tensor, 3, strides.as_ptr(), &mut status);
        std::slice::from_raw_parts(tensor.cast::<i64>(), PROBED_BYTES / 8)
    };
    let dims = only(words.windows(3).enumerate().filter(|(_, found)| *found == dims).map(|(index, _)| index * 8))?;
    let strides =
        only(words.windows(3).enumerate().filter(|(_, found)| *found == strides).map(|(index, _)| index * 8))?;
    // SAFETY: both offsets plus a DDim lie within the probed bytes, checked before the read.
    let rank = |offset: usize| {
        (offset + RANK_OFFSET + 4 <= PROBED_BYTES)
            // SAFETY: the layout was probed at load; the tensor is live.
            .then(|| unsafe { *tensor.cast::<u8>().add(offset + RANK_OFFSET).cast::<i32>() })
    };
    if rank(dims) != Some(3) || rank(strides) != Some(3) {
        return None;
    }
    // The type follows the dimensions: phi's numbers are 10 for float32 and 9 for int64, the C interface's 11 and 9.
    let dtype = dims + RANK_OFFSET + 8;
    for (place, of_c_interface) in types.iter_mut().zip([11, 9]) {
        // SAFETY: `dtype + 4` lies before the strides, which were found within the probed bytes.
        unsafe {
            (symbols.tensor_set_data_type)(tensor, of_c_interface, &mut status);
            *place = *tensor.cast::<u8>().add(dtype).cast::<i32>();
        }
    }
    (dtype + 4 <= strides && types == [10, 9]).then_some(TensorLayout { dims, strides, dtype })
}

fn only(mut found: impl Iterator<Item = usize>) -> Option<usize> {
    let first = found.next()?;
    found.next().is_none().then_some(first)
}
