//! What operators on images share: their memory layout, their padding, and float32 forms of other element types.

use crate::error::{Error, Result};
use crate::layout::{Dense, copy_view};
use crate::view::{View, dense_strides};
use half::{bf16, f16};
use openmps_host::native::memory::{slice, slice_mut};
use openmps_tile::DType;

/// The order of an image tensor's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageLayout {
    /// Batch, channels, height, width.
    #[default]
    Nchw,
    /// Batch, height, width, channels.
    Nhwc,
}

impl ImageLayout {
    /// (batch, channels, height, width) of a shape in this layout.
    pub fn sizes(self, shape: &[usize]) -> [usize; 4] {
        match self {
            ImageLayout::Nchw => [shape[0], shape[1], shape[2], shape[3]],
            ImageLayout::Nhwc => [shape[0], shape[3], shape[1], shape[2]],
        }
    }

    /// The shape in this layout of (batch, channels, height, width).
    pub fn shape(self, [n, c, h, w]: [usize; 4]) -> [usize; 4] {
        match self {
            ImageLayout::Nchw => [n, c, h, w],
            ImageLayout::Nhwc => [n, h, w, c],
        }
    }

    /// The view with its dimensions as batch, channels, height, width.
    pub fn nchw(self, view: &View) -> View {
        match self {
            ImageLayout::Nchw => view.clone(),
            ImageLayout::Nhwc => view.permuted(&[0, 3, 1, 2]),
        }
    }

    /// The index in this layout of (batch, channel, row, column).
    pub(crate) fn index(self, index: [usize; 4]) -> [usize; 4] {
        self.shape(index)
    }
}

/// How the zeros around an image are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingAlgorithm {
    /// Rows and columns of zeros are added as the numbers beside this say.
    #[default]
    Explicit,
    /// As many as make the output `ceil(input / stride)` long, the odd one last; dilation counts as 1.
    Same,
    /// Nothing is added: a window lies in the image as a whole.
    Valid,
}

/// The most that a size of an image, a window, or a distance in one may be: products of two of them and their sums are numbers.
pub(crate) const MOST: usize = i32::MAX as usize;

/// Padding as (top, bottom, left, right): `given` has these four, or (vertical, horizontal).
pub(crate) fn paddings(
    operator: &'static str,
    algorithm: PaddingAlgorithm,
    given: &[usize],
    [input, kernel, stride]: [[usize; 2]; 3],
) -> Result<[usize; 4]> {
    if given.iter().any(|&size| size > MOST) {
        let (got, expected) = (format!("{given:?}"), format!("numbers up to {MOST}"));
        return Err(Error::Attribute { operator, attribute: "paddings", got, expected });
    }
    match algorithm {
        PaddingAlgorithm::Valid => Ok([0; 4]),
        PaddingAlgorithm::Same => {
            let same = |axis: usize| {
                let steps = input[axis].div_ceil(stride[axis]).saturating_sub(1);
                let sum = (steps * stride[axis] + kernel[axis]).saturating_sub(input[axis]);
                [sum / 2, sum - sum / 2]
            };
            let ([top, bottom], [left, right]) = (same(0), same(1));
            Ok([top, bottom, left, right])
        }
        PaddingAlgorithm::Explicit => match *given {
            [y, x] => Ok([y, y, x, x]),
            [top, bottom, left, right] => Ok([top, bottom, left, right]),
            _ => {
                let (got, expected) = (format!("{given:?}"), "2 or 4 numbers".to_owned());
                Err(Error::Attribute { operator, attribute: "paddings", got, expected })
            }
        },
    }
}

/// Refuses a shape that has not four dimensions of a sensible size.
pub(crate) fn expect_image(operator: &'static str, what: &'static str, shape: &crate::view::Shape) -> Result<()> {
    if shape.len() == 4 && shape.iter().all(|&size| size <= MOST) {
        return Ok(());
    }
    Err(Error::Shape { operator, what, got: shape.clone(), expected: format!("4 dimensions up to {MOST}") })
}

/// Refuses a size of zero, or beyond all images, in a pair of attributes.
pub(crate) fn expect_positive(operator: &'static str, attribute: &'static str, pair: &[usize]) -> Result<()> {
    if pair.iter().all(|&size| (1..=MOST).contains(&size)) {
        return Ok(());
    }
    let (got, expected) = (format!("{pair:?}"), format!("numbers from 1 to {MOST}"));
    Err(Error::Attribute { operator, attribute, got, expected })
}

/// A float32 tensor read densely: in place where it is that already, else a copy.
pub(crate) struct Singles {
    dense: Dense,
    len: usize,
    widened: Option<Vec<f32>>,
}

impl Singles {
    /// Of a float16, bfloat16 or float32 view.
    pub fn of(view: &View) -> Singles {
        let (dense, len) = (Dense::of(view), view.len());
        // SAFETY: `dense` names as many elements of the view's type, alive as long as it.
        let widened = unsafe {
            match view.dtype {
                DType::F16 => Some(slice::<f16>(dense.address, len).iter().map(|x| x.to_f32()).collect()),
                DType::BF16 => Some(slice::<bf16>(dense.address, len).iter().map(|x| x.to_f32()).collect()),
                _ => None,
            }
        };
        Singles { dense, len, widened }
    }

    /// The elements.
    pub fn get(&self) -> &[f32] {
        match &self.widened {
            Some(widened) => widened,
            // SAFETY: a dense float32 tensor, alive as long as `self.dense`.
            None => unsafe { slice(self.dense.address, self.len) },
        }
    }
}

/// Lets `fill` write a dense tensor of the view's type and brings it to the view.
pub(crate) fn write<T: Copy + Default>(
    view: &View,
    fill: impl FnOnce(&mut [T]) -> std::result::Result<(), openmps_host::Error>,
) -> std::result::Result<(), openmps_host::Error> {
    let len = view.len();
    if view.is_dense() {
        // SAFETY: the caller of `run` passes an output that is live and its own.
        return fill(unsafe { slice_mut::<T>(view.address, len) });
    }
    let mut dense = vec![T::default(); len];
    fill(&mut dense)?;
    let strides = dense_strides(&view.shape);
    let from = View { address: dense.as_ptr() as usize, dtype: view.dtype, shape: view.shape.clone(), strides };
    copy_view(&from, view);
    Ok(())
}

/// As [`write`] for a view of float16, bfloat16 or float32 that is computed in float32.
pub(crate) fn write_singles(
    view: &View,
    fill: impl FnOnce(&mut [f32]) -> std::result::Result<(), openmps_host::Error>,
) -> std::result::Result<(), openmps_host::Error> {
    if view.dtype == DType::F32 {
        return write(view, fill);
    }
    let mut singles = vec![0.0; view.len()];
    fill(&mut singles)?;
    if view.dtype == DType::F16 {
        return write::<f16>(view, |to| {
            to.iter_mut().zip(&singles).for_each(|(to, &x)| *to = f16::from_f32(x));
            Ok(())
        });
    }
    write::<bf16>(view, |to| {
        to.iter_mut().zip(&singles).for_each(|(to, &x)| *to = bf16::from_f32(x));
        Ok(())
    })
}
