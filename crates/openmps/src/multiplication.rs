//! Products of matrices: `MPSMatrixMultiplication`.

use crate::buffer::Access;
use crate::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::encode::encode;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use openmps_graph::operators::elementwise::{Call, Elementwise, Unary};
use openmps_graph::operators::matmul::Matmul;
use openmps_graph::{Operator, Queue, View};
use openmps_runtime::Buffer as Allocated;
use openmps_tile::{DType, dtype};

/// A place in a matrix, from which on a kernel reads or writes it: `MTLOrigin`.
///
/// ```
/// assert_eq!(openmps::Origin::default(), openmps::Origin { row: 0, column: 0 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The first row.
    pub row: usize,
    /// The first column.
    pub column: usize,
}

/// `result = alpha * left * right + beta * result`, either matrix transposed, for every matrix of a batch: `MPSMatrixMultiplication`.
///
/// float16, bfloat16, float32, float64 and integers; all three matrices have one element type, or a result of float32 has factors of half
/// precision, or one of int32 factors of 8 bits. Half precision is summed up in float32.
///
/// ```
/// use openmps::{DataType, Device, Matrix, MatrixDescriptor, MatrixMultiplication};
/// let device = Device::get(0)?;
/// let left = Matrix::from_slice(&device, 1, 2, &[1.0f32, 2.0])?;
/// let right = Matrix::from_slice(&device, 1, 2, &[3.0f32, 4.0])?;
/// let result = Matrix::from_slice(&device, 1, 1, &[100.0f32])?;
/// let kernel = MatrixMultiplication::builder(1, 1, 2).transpose_right(true).beta(1.0).build(&device)?;
/// let command_buffer = device.queue().command_buffer();
/// kernel.encode(&command_buffer, &left, &right, &result)?;
/// command_buffer.commit()?;
/// command_buffer.wait_until_completed()?;
/// assert_eq!(result.read::<f32>()?, [111.0]);
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixMultiplication {
    device: Device,
    settings: MatrixMultiplicationBuilder,
}

/// Builds a [`MatrixMultiplication`].
///
/// ```
/// use openmps::{Device, MatrixMultiplication};
/// assert!(MatrixMultiplication::builder(2, 3, 4).alpha(0.5).build(&Device::get(0)?).is_ok());
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MatrixMultiplicationBuilder {
    /// Rows and columns of the result, columns of the left matrix.
    sizes: [usize; 3],
    transpose: [bool; 2],
    factors: [f64; 2],
    origins: [Origin; 3],
    batch_start: usize,
    batch_size: Option<usize>,
}

impl MatrixMultiplicationBuilder {
    /// Whether the left matrix lies transposed: its rows are the product's interior.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).transpose_left(true).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn transpose_left(mut self, transpose: bool) -> Self {
        self.transpose[0] = transpose;
        self
    }

    /// Whether the right matrix lies transposed: its columns are the product's interior.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).transpose_right(true).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn transpose_right(mut self, transpose: bool) -> Self {
        self.transpose[1] = transpose;
        self
    }

    /// The factor of the product; 1 when it is not set.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).alpha(2.0).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.factors[0] = alpha;
        self
    }

    /// The factor of what the result holds; 0, which ignores even NaN, when it is not set.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).beta(1.0).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn beta(mut self, beta: f64) -> Self {
        self.factors[1] = beta;
        self
    }

    /// Where the kernel begins in the left, the right and the result matrix: `leftMatrixOrigin` and its like.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication, Origin};
    /// let origins = [Origin { row: 1, column: 0 }, Origin::default(), Origin::default()];
    /// MatrixMultiplication::builder(2, 3, 4).origins(origins).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn origins(mut self, origins: [Origin; 3]) -> Self {
        self.origins = origins;
        self
    }

    /// The first matrix of the batch and how many: `batchStart` and `batchSize`. All of the result's when it is not set.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).batch(1, 2).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn batch(mut self, start: usize, size: usize) -> Self {
        (self.batch_start, self.batch_size) = (start, Some(size));
        self
    }

    /// The kernel on a device.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn build(self, device: &Device) -> Result<MatrixMultiplication> {
        check_factors(OPERATION, None, self.factors)?;
        Ok(MatrixMultiplication { device: device.clone(), settings: self })
    }
}

