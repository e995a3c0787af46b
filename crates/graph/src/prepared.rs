//! Constant inputs in the form in which a native kernel of the host reads them: made once, read in every run.

use crate::error::{Error, Result};
use crate::meta::Meta;
use crate::queue::Queue;
use openmps_host::native::convolution::{FilterOrder, PackedFilters};
use openmps_host::native::matmul::{PackedMatrix, Side};
use openmps_tile::DType;
use std::fmt;

/// A constant input that an operator would rather read in another form: what [`Operator::prepares`](crate::Operator::prepares) asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// Which input it is: of float32.
    pub input: usize,
    /// The form.
    pub form: Form,
}

/// A form of a float32 constant. It depends on nothing but what is here: what is made of one constant serves every call that wants this form of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A weight (inputs, outputs), or (outputs, inputs), as the right operand of products.
    RightMatrix {
        /// It is (outputs, inputs).
        transposed: bool,
    },
    /// The filters of convolutions.
    Filters {
        /// The order of the kernel that reads them.
        order: FilterOrder,
        /// Groups of channels and filters.
        groups: usize,
    },
}

/// A constant in a form of its own.
pub struct Prepared {
    form: Form,
    content: Content,
}

enum Content {
    Matrix(PackedMatrix),
    Filters(PackedFilters),
}

impl Form {
    /// The constant with these numbers in this form.
    pub fn prepare(self, operator: &'static str, meta: &Meta, numbers: &[f32]) -> Result<Prepared> {
        let content = match (self, &meta.shape[..]) {
            (Form::RightMatrix { transposed: false }, &[inputs, outputs]) => {
                PackedMatrix::new(Side::Right, [inputs, outputs], [outputs, 1], numbers).map(Content::Matrix)
            }
            (Form::RightMatrix { transposed: true }, &[outputs, inputs]) => {
                PackedMatrix::new(Side::Right, [inputs, outputs], [1, inputs], numbers).map(Content::Matrix)
            }
            (Form::Filters { order, groups }, &[filters, channels, height, width]) => {
                let size = [filters, channels, height, width];
                PackedFilters::new(order, size, groups, numbers).map(Content::Filters)
            }
            _ => {
                let expected = format!("what becomes {self:?}");
                return Err(Error::Shape { operator, what: "a constant", got: meta.shape.clone(), expected });
            }
        };
        Ok(Prepared { form: self, content: content.map_err(|source| Error::Kernel { operator, source })? })
    }
}

impl Prepared {
    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Matrix(matrix) => matrix.bytes(),
            Content::Filters(filters) => filters.bytes(),
        }
    }

    /// It as a matrix, for a native kernel on this queue.
    pub(crate) fn matrix(&self, operator: &'static str, queue: &Queue) -> Result<&PackedMatrix> {
        match &self.content {
            Content::Matrix(matrix) if queue.is_host() => Ok(matrix),
            _ => Err(self.unfit(operator, "a matrix on the host device")),
        }
    }

    /// It as filters, for a native kernel on this queue.
    pub(crate) fn filters(&self, operator: &'static str, queue: &Queue) -> Result<&PackedFilters> {
        match &self.content {
            Content::Filters(filters) if queue.is_host() => Ok(filters),
            _ => Err(self.unfit(operator, "filters on the host device")),
        }
    }

    /// What an operator says that reads no prepared input, or none of this form.
    pub(crate) fn unfit(&self, operator: &'static str, expected: &str) -> Error {
        let (got, expected) = (format!("{:?}", self.form), expected.to_owned());
        Error::Attribute { operator, attribute: "a prepared input", got, expected }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}, {} bytes", self.form, self.bytes())
    }
}

/// Whether inputs of these types and shapes may be prepared: of float32, with elements.
pub(crate) fn may_prepare(inputs: &[Meta]) -> bool {
    inputs.iter().take(2).all(|meta| meta.dtype == DType::F32 && meta.count() > 0)
}
