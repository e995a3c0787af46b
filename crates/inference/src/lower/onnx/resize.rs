//! Resizing along any axes: where openmps's operator for images means the same pixels, it is taken; else each axis is a weighted sum of slices
//! whose places and weights follow from the sizes.

use crate::error::Result;
use crate::lower::{Lowering, Table, Value, axes_of, sizes_of, wrong};
use crate::program::Operation;
use openmps::DataType;
use openmps::operators::Array;
use openmps::operators::image::ImageLayout;
use openmps::operators::operators::elementwise::Binary;
use openmps::operators::operators::gather::Gather;
use openmps::operators::operators::interpolation::{Interpolation, InterpolationMode};

pub(super) const TABLE: Table = &[("Resize", resize), ("Upsample", resize)];

/// How a pixel is made of its neighbours.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest(Nearest),
    Linear,
    Cubic { a: f64 },
}

/// Which neighbour is the nearest.
#[derive(Clone, Copy, PartialEq)]
enum Nearest {
    Floor,
    Ceil,
    HalfDown,
    HalfUp,
}

/// Where a pixel of the output lies in the input.
#[derive(Clone, Copy, PartialEq)]
enum Coordinates {
    HalfPixel,
    PytorchHalfPixel,
    HalfPixelSymmetric,
    AlignCorners,
    Asymmetric,
}

/// What an operation asks for.
struct Resizing {
    mode: Mode,
    coordinates: Coordinates,
    /// Only neighbours within the image count.
    excludes_outside: bool,
    /// Smaller images are made of all pixels that one covers.
    smooths: bool,
}

/// One axis: its sizes, and the output's over the input's as it was given or follows.
#[derive(Clone, Copy, Debug)]
struct Axis {
    input: usize,
    output: usize,
    scale: f64,
}

/// Elements along a resized axis at most.
const LONGEST_SIDE: usize = 1 << 24;

