//! Walks over tensors: strides, broadcasting, lines along axes.

use super::Tensor;

/// How many elements there are.
pub fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The outer axes, and the lengths of the two innermost.
pub fn split(shape: &[usize]) -> (&[usize], [usize; 2]) {
    let (outer, inner) = shape.split_at(shape.len() - 2);
    (outer, [inner[0], inner[1]])
}

/// Row-major strides.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|axis| count(&shape[axis + 1..])).collect()
}

/// The strides with which a tensor of shape `own` is read as one of shape `to`; `unit` elements make one.
pub fn stretched_strides(own: &[usize], to: &[usize], unit: usize) -> Vec<usize> {
    let (missing, strides) = (to.len() - own.len(), strides(own));
    let step = |axis: usize| match axis.checked_sub(missing) {
        Some(axis) if own[axis] != 1 => strides[axis] * unit,
        _ => 0,
    };
    (0..to.len()).map(step).collect()
}

/// The places of a shape's elements, in row-major order, for given strides.
pub struct Walk<'a> {
    shape: &'a [usize],
    strides: &'a [usize],
    next: usize,
    count: usize,
}

impl<'a> Walk<'a> {
    pub fn new(shape: &'a [usize], strides: &'a [usize]) -> Walk<'a> {
        Walk { shape, strides, next: 0, count: count(shape) }
    }
}

impl Iterator for Walk<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.next == self.count {
            return None;
        }
        let (mut rest, mut place) = (self.next, 0);
        for (length, stride) in self.shape.iter().zip(self.strides).rev() {
            place += rest % length * stride;
            rest /= length;
        }
        self.next += 1;
        Some(place)
    }
}

impl Tensor {
    /// The elements as those of a larger shape.
    pub fn stretched(&self, shape: &[usize]) -> Vec<f64> {
        if self.of.shape == shape {
            return self.data.clone();
        }
        Walk::new(shape, &stretched_strides(&self.of.shape, shape, 1)).map(|place| self.data[place]).collect()
    }

    /// One value for the elements along some axes.
    pub fn along(&self, axes: &[usize], of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let shape = &self.of.shape;
        let strides = strides(shape);
        let part = |inside: bool| -> (Vec<usize>, Vec<usize>) {
            (0..shape.len())
                .filter(|axis| axes.contains(axis) == inside)
                .map(|axis| (shape[axis], strides[axis]))
                .unzip()
        };
        let ((kept, kept_strides), (gone, gone_strides)) = (part(false), part(true));
        let one = |start: usize| {
            let values: Vec<f64> = Walk::new(&gone, &gone_strides).map(|place| self.data[start + place]).collect();
            of(&values)
        };
        Walk::new(&kept, &kept_strides).map(one).collect()
    }

    /// Each line along an axis replaced by another of the same length.
    pub fn lines(&self, axis: usize, of: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
        let (length, inner) = (self.of.shape[axis], count(&self.of.shape[axis + 1..]));
        let mut data = self.data.clone();
        for start in (0..data.len() / length).map(|line| line / inner * length * inner + line % inner) {
            let line: Vec<f64> = (0..length).map(|i| data[start + i * inner]).collect();
            of(&line).into_iter().enumerate().for_each(|(i, value)| data[start + i * inner] = value);
        }
        data
    }
}
