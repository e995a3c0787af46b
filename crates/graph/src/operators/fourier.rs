//! Fourier transforms along any axes. A complex number is two real ones in a last dimension of 2.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{Dense, axis_of, call, check_dense, expect_dtype, expect_inputs, fill_view, lines};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::{Array, for_each_index, sum};
use crate::view::{Shape, View};
pub use openmps_host::native::fourier::{Direction, Mirrored};
use openmps_host::native::fourier::{Real, complex, from_real, to_real};
use openmps_tile::{DType, Number};

/// At which end of a transform the numbers are real; what is said of numbers left out is of the last of the axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// At neither.
    Complex,
    /// The input. `keep` numbers of the result are wanted; where they are mirrored, those that stand for two are doubled.
    FromReal {
        /// How many.
        keep: usize,
        /// What they stand for.
        mirrored: Mirrored,
    },
    /// The result, of `size` numbers, of which the real parts are wanted. Numbers that the input lacks are mirrored from the others, or zero.
    ToReal {
        /// How many.
        size: usize,
        /// What the input's numbers stand for.
        mirrored: Mirrored,
    },
}

/// The sums of `x[j] e^(-+2 pi i j k / n)` times `scale`.
///
/// Those of real numbers are gradients of each other: of [`Ends::FromReal`] with [`Ends::ToReal`] of the opposite direction.
#[derive(Clone, Debug)]
pub struct Fourier {
    /// Where the numbers are real.
    pub ends: Ends,
    /// Along which axes, each of them once.
    pub axes: Vec<i64>,
    /// The exponent's sign.
    pub direction: Direction,
    /// The factor of every sum.
    pub scale: f64,
}

const TYPES: &[DType] = &[DType::F32, DType::F64];

impl Fourier {
    /// The axes, checked against the rank; the last one last.
    fn checked_axes(&self, rank: usize) -> Result<Vec<usize>> {
        let axes = self.axes.iter().map(|&axis| axis_of(self.name(), axis, rank)).collect::<Result<Vec<_>>>()?;
        let has_twice = (1..axes.len()).any(|i| axes[..i].contains(&axes[i]));
        if axes.is_empty() || has_twice {
            let (got, expected) = (format!("{:?}", self.axes), "at least one axis, and none of them twice".to_owned());
            return Err(Error::Attribute { operator: self.name(), attribute: "axes", got, expected });
        }
        Ok(axes)
    }

    /// The input's dimensions but for the pairs, and the axes.
    fn dims(&self, x: &Meta) -> Result<(Shape, Vec<usize>)> {
        let mut dims = x.shape.clone();
        if !matches!(self.ends, Ends::FromReal { .. }) && dims.pop() != Some(2) {
            let expected = "a last dimension of 2".to_owned();
            return Err(Error::Shape { operator: self.name(), what: "input", got: x.shape.clone(), expected });
        }
        let axes = self.checked_axes(dims.len())?;
        Ok((dims, axes))
    }

    /// How many numbers each end has along the last axis, checked.
    fn last(&self, given: usize) -> Result<usize> {
        let wrong = |attribute, got: usize, expected: String| {
            Err(Error::Attribute { operator: self.name(), attribute, got: got.to_string(), expected })
        };
        match self.ends {
            Ends::Complex => Ok(given),
            Ends::FromReal { keep, mirrored: Mirrored::No } if keep > given => {
                wrong("keep", keep, format!("at most {given}"))
            }
            Ends::FromReal { keep, mirrored: Mirrored::Yes } if keep != half(given) => {
                wrong("keep", keep, format!("{} of {given}", half(given)))
            }
            Ends::ToReal { size, mirrored: Mirrored::No } if size < given => {
                wrong("size", size, format!("at least {given}"))
            }
            Ends::ToReal { size, mirrored: Mirrored::Yes } if given != half(size) => {
                wrong("size", size, format!("one of which half and one more is {given}, the size of the last axis"))
            }
            Ends::FromReal { keep: last, .. } | Ends::ToReal { size: last, .. } => Ok(last),
        }
    }

    /// # Safety
    /// `x` and `out` are dense tensors of `T` as [`Fourier::dims`] and `infer` have them.
    unsafe fn compute<T: Real>(&self, x: usize, out: usize, dims: &[usize], axes: &[usize], result: &[usize]) {
        let Some((&last, first)) = axes.split_last() else { return };
        let along = |address: usize, dims: &[usize], axes: &[usize]| {
            for &axis in axes {
                // SAFETY: promised by the caller, or `Vec`'s memory.
                unsafe { complex::<T>(address, lines(dims, axis), self.direction, 1.0) };
            }
        };
        let count: usize = dims.iter().product();
        match self.ends {
            Ends::Complex => {
                // SAFETY: both are dense and of as many numbers.
                unsafe { std::ptr::copy_nonoverlapping(x as *const [T; 2], out as *mut [T; 2], count) };
                along(out, dims, first);
                // SAFETY: as above.
                unsafe { complex::<T>(out, lines(dims, last), self.direction, self.scale) };
            }
            Ends::FromReal { keep, mirrored } => {
                // SAFETY: promised by the caller; `last` has checked `keep`.
                unsafe { from_real::<T>((x, out), lines(dims, last), keep, mirrored, self.direction, self.scale) };
                along(out, result, first);
            }
            Ends::ToReal { mirrored, .. } => {
                // SAFETY: promised by the caller.
                let mut copy = unsafe { std::slice::from_raw_parts(x as *const [T; 2], count) }.to_vec();
                let copy = copy.as_mut_ptr() as usize;
                along(copy, dims, first);
                // SAFETY: the copy is of these dimensions and lives until the end of this block; `last` has checked the sizes.
                unsafe {
                    let numbers = (copy, out);
                    to_real::<T>(numbers, lines(result, last), dims[last], mirrored, self.direction, self.scale);
                };
            }
        }
    }
}

