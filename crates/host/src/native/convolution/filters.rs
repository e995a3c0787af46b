//! Filters in the order in which a kernel reads them: packed anew by every call, or kept for many.

use super::shape::Convolution;
use super::winograd::Transformed;
use super::{columns, direct, gathered, pointwise, rows, turned, winograd};
use crate::Error;
use crate::native::aligned::Aligned;
use crate::native::epilogue::Epilogue;
use crate::native::scratch;

/// An order of filters, and with it the kernel that reads them so. Which one it is depends on the whole convolution; how filters lie then, on their own
/// sizes and the groups alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterOrder {
    /// 1x1 filters as the left operand of products.
    Product,
    /// Whole filters as the left operand of products with what each pixel reads.
    Columns,
    /// Panels of whole filters, a few channels at a time.
    Bands,
    /// Panels of filters that went through Winograd's transform.
    Winograd,
}

/// Whether nothing orders the filters before a kernel reads them, or nothing reads them at all.
fn lie_as_they_are(shape: &Convolution) -> bool {
    shape.lens().contains(&0) || rows::suits(shape) || gathered::suits(shape) || turned::suits(shape)
}

impl FilterOrder {
    /// The order of this convolution whose filters are kept for many calls; none where filters are read as they lie.
    pub fn kept(shape: &Convolution) -> Option<FilterOrder> {
        FilterOrder::of(shape, Transformed::Kept)
    }

    /// The same where filters are packed for one call.
    pub(super) fn once(shape: &Convolution) -> Option<FilterOrder> {
        FilterOrder::of(shape, Transformed::Once)
    }

    fn of(shape: &Convolution, transformed: Transformed) -> Option<FilterOrder> {
        let is_winograd = !lie_as_they_are(shape) && winograd::suits(shape, transformed);
        if is_winograd { Some(FilterOrder::Winograd) } else { FilterOrder::of_sums(shape) }
    }

    /// The same where only sums of products will do.
    pub(super) fn of_sums(shape: &Convolution) -> Option<FilterOrder> {
        if lie_as_they_are(shape) {
            None
        } else if shape.is_pointwise() {
            pointwise::is_product(shape).then_some(FilterOrder::Product)
        } else if columns::suits(shape) {
            Some(FilterOrder::Columns)
        } else {
            (!shape.is_depthwise()).then_some(FilterOrder::Bands)
        }
    }

    /// Whether filters of these sizes may lie so.
    fn takes(self, shape: &Convolution) -> bool {
        match self {
            FilterOrder::Product => shape.kernel == [1, 1],
            FilterOrder::Columns => shape.groups == 1,
            FilterOrder::Bands => true,
            FilterOrder::Winograd => shape.kernel == [3, 3] && shape.groups == 1,
        }
    }

    /// Numbers of the packed filters.
    fn len(self, shape: &Convolution) -> usize {
        match self {
            FilterOrder::Product => pointwise::packed_len(shape),
            FilterOrder::Columns => columns::packed_len(shape),
            FilterOrder::Bands => direct::packed_len(shape),
            FilterOrder::Winograd => winograd::packed_len(shape),
        }
    }

    fn pack(self, shape: &Convolution, weight: &[f32], packed: &mut [f32]) {
        match self {
            FilterOrder::Product => pointwise::pack(shape, weight, packed),
            FilterOrder::Columns => columns::pack(shape, weight, packed),
            FilterOrder::Bands => direct::pack(shape, weight, packed),
            FilterOrder::Winograd => winograd::pack(shape, weight, packed),
        }
    }

    fn run(self, shape: &Convolution, input: &[f32], packed: &[f32], output: &mut [f32], epilogue: &Epilogue) {
        match self {
            FilterOrder::Product => pointwise::run(shape, input, packed, output, epilogue),
            FilterOrder::Columns => columns::run(shape, input, packed, output, epilogue),
            FilterOrder::Bands => direct::run(shape, input, packed, output, epilogue),
            FilterOrder::Winograd => winograd::run(shape, input, packed, output, epilogue),
        }
    }

    /// Convolves with filters that are packed for this call.
    pub(super) fn run_once(
        self,
        shape: &Convolution,
        input: &[f32],
        weight: &[f32],
        output: &mut [f32],
        epilogue: &Epilogue,
    ) {
        scratch::with(self.len(shape), |packed: &mut [f32]| {
            self.pack(shape, weight, packed);
            self.run(shape, input, packed, output, epilogue);
        });
    }
}

/// Filters that were packed once for many convolutions: of any images, as long as their order is this one.
///
/// They are in the order of the vector instructions in use, so of this process alone, and may be shared between threads.
pub struct PackedFilters {
    order: FilterOrder,
    sizes: [usize; 5],
    numbers: Aligned,
}

/// Filters, their channels, height and width, and the groups.
fn sizes(shape: &Convolution) -> [usize; 5] {
    let [height, width] = shape.kernel;
    [shape.filters, shape.channels, height, width, shape.groups]
}

impl PackedFilters {
    /// Packs filters (filters, channels of a group, height, width) for all convolutions that have this order.
    pub fn new(order: FilterOrder, size: [usize; 4], groups: usize, weight: &[f32]) -> Result<PackedFilters, Error> {
        let shape = &Convolution::filters(size, groups);
        shape.check([0, weight.len(), 0])?;
        if weight.is_empty() || !order.takes(shape) {
            return Err(Error::Invalid(format!("convolution: filters of {shape:?} are not packed as {order:?}")));
        }
        let mut numbers = Aligned::zeros(order.len(shape));
        order.pack(shape, weight, numbers.numbers_mut());
        Ok(PackedFilters { order, sizes: sizes(shape), numbers })
    }

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.numbers.bytes()
    }
}

/// [`forward`](super::forward) with filters that were packed before, of the same sizes and for the same order.
pub fn forward_packed(
    shape: &Convolution,
    input: &[f32],
    weight: &PackedFilters,
    output: &mut [f32],
    epilogue: &Epilogue,
) -> Result<(), Error> {
    if FilterOrder::kept(shape) != Some(weight.order) || sizes(shape) != weight.sizes {
        let (order, sizes) = (weight.order, weight.sizes);
        return Err(Error::Invalid(format!(
            "convolution: {shape:?} does not take filters {sizes:?} packed as {order:?}"
        )));
    }
    super::check(shape, [input.len(), shape.lens()[1], output.len()], epilogue)?;
    weight.order.run(shape, input, weight.numbers.numbers(), output, epilogue);
    Ok(())
}
