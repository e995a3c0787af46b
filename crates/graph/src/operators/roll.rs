//! Axes turned around: elements pushed out at the end come in at the start.

use crate::entry::{Case, Entry, Input};
use crate::error::{Error, Result};
use crate::gradient::{Backward, Gradients};
use crate::layout::{axis_of, check, expect_inputs};
use crate::movement::{self, Mover};
use crate::operator::{Meta, Operator};
use crate::operators::words::Words;
use crate::queue::Queue;
use crate::reference::Array;
use crate::view::View;
use openmps_tile::dtype;

/// Moves every element by `shifts[i]` along `axes[i]`.
#[derive(Clone, Debug)]
pub struct Roll {
    /// How far; negative towards the start.
    pub shifts: Vec<i64>,
    /// Along which axes. None and one shift: over the flattened tensor, which must then be of one axis here.
    pub axes: Vec<i64>,
}

impl Roll {
    /// For each axis how many elements of the end come first.
    fn turns(&self, shape: &[usize]) -> Result<Vec<usize>> {
        if self.shifts.len() != self.axes.len() {
            let (got, expected) = (format!("{:?}", self.shifts), format!("one for each of the axes {:?}", self.axes));
            return Err(Error::Attribute { operator: self.name(), attribute: "shifts", got, expected });
        }
        let mut turns = vec![0; shape.len()];
        for (&shift, &axis) in self.shifts.iter().zip(&self.axes) {
            let axis = axis_of(self.name(), axis, shape.len())?;
            let size = shape[axis].max(1);
            turns[axis] = (turns[axis] + shift.rem_euclid(size as i64) as usize) % size;
        }
        Ok(turns)
    }
}

/// Copies each of the blocks that the turned axes are cut into.
fn copy_blocks(mover: &Mover, from: &View, to: &View, turns: &[usize], axis: usize) -> Result<()> {
    if axis == turns.len() {
        return mover.copy(from, to);
    }
    let (turn, size) = (turns[axis], from.shape[axis]);
    if turn == 0 {
        return copy_blocks(mover, from, to, turns, axis + 1);
    }
    let block = |start_from, start_to, count| {
        let (from, to) = (from.narrowed(axis, start_from, 1, count), to.narrowed(axis, start_to, 1, count));
        copy_blocks(mover, &from, &to, turns, axis + 1)
    };
    block(size - turn, 0, turn)?;
    block(0, turn, size - turn)
}

impl Operator for Roll {
    fn name(&self) -> &'static str {
        "roll"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>> {
        expect_inputs(self.name(), inputs, 1)?;
        self.turns(&inputs[0].shape)?;
        Ok(inputs.to_vec())
    }

    fn run(&self, queue: &Queue, inputs: &[View], outputs: &[View]) -> Result<()> {
        check(self, inputs, outputs)?;
        let turns = self.turns(&inputs[0].shape)?;
        if inputs[0].is_empty() {
            return Ok(());
        }
        movement::run(queue, self.name(), |mover| copy_blocks(mover, &inputs[0], &outputs[0], &turns, 0))
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Gradients> {
        let dy = b.dy()?;
        let back = Roll { shifts: self.shifts.iter().map(|shift| -shift).collect(), axes: self.axes.clone() };
        Ok(vec![Some(b.one(back, &[dy])?)])
    }

    fn moves(&self) -> bool {
        true
    }

    fn reference(&self, inputs: &[Array]) -> Vec<Array> {
        let x = &inputs[0];
        let turns = self.turns(&x.shape).expect("checked by infer");
        vec![Array::from_fn(&x.shape, x.dtype, |index| {
            let from = index.iter().zip(&turns).zip(&x.shape).map(|((&i, &turn), &size)| (i + size - turn) % size);
            x.at(&from.collect::<Vec<usize>>())
        })]
    }
}

/// For the list of operators.
pub static ENTRY: Entry = Entry {
    name: "roll",
    summary: "Axes turned around by a number of elements.",
    dtypes: dtype::EVERY,
    cases: || {
        let case = |shifts: &[i64], axes: &[i64], dims: &[usize]| {
            Case::new(Roll { shifts: shifts.to_vec(), axes: axes.to_vec() }, vec![Input::new(dims)])
        };
        vec![
            case(&[2], &[0], &[7]),
            case(&[-9], &[0], &[7]),
            case(&[1, -2], &[0, -1], &[3, 5]),
            case(&[3, 3], &[1, 1], &[2, 5, 3]),
            case(&[1], &[0], &[0, 2]),
        ]
    },
    tolerance: 0.0,
};