impl Resizing {
    fn of(operation: &Operation, opset: i64) -> Result<Resizing> {
        let old = operation.name == "Upsample" || opset < 11;
        let unknown = |what: &str, word: &str| wrong(operation, format!("{what} {word:?}"));
        let coordinates =
            match operation.text("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" })? {
                "half_pixel" => Coordinates::HalfPixel,
                "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
                "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
                "align_corners" => Coordinates::AlignCorners,
                "asymmetric" => Coordinates::Asymmetric,
                other => return Err(unknown("coordinates by", other)),
            };
        let nearest = match operation.text("nearest_mode", if old { "floor" } else { "round_prefer_floor" })? {
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            "round_prefer_floor" => Nearest::HalfDown,
            "round_prefer_ceil" => Nearest::HalfUp,
            other => return Err(unknown("the nearest by", other)),
        };
        let mode = match operation.text("mode", "nearest")? {
            "nearest" => Mode::Nearest(nearest),
            "linear" | "bilinear" => Mode::Linear,
            "cubic" => Mode::Cubic { a: operation.float("cubic_coeff_a", -0.75)? },
            other => return Err(unknown("the mode", other)),
        };
        Ok(Resizing {
            mode,
            coordinates,
            excludes_outside: operation.flag("exclude_outside", false)?,
            smooths: operation.flag("antialias", false)?,
        })
    }

    fn place(&self, axis: Axis, at: usize) -> f64 {
        let (at, input, output) = (at as f64, axis.input as f64, axis.output as f64);
        let half = (at + 0.5) / axis.scale - 0.5;
        match self.coordinates {
            Coordinates::HalfPixel => half,
            Coordinates::PytorchHalfPixel if axis.output > 1 => half,
            Coordinates::PytorchHalfPixel => 0.0,
            Coordinates::HalfPixelSymmetric => input / 2.0 * (1.0 - output / (axis.scale * input)) + half,
            // The last pixel's place follows from the length before it was rounded.
            Coordinates::AlignCorners if axis.scale * input != 1.0 => at * (input - 1.0) / (axis.scale * input - 1.0),
            Coordinates::AlignCorners => 0.0,
            Coordinates::Asymmetric => at / axis.scale,
        }
    }

    /// The neighbours that a pixel is made of, with their weights.
    fn taps(&self, axis: Axis, at: usize) -> Vec<(usize, f64)> {
        let place = self.place(axis, at);
        let low = place.floor();
        // Smaller images stretch the weights over as many pixels as one covers.
        let stretch = if self.smooths { axis.scale.min(1.0) } else { 1.0 };
        let (reach, weight): (f64, &dyn Fn(f64) -> f64) = match self.mode {
            Mode::Nearest(nearest) => {
                let near = match nearest {
                    Nearest::Floor => low,
                    Nearest::Ceil => place.ceil(),
                    Nearest::HalfDown => (place - 0.5).ceil(),
                    Nearest::HalfUp => (place + 0.5).floor(),
                };
                return vec![(near.clamp(0.0, axis.input as f64 - 1.0) as usize, 1.0)];
            }
            Mode::Linear => (1.0, &|x| (1.0 - x).max(0.0)),
            Mode::Cubic { a } => (2.0, &move |x| cubic(a, x)),
        };
        let first = (-reach / stretch).floor() + 1.0;
        let count = 2 * (1.0 - first) as usize;
        let mut taps = Vec::with_capacity(count);
        for tap in 0..count {
            let own = low + first + tap as f64;
            let inside = (0.0..axis.input as f64).contains(&own);
            let weight = weight(((own - place) * stretch).abs());
            let weight = if self.excludes_outside && !inside { 0.0 } else { weight };
            taps.push((own.clamp(0.0, axis.input as f64 - 1.0) as usize, weight));
        }
        if self.smooths || self.excludes_outside {
            let sum: f64 = taps.iter().map(|tap| tap.1).sum();
            taps.iter_mut().for_each(|tap| tap.1 /= sum);
        }
        taps
    }

    /// The operator for images that means the same, where there is one.
    fn as_interpolation(&self, axes: [Axis; 2], by_scales: bool) -> Option<Interpolation> {
        let is_centred = matches!(self.coordinates, Coordinates::HalfPixel | Coordinates::PytorchHalfPixel);
        if self.excludes_outside || self.smooths {
            return None;
        }
        let (mode, align_mode) = match (self.mode, self.coordinates) {
            // A whole number of copies of each pixel.
            (Mode::Nearest(Nearest::HalfDown | Nearest::HalfUp), _) if is_centred && axes.iter().all(Axis::repeats) => {
                (InterpolationMode::Nearest, 1)
            }
            (Mode::Nearest(Nearest::Floor), Coordinates::Asymmetric) if axes.iter().all(Axis::repeats) => {
                (InterpolationMode::Nearest, 1)
            }
            (Mode::Linear, Coordinates::AlignCorners) if axes.iter().all(Axis::is_whole) => {
                (InterpolationMode::Bilinear, 1)
            }
            (Mode::Linear, Coordinates::Asymmetric) => (InterpolationMode::Bilinear, 1),
            (Mode::Linear, _) if is_centred && axes.iter().all(|axis| axis.output > 1) => {
                (InterpolationMode::Bilinear, 0)
            }
            _ => return None,
        };
        Some(Interpolation {
            mode,
            size: axes.map(|axis| axis.output),
            scale: if by_scales { axes.map(|axis| axis.scale as f32) } else { [0.0; 2] },
            align_corners: self.coordinates == Coordinates::AlignCorners,
            align_mode,
            layout: ImageLayout::Nchw,
        })
    }
}

impl Axis {
    fn repeats(&self) -> bool {
        self.scale.fract() == 0.0 && self.is_whole()
    }

    /// Whether the scale leads to the output's length without rounding, but that of the scale itself.
    fn is_whole(&self) -> bool {
        (self.output as f64 - self.input as f64 * self.scale).abs() < 1e-6
    }

    fn stays(&self) -> bool {
        self.input == self.output && self.scale == 1.0
    }
}

/// Keys's polynomial at a distance.
fn cubic(a: f64, x: f64) -> f64 {
    match x {
        ..=1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        ..2.0 => a * (((x - 5.0) * x + 8.0) * x - 4.0),
        _ => 0.0,
    }
}