/// How many of a line's numbers are no mirror images of others.
pub fn half(size: usize) -> usize {
    size / 2 + 1
}

impl Operator for Fourier {
    fn name(&self) -> &'static str {
        match self.ends {
            Ends::Complex => "fourier",
            Ends::FromReal { .. } => "fourier_from_real",
            Ends::ToReal { .. } => "fourier_to_real",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        expect_dtype(self.name(), "input", inputs[0].dtype, TYPES)?;
        let (mut shape, axes) = self.dims(&inputs[0])?;
        if let Some(&last) = axes.last() {
            shape[last] = self.last(shape[last])?;
        }
        if !matches!(self.ends, Ends::ToReal { .. }) {
            shape.try_push(2).map_err(|_| Error::Rank(inputs[0].shape.len() + 1))?;
        }
        Ok(vec![Meta { dtype: inputs[0].dtype, shape }])
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check_dense(self, inputs, outputs)?;
        let (x, out) = (&inputs[0], &outputs[0]);
        let (dims, axes) = self.dims(&Meta { dtype: x.dtype, shape: x.shape.clone() })?;
        let result = if matches!(self.ends, Ends::ToReal { .. }) { out.rank() } else { out.rank() - 1 };
        call(queue, self.name(), || {
            if x.is_empty() {
                // The transform of nothing is nothing but its zeros.
                fill_view(out, Number::Integer(0));
                return Ok(());
            }
            if out.is_empty() {
                return Ok(());
            }
            let dense = Dense::of(x);
            let result = &out.shape[..result];
            // SAFETY: dense tensors of the checked shapes, of this type.
            unsafe {
                match x.dtype {
                    DType::F64 => self.compute::<f64>(dense.address, out.address, &dims, &axes, result),
                    _ => self.compute::<f32>(dense.address, out.address, &dims, &axes, result),
                }
            }
            Ok(())
        })
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let (shape, dy) = (b.shape(b.inputs[0]), b.dy()?);
        let (dims, axes) = self.dims(&Meta { dtype: DType::F32, shape: shape.clone() })?;
        let given = axes.last().map_or(0, |&last| dims[last]);
        Ok(vec![Some(b.one(self.adjoint(given), &[dy])?)])
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let meta = Meta { dtype: x.dtype, shape: x.shape.clone() };
        let out = self.infer(std::slice::from_ref(&meta)).expect("checked by the caller").remove(0);
        let (dims, axes) = self.dims(&meta).expect("checked by the caller");
        vec![Array::from_fn(&out.shape, x.dtype, |index| self.sum_at(x, &dims, &axes, index))]
    }

    fn arithmetic(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let count = inputs.iter().chain(outputs).map(Meta::count).max().unwrap_or(0);
        5 * count * u64::from(count.max(2).ilog2())
    }
}

impl Fourier {
    /// The transform backwards: for real and imaginary parts as so many real numbers, the transposed matrix. `given` is the input's size along
    /// the last axis.
    pub fn adjoint(&self, given: usize) -> Fourier {
        let ends = match self.ends {
            Ends::Complex => Ends::Complex,
            Ends::FromReal { mirrored, .. } => Ends::ToReal { size: given, mirrored },
            Ends::ToReal { mirrored, .. } => Ends::FromReal { keep: given, mirrored },
        };
        Fourier { ends, axes: self.axes.clone(), direction: self.direction.opposite(), scale: self.scale }
    }