const OPERATION: &str = "MatrixMultiplication";

impl MatrixMultiplication {
    /// `initWithDevice:transposeLeft:transposeRight:resultRows:resultColumns:interiorColumns:alpha:beta:`
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::new(&Device::get(0)?, false, true, 2, 3, 4, 1.0, 0.0)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn new(
        device: &Device,
        transpose_left: bool,
        transpose_right: bool,
        result_rows: usize,
        result_columns: usize,
        interior_columns: usize,
        alpha: f64,
        beta: f64,
    ) -> Result<MatrixMultiplication> {
        let builder = MatrixMultiplication::builder(result_rows, result_columns, interior_columns);
        builder.transpose_left(transpose_left).transpose_right(transpose_right).alpha(alpha).beta(beta).build(device)
    }

    /// A builder for these sizes.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// MatrixMultiplication::builder(2, 3, 4).build(&Device::get(0)?)?;
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn builder(result_rows: usize, result_columns: usize, interior_columns: usize) -> MatrixMultiplicationBuilder {
        MatrixMultiplicationBuilder {
            sizes: [result_rows, result_columns, interior_columns],
            transpose: [false; 2],
            factors: [1.0, 0.0],
            origins: [Origin::default(); 3],
            batch_start: 0,
            batch_size: None,
        }
    }

    /// The device that it was made for.
    ///
    /// ```
    /// use openmps::{Device, MatrixMultiplication};
    /// let device = Device::get(0)?;
    /// assert_eq!(MatrixMultiplication::builder(2, 3, 4).build(&device)?.device(), &device);
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Encodes the product: `encodeToCommandBuffer:leftMatrix:rightMatrix:resultMatrix:`. Matrices may be larger than what the kernel uses
    /// of them. The result must not share memory with the others.
    ///
    /// ```
    /// use openmps::{Device, Error, Matrix, MatrixMultiplication};
    /// let device = Device::get(0)?;
    /// let matrix = Matrix::from_slice(&device, 2, 2, &[0.0f32; 4])?;
    /// let kernel = MatrixMultiplication::builder(2, 2, 3).build(&device)?;
    /// let error = kernel.encode(&device.queue().command_buffer(), &matrix, &matrix.clone(), &matrix).unwrap_err();
    /// assert!(matches!(error, Error::Shape { what: "the left matrix", .. }));
    /// # Ok::<(), openmps::Error>(())
    /// ```
    pub fn encode(&self, command_buffer: &CommandBuffer, left: &Matrix, right: &Matrix, result: &Matrix) -> Result<()> {
        let settings = &self.settings;
        let [rows, columns, interior] = settings.sizes;
        check_device(OPERATION, &self.device, command_buffer)?;
        check_types(&[("the left matrix", left), ("the right matrix", right), ("the result", result)])?;
        check_factors(OPERATION, Some(result.data_type()), settings.factors)?;
        let count = settings.batch_size.unwrap_or_else(|| result.matrices().saturating_sub(settings.batch_start));
        let batch = (settings.batch_start, count);
        let [swap_left, swap_right] = settings.transpose;
        let ordered = |swapped, size: [usize; 2]| if swapped { [size[1], size[0]] } else { size };
        let of = |what, matrix: &Matrix, origin: usize, size| {
            part((OPERATION, what), matrix, settings.origins[origin], size, batch)
        };
        let left_view = of("the left matrix", left, 0, ordered(swap_left, [rows, interior]))?;
        let right_view = of("the right matrix", right, 1, ordered(swap_right, [interior, columns]))?;
        let result_view = of("the result", result, 2, [rows, columns])?;
        let resources = vec![
            left.resource("the left matrix", Access::Read),
            right.resource("the right matrix", Access::Read),
            result.resource("the result", Access::Write),
        ];
        let operator = Matmul { transpose_left: swap_left, transpose_right: swap_right };
        let factors = settings.factors;
        encode(command_buffer, OPERATION, resources, move |queue| {
            let mut memory = Vec::new();
            let left = in_type(result_view.dtype, &left_view, queue, &mut memory)?;
            let right = in_type(result_view.dtype, &right_view, queue, &mut memory)?;
            Ok(operator.accumulate(queue, [&left, &right], &result_view, factors)?)
        })
    }
}

