//! Spectra, and the windows and scales that go with them.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value, axis_of, size_of, wrong};
use crate::onnx::tensor::data_type;
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::fourier::{Direction, Ends, Fourier, Mirrored, half};
use openmps::operators::operators::gather::Gather;
use std::f64::consts::PI;

pub(super) const TABLE: Table = &[
    ("DFT", transform),
    ("STFT", short_transform),
    ("HannWindow", |lowering, operation| window(lowering, operation, [0.5, 0.5, 0.0])),
    ("HammingWindow", |lowering, operation| window(lowering, operation, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    ("BlackmanWindow", |lowering, operation| window(lowering, operation, [0.42, 0.5, 0.08])),
    ("MelWeightMatrix", mel_weights),
];

/// Along an axis of numbers that are real (a last dimension of 1) or complex (of 2).
fn transform(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let rank = lowering.shape(&x)?.len();
    let axis = match lowering.number_at(operation, 2)? {
        Some(axis) => axis as i64,
        None => operation.integer("axis", if lowering.opset() < 20 { 1 } else { -2 })?,
    };
    let axis = axis_of(operation, axis, rank)?;
    if axis + 1 == rank {
        return Err(wrong(operation, "along the axis of real and imaginary parts"));
    }
    let length = lowering.number_at(operation, 1)?.map(|length| size_of(operation, length as i64)).transpose()?;
    let (inverse, one_sided) = (operation.flag("inverse", false)?, operation.flag("onesided", false)?);
    if inverse && one_sided {
        return Ok(vec![lowering.signal_of(&x, axis, length)?]);
    }
    let x = match length {
        Some(length) => lowering.of_length(&x, axis, length)?,
        None => x,
    };
    Ok(vec![lowering.spectrum(operation, &x, axis, inverse, one_sided)?])
}

/// Of frames of a signal `[batch, length, 1 or 2]`, each times a window.
fn short_transform(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let signal = lowering.input(operation, 0)?;
    let step = lowering.number_at(operation, 1)?.unwrap_or(0.0) as i64;
    let window = lowering.optional(operation, 2)?;
    let length = match (lowering.number_at(operation, 3)?, &window) {
        (Some(length), _) => size_of(operation, length as i64)?,
        (None, Some(window)) => lowering.shape(window)?.iter().product(),
        (None, None) => return Err(wrong(operation, "neither a window nor the length of a frame")),
    };
    let shape = lowering.shape(&signal)?;
    let [batch, all, parts] = match shape[..] {
        [batch, all] => [batch, all, 1],
        [batch, all, parts] => [batch, all, parts],
        _ => return Err(wrong(operation, format!("a signal of shape {shape:?}"))),
    };
    if step <= 0 || length == 0 || length > all {
        return Err(wrong(operation, format!("frames of {length} in steps of {step} of a signal of {all}")));
    }
    let frames = (all - length) / step as usize + 1;
    let first = lowering.counted(frames, DataType::I64)?;
    let first = lowering.scaled(&first, step as f64, 0.0)?;
    let first = lowering.reshape(&first, &[frames, 1])?;
    let within = lowering.counted(length, DataType::I64)?;
    let places = lowering.binary(Binary::Add, &first, &within)?;
    let signal = lowering.reshape(&signal, &[batch, all, parts])?;
    let mut x = lowering.one(Gather { axis: 1 }, &[signal, places])?;
    if let Some(window) = window {
        let window = lowering.reshape(&window, &[length, 1])?;
        let window = lowering.cast(&window, lowering.data_type(&x)?)?;
        x = lowering.binary(Binary::Multiply, &x, &window)?;
    }
    Ok(vec![lowering.spectrum(operation, &x, 2, false, operation.flag("onesided", true)?)?])
}

impl Lowering<'_> {
    /// The first elements along an axis, and zeros where there are fewer.
    fn of_length(&mut self, x: &Value, axis: usize, length: usize) -> Result<Value> {
        let size = self.shape(x)?[axis];
        if size >= length { self.narrow(x, axis, 0, length) } else { self.padded(x, axis, [0, length - size], 0.0) }
    }

    /// The real numbers, as many as `length`, of which this is one side of the spectrum.
    fn signal_of(&mut self, x: &Value, axis: usize, length: Option<usize>) -> Result<Value> {
        let (mut shape, dtype) = (self.shape(x)?, self.data_type(x)?);
        let size = length.unwrap_or_else(|| 2 * shape[axis].saturating_sub(1));
        let x = self.of_length(x, axis, half(size))?;
        let wide = if dtype == DataType::F64 { x } else { self.cast(&x, DataType::F32)? };
        let ends = Ends::ToReal { size, mirrored: Mirrored::Yes };
        let scale = 1.0 / size.max(1) as f64;
        let y = self.one(Fourier { ends, axes: vec![axis as i64], direction: Direction::Inverse, scale }, &[wide])?;
        let last = shape.len() - 1;
        (shape[axis], shape[last]) = (size, 1);
        let y = self.reshape(&y, &shape)?;
        self.cast(&y, dtype)
    }

    /// Complex numbers, of real ones or of complex ones; of one side those that no other one mirrors.
    fn spectrum(
        &mut self,
        operation: &Operation,
        x: &Value,
        axis: usize,
        inverse: bool,
        one_sided: bool,
    ) -> Result<Value> {
        let (shape, dtype) = (self.shape(x)?, self.data_type(x)?);
        let size = shape[axis];
        let wide = if dtype == DataType::F64 { x.clone() } else { self.cast(x, DataType::F32)? };
        let (direction, scale) =
            if inverse { (Direction::Inverse, 1.0 / size.max(1) as f64) } else { (Direction::Forward, 1.0) };
        let keep = if one_sided { half(size) } else { size };
        let y = match shape.last() {
            Some(1) => {
                let real = self.without(&wide, &[shape.len() - 1])?;
                let ends = Ends::FromReal { keep, mirrored: Mirrored::No };
                self.one(Fourier { ends, axes: vec![axis as i64], direction, scale }, &[real])?
            }
            Some(2) => {
                let y =
                    self.one(Fourier { ends: Ends::Complex, axes: vec![axis as i64], direction, scale }, &[wide])?;
                self.narrow(&y, axis, 0, keep)?
            }
            _ => return Err(wrong(operation, format!("numbers of shape {shape:?}: the last dimension is 1 or 2"))),
        };
        self.cast(&y, dtype)
    }
}

/// `a - b cos(2 pi n / N) + c cos(4 pi n / N)`, where N is the size of a period.
fn window(lowering: &mut Lowering, operation: &Operation, [a, b, c]: [f64; 3]) -> Result<Vec<Value>> {
    let size = lowering.number_at(operation, 0)?.ok_or_else(|| wrong(operation, "no size"))?;
    let size = short(operation, size)?;
    let period = if operation.flag("periodic", true)? { size } else { size.saturating_sub(1) };
    let angle = |at: usize| 2.0 * PI * at as f64 / period.max(1) as f64;
    let numbers = (0..size).map(|at| a - b * angle(at).cos() + c * (2.0 * angle(at)).cos()).collect();
    made(lowering, operation, Array::new(&[size], numbers, DataType::F64))
}

/// Triangles at even distances on the mel scale, each a column, over the numbers of one side of a spectrum.
fn mel_weights(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let mut numbers = [0.0; 5];
    for (at, number) in numbers.iter_mut().enumerate() {
        *number =
            lowering.number_at(operation, at)?.ok_or_else(|| wrong(operation, format!("its input {at} is missing")))?;
    }
    let [columns, length, rate, low, high] = numbers;
    let (columns, rows) = (short(operation, columns)?, half(short(operation, length)?));
    short(operation, (rows * columns) as f64)?;
    let [low, high] = [low, high].map(|hertz| 2595.0 * (1.0 + hertz / 700.0).log10());
    let step = (high - low) / (columns + 2) as f64;
    let place = |at: usize| {
        let hertz = 700.0 * (10_f64.powf((low + at as f64 * step) / 2595.0) - 1.0);
        ((length + 1.0) * hertz / rate).floor() as usize
    };
    let mut weights = vec![0.0; rows * columns];
    for column in 0..columns {
        let [from, centre, to] = [place(column), place(column + 1), place(column + 2)];
        if to > rows || from > centre {
            return Err(wrong(operation, format!("frequencies up to {to} of {rows}")));
        }
        let rising = (from..=centre)
            .map(|row| (row, if from == centre { 1.0 } else { (row - from) as f64 / (centre - from) as f64 }));
        let falling = (centre..to).map(|row| (row, (to - row) as f64 / (to - centre) as f64));
        for (row, weight) in rising.chain(falling).filter(|&(row, _)| row < rows) {
            weights[row * columns + column] = weight;
        }
    }
    made(lowering, operation, Array::new(&[rows, columns], weights, DataType::F64))
}

/// Numbers of a table that is made when a model is lowered, at most.
const LONGEST: f64 = (1 << 24) as f64;

fn short(operation: &Operation, count: f64) -> Result<usize> {
    if count > LONGEST {
        return Err(wrong(operation, format!("a table of {count} numbers")));
    }
    size_of(operation, count as i64)
}

/// Numbers in the type that the operation asks for.
fn made(lowering: &mut Lowering, operation: &Operation, numbers: Array) -> Result<Vec<Value>> {
    let code = operation.integer("output_datatype", 1)?;
    let to = data_type(code).ok_or_else(|| wrong(operation, format!("the element type of number {code}")))?;
    Ok(vec![lowering.cast(&Value::Known(numbers), to)?])
}