    /// One number of the result by its definition.
    fn sum_at(&self, x: &Array, dims: &[usize], axes: &[usize], index: &[usize]) -> f64 {
        let last = axes[axes.len() - 1];
        let sign = if self.direction == Direction::Forward { -1.0 } else { 1.0 };
        let mut whole = dims.to_vec();
        if let Ends::ToReal { size, .. } = self.ends {
            whole[last] = size;
        }
        let (part, at) = match self.ends {
            Ends::ToReal { .. } => (0, index),
            _ => (index[index.len() - 1], &index[..index.len() - 1]),
        };
        let number = |place: &[usize]| -> [f64; 2] {
            let pair = |place: &[usize]| [0, 1].map(|part| x.at(&[place, &[part]].concat()));
            match self.ends {
                Ends::FromReal { .. } => [x.at(place), 0.0],
                Ends::ToReal { mirrored: Mirrored::No, .. } if place[last] >= dims[last] => [0.0, 0.0],
                Ends::ToReal { size, .. } if place[last] >= dims[last] => {
                    let mut mirror = place.to_vec();
                    mirror[last] = size - place[last];
                    // Transforms along the other axes come first, of the number itself.
                    let [re, im] = pair(&mirror);
                    [re, -im]
                }
                _ => pair(place),
            }
        };
        let is_mirrored = |place: &[usize]| matches!(self.ends, Ends::ToReal { .. }) && place[last] >= dims[last];
        let mut along: Vec<usize> =
            dims.iter().enumerate().map(|(axis, _)| if axes.contains(&axis) { whole[axis] } else { 1 }).collect();
        if along.is_empty() {
            along.push(1);
        }
        let mut terms = Vec::new();
        for_each_index(&along, |step| {
            let place: Vec<usize> =
                (0..dims.len()).map(|axis| if axes.contains(&axis) { step[axis] } else { at[axis] }).collect();
            let turns: f64 = axes
                .iter()
                .map(|&axis| {
                    let turn = (step[axis] * at[axis] % whole[axis]) as f64 / whole[axis] as f64;
                    // A conjugate is that of the sum along the other axes.
                    if axis != last && is_mirrored(&place) { -turn } else { turn }
                })
                .sum();
            let (sine, cosine) = (sign * std::f64::consts::TAU * turns).sin_cos();
            let [re, im] = number(&place);
            terms.push(if part == 0 { re * cosine - im * sine } else { re * sine + im * cosine });
        });
        let twice = match self.ends {
            Ends::FromReal { keep, mirrored: Mirrored::Yes } => (1..=dims[last] - keep).contains(&at[last]),
            _ => false,
        };
        sum(terms) * self.scale * if twice { 2.0 } else { 1.0 }
    }
}

fn case(ends: Ends, axes: &[i64], dims: &[usize]) -> Case {
    let direction = if axes.len() == 2 { Direction::Inverse } else { Direction::Forward };
    Case::new(Fourier { ends, axes: axes.to_vec(), direction, scale: 0.5 }, vec![Input::new(dims)])
}

fn complexes() -> Vec<Case> {
    let shapes: [(&[i64], &[usize]); 7] = [
        (&[0], &[8, 2]),
        (&[0], &[1, 2]),
        (&[1], &[3, 7, 2]),
        (&[0, 2], &[4, 3, 10, 2]),
        (&[-1, 0, 1], &[3, 5, 6, 2]),
        (&[0], &[11, 2, 2]),
        (&[1], &[0, 3, 2]),
    ];
    shapes.into_iter().map(|(axes, dims)| case(Ends::Complex, axes, dims)).collect()
}

fn from_reals() -> Vec<Case> {
    let shapes: [(&[i64], &[usize], usize); 5] =
        [(&[0], &[8], 8), (&[0, 1], &[3, 7], 7), (&[1, 0], &[9, 3, 2], 9), (&[-1], &[2, 13], 13), (&[0], &[1], 1)];
    let of = |mirrored| {
        shapes
            .into_iter()
            .map(move |(axes, dims, size)| case(Ends::FromReal { keep: half(size), mirrored }, axes, dims))
    };
    let whole = case(Ends::FromReal { keep: 6, mirrored: Mirrored::No }, &[1], &[2, 6]);
    of(Mirrored::No).chain(of(Mirrored::Yes)).chain([whole]).collect()
}

fn to_reals() -> Vec<Case> {
    let shapes: [(&[i64], &[usize], usize); 5] = [
        (&[0], &[5, 2], 8),
        (&[0, 1], &[3, 4, 2], 7),
        (&[1, 0], &[5, 3, 2, 2], 9),
        (&[-1], &[2, 7, 2], 13),
        (&[0], &[1, 2], 1),
    ];
    let of =
        |mirrored| shapes.into_iter().map(move |(axes, dims, size)| case(Ends::ToReal { size, mirrored }, axes, dims));
    of(Mirrored::No).chain(of(Mirrored::Yes)).collect()
}

macro_rules! entries {
    ($($entry:ident: $name:literal, $summary:literal, $cases:expr;)*) => {
        $(
            /// For the list of operators.
            pub static $entry: Entry = Entry { name: $name, summary: $summary, dtypes: TYPES, cases: $cases, tolerance: 16.0 };
        )*
        /// All of them.
        pub static ENTRIES: &[&Entry] = &[$(&$entry,)*];
    };
}

entries! {
    COMPLEX: "fourier", "Fourier transforms of complex numbers, which are pairs in a last dimension of 2.", complexes;
    FROM_REAL: "fourier_from_real", "Fourier transforms of real numbers; of the last axis the first half, or all.", from_reals;
    TO_REAL: "fourier_to_real", "Fourier transforms with real results, of half of the numbers along the last axis.", to_reals;
}
