//! What kernels on images share: their attributes, as Paddle writes them and as operators take them.

use crate::error::{Result, refuse};
use openmps_graph::image::{ImageLayout, PaddingAlgorithm};

/// Sizes, none of which may be negative.
pub(super) fn sizes<T: Copy + TryInto<usize> + std::fmt::Debug>(
    attribute: &'static str,
    numbers: &[T],
) -> Result<Vec<usize>> {
    let size = |&number: &T| number.try_into().map_err(|_| refuse(attribute, numbers, "no negative numbers"));
    numbers.iter().map(size).collect()
}

/// A number for the height and one for the width; a single number is both.
pub(super) fn pair<T: Copy + TryInto<usize> + std::fmt::Debug>(
    attribute: &'static str,
    numbers: &[T],
) -> Result<[usize; 2]> {
    match *sizes(attribute, numbers)? {
        [height, width] => Ok([height, width]),
        [both] => Ok([both, both]),
        _ => Err(refuse(attribute, numbers, "one or two numbers")),
    }
}

/// Paddle's `data_format`: what is not channels last is channels first.
pub(super) fn layout(format: &str) -> ImageLayout {
    if format == "NHWC" { ImageLayout::Nhwc } else { ImageLayout::Nchw }
}

pub(super) fn padding_algorithm(name: &str) -> Result<PaddingAlgorithm> {
    match name {
        "EXPLICIT" => Ok(PaddingAlgorithm::Explicit),
        "SAME" => Ok(PaddingAlgorithm::Same),
        "VALID" => Ok(PaddingAlgorithm::Valid),
        _ => Err(refuse("padding_algorithm", name, "EXPLICIT, SAME or VALID")),
    }
}