const TWO_TO_63: f64 = -(i64::MIN as f64);

/// Both are finite, and whole numbers where the result's elements are.
pub(crate) fn check_factors(operation: &'static str, result: Option<DType>, factors: [f64; 2]) -> Result<()> {
    let is_integer = result.is_some_and(DType::is_integer);
    for (attribute, factor) in ["alpha", "beta"].into_iter().zip(factors) {
        let expected = match () {
            () if !factor.is_finite() => "a finite number",
            // 2^63 is the first that is none: i64::MAX is no float64.
            () if is_integer && (factor.fract() != 0.0 || !(-TWO_TO_63..TWO_TO_63).contains(&factor)) => {
                "a whole number of 64 bits, for integers"
            }
            () => continue,
        };
        return Err(Error::Attribute { operation, attribute, got: factor.to_string(), expected: expected.to_owned() });
    }
    Ok(())
}

/// The part of a batch of matrices that a kernel uses.
pub(crate) fn part(
    (operation, what): (&'static str, &'static str),
    matrix: &Matrix,
    origin: Origin,
    size: [usize; 2],
    (start, count): (usize, usize),
) -> Result<View> {
    let fits = |begin: usize, size: usize, all: usize| begin.checked_add(size).is_some_and(|end| end <= all);
    let inside = fits(start, count, matrix.matrices())
        && fits(origin.row, size[0], matrix.rows())
        && fits(origin.column, size[1], matrix.columns());
    if !inside {
        let expected = format!(
            "at least {count} x {} x {} from matrix {start}, row {}, column {} on",
            size[0], size[1], origin.row, origin.column
        );
        return Err(Error::Shape { operation, what, got: matrix.shape_text(), expected });
    }
    let view = matrix.view()?.narrowed(0, start, 1, count);
    Ok(view.narrowed(1, origin.row, 1, size[0]).narrowed(2, origin.column, 1, size[1]))
}

/// All three of one type, or both factors of types that the result's is summed up in.
fn check_types(matrices: &[(&'static str, &Matrix); 3]) -> Result<()> {
    let [left, right, result] = matrices.map(|(_, matrix)| matrix.data_type());
    if widens(left, result) && widens(right, result) {
        return Ok(());
    }
    for &(what, matrix) in matrices {
        let got = matrix.data_type();
        if !dtype::NUMBERS.contains(&got) || got != left {
            let expected = if got == left { "number".to_owned() } else { left.to_string() };
            return Err(Error::DataType { operation: OPERATION, what, got, expected });
        }
    }
    Ok(())
}

/// Whether products of these are numbers of that type, and exact in it.
fn widens(from: DType, to: DType) -> bool {
    matches!((from, to), (DType::F16 | DType::BF16, DType::F32) | (DType::I8 | DType::U8, DType::I32))
}

/// A factor in the result's type: itself, or a copy, which lives in `memory`.
fn in_type(dtype: DType, view: &View, queue: &Queue, memory: &mut Vec<Allocated>) -> Result<View> {
    if view.dtype == dtype {
        return Ok(view.clone());
    }
    let own = queue.allocate(openmps_graph::view::bytes(dtype, &view.shape)?.max(1))?;
    let wide = View::dense(own.address(), dtype, &view.shape)?;
    memory.push(own);
    let cast = Call { operator: Elementwise::Unary(Unary::Cast), scalars: Vec::new(), output: Some(dtype) };
    cast.run(queue, std::slice::from_ref(view), std::slice::from_ref(&wide))?;
    Ok(wide)
}

/// Refuses a command buffer of another device than the kernel's.
pub(crate) fn check_device(operation: &'static str, device: &Device, command_buffer: &CommandBuffer) -> Result<()> {
    let other = command_buffer.queue().device();
    if other == device {
        return Ok(());
    }
    let (got, expected) = (format!("{device:?}"), format!("{other:?}"));
    Err(Error::Device { operation, what: "the kernel", got, expected })
}