/// The axes with their sizes, and whether these follow from scales.
fn axes(lowering: &mut Lowering, operation: &Operation, shape: &[usize]) -> Result<(Vec<Axis>, bool)> {
    let (scales_at, sizes_at) = if operation.name == "Upsample" || lowering.opset() < 11 { (1, 3) } else { (2, 3) };
    let named = operation.integers("axes")?.unwrap_or_else(|| (0..shape.len() as i64).collect());
    let named = axes_of(operation, Some(named), shape.len())?;
    let scales = match lowering.optional(operation, scales_at)? {
        Some(scales) => lowering.known(&scales)?.data,
        None => operation.floats("scales")?.unwrap_or_default(),
    };
    let sizes = lowering.integers(operation, sizes_at, "")?.unwrap_or_default();
    let given = if scales.is_empty() { sizes.len() } else { scales.len() };
    if given != named.len() {
        return Err(wrong(operation, format!("{given} scales or sizes of {} axes", named.len())));
    }
    let mut axes: Vec<Axis> = shape.iter().map(|&size| Axis { input: size, output: size, scale: 1.0 }).collect();
    if !scales.is_empty() {
        for (&axis, &scale) in named.iter().zip(&scales) {
            if !(scale.is_finite() && scale > 0.0) {
                return Err(wrong(operation, format!("a scale of {scale}")));
            }
            axes[axis] = Axis { output: (shape[axis] as f64 * scale).floor() as usize, scale, ..axes[axis] };
        }
        return Ok((axes, true));
    }
    let sizes = sizes_of(operation, sizes)?;
    let scales = named.iter().zip(&sizes).map(|(&axis, &size)| size as f64 / shape[axis] as f64);
    // Images that keep their form fit within the sizes, or cover them.
    let common = match operation.text("keep_aspect_ratio_policy", "stretch")? {
        "not_larger" => Some(scales.fold(f64::INFINITY, f64::min)),
        "not_smaller" => Some(scales.fold(0.0, f64::max)),
        _ => None,
    };
    for (&axis, &size) in named.iter().zip(&sizes) {
        let output = common.map_or(size, |scale| (scale * shape[axis] as f64).round() as usize);
        axes[axis] = Axis { output, scale: common.unwrap_or(size as f64 / shape[axis] as f64), ..axes[axis] };
    }
    Ok((axes, false))
}

fn resize(lowering: &mut Lowering, operation: &Operation) -> Result<Vec<Value>> {
    let x = lowering.input(operation, 0)?;
    let shape = lowering.shape(&x)?;
    let (axes, by_scales) = axes(lowering, operation, &shape)?;
    if let Some(axis) = axes.iter().find(|axis| (axis.input == 0 && axis.output > 0) || axis.output > LONGEST_SIDE) {
        return Err(wrong(operation, format!("{} elements along an axis of {}", axis.output, axis.input)));
    }
    let resizing = Resizing::of(operation, lowering.opset())?;
    if let [batch, channels, height, width] = axes[..]
        && batch.stays()
        && channels.stays()
        && lowering.data_type(&x)?.is_float()
        && let Some(of) = resizing.as_interpolation([height, width], by_scales)
    {
        return Ok(vec![lowering.one(of, &[x])?]);
    }
    let dtype = lowering.data_type(&x)?;
    let is_copied = matches!(resizing.mode, Mode::Nearest(_));
    let mut y = if is_copied { x } else { lowering.cast(&x, DataType::F32)? };
    for (at, axis) in axes.iter().enumerate().filter(|(_, axis)| !axis.stays()) {
        y = lowering.resized(&y, at, *axis, &resizing)?;
    }
    Ok(vec![lowering.cast(&y, dtype)?])
}

impl Lowering<'_> {
    fn resized(&mut self, x: &Value, at: usize, axis: Axis, resizing: &Resizing) -> Result<Value> {
        let taps: Vec<Vec<(usize, f64)>> = (0..axis.output).map(|place| resizing.taps(axis, place)).collect();
        let along = super::along(self.shape(x)?.len(), at, axis.output);
        let mut sum: Option<Value> = None;
        for tap in 0..taps.first().map_or(1, Vec::len) {
            let places = super::integers(taps.iter().map(|taps| taps[tap].0 as i64));
            let mut slices = self.one(Gather { axis: at as i64 }, &[x.clone(), places])?;
            if !matches!(resizing.mode, Mode::Nearest(_)) {
                let weights = taps.iter().map(|taps| taps[tap].1).collect();
                let weights = Value::Known(Array::new(&along, weights, DataType::F32));
                slices = self.binary(Binary::Multiply, &slices, &weights)?;
            }
            sum = Some(self.added(sum, slices)?);
        }
        Ok(sum.unwrap_or_else(|| x.clone()))
    }
}
