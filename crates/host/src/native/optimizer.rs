//! Steps of optimizers on float32: one pass, in which every state is read and written once.

use super::epilogue::Single;
use super::lanes::{Arithmetic, Lanes, at_level};
use crate::threads::parallel_for;

/// A step with momentum, without it where `mu` is 0.
#[derive(Clone, Copy, Debug)]
pub struct Momentum {
    /// The learning rate.
    pub rate: f32,
    /// How much of the velocity is kept.
    pub mu: f32,
    /// Whether the gradient is taken where the velocity leads.
    pub nesterov: bool,
    /// The gradient's factor.
    pub rescale: f32,
    /// How much of the value is added to the gradient.
    pub decay: f32,
}

/// A step of Adam or AdamW whose rate and floor are corrected for the first steps.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// The corrected learning rate.
    pub rate: f32,
    /// What is added to the root.
    pub floor: f32,
    /// How much of the moments is kept.
    pub betas: [f32; 2],
    /// The value's factor before the step.
    pub keep: f32,
}

/// The addresses of a state and of what it is next, which may be the same.
pub type State = [usize; 2];

/// Takes a step of `count` values with their velocities.
///
/// # Safety
/// `count` float32 at every address, writable at the second of each pair; pairs and the gradient do not overlap each other, but a pair's
/// addresses may be the same.
pub unsafe fn momentum(step: &Momentum, count: usize, gradient: usize, value: State, velocity: State) {
    let step = *step;
    parallel_for(count.div_ceil(PIECE), PIECE / 5, |from, to| {
        let (from, to) = (from * PIECE, (to * PIECE).min(count));
        // SAFETY: the caller's promise; these elements are this task's.
        unsafe {
            at_level!(momentum_of(step: Momentum, from: usize, to: usize, gradient: usize, value: State, velocity: State))
        }
    });
}

/// Takes a step of `count` values with their moments.
///
/// # Safety
/// As [`momentum`].
pub unsafe fn adam(step: &Adam, count: usize, gradient: usize, value: State, moments: [State; 2]) {
    let step = *step;
    parallel_for(count.div_ceil(PIECE), PIECE / 3, |from, to| {
        let (from, to) = (from * PIECE, (to * PIECE).min(count));
        // SAFETY: the caller's promise; these elements are this task's.
        unsafe {
            at_level!(adam_of(step: Adam, from: usize, to: usize, gradient: usize, value: State, moments: [State; 2]))
        }
    });
}

/// Elements of a task's share.
const PIECE: usize = 1024;

#[inline(always)]
unsafe fn load<V: Arithmetic>(address: usize, at: usize) -> V {
    // SAFETY: the caller vouches for V::N elements.
    unsafe { V::load((address as *const f32).add(at)) }
}

#[inline(always)]
unsafe fn store<V: Arithmetic>(value: V, address: usize, at: usize) {
    // SAFETY: as above.
    unsafe { value.store((address as *mut f32).add(at)) }
}

#[inline(always)]
unsafe fn momentum_of<V: Lanes>(
    step: Momentum,
    from: usize,
    to: usize,
    gradient: usize,
    value: State,
    velocity: State,
) {
    let whole = from + (to - from) / V::N * V::N;
    // SAFETY: passed on to the caller.
    unsafe {
        for at in (from..whole).step_by(V::N) {
            momentum_at::<V>(&step, at, gradient, value, velocity);
        }
        for at in whole..to {
            momentum_at::<Single>(&step, at, gradient, value, velocity);
        }
    }
}

#[inline(always)]
unsafe fn momentum_at<V: Arithmetic>(step: &Momentum, at: usize, gradient: usize, value: State, velocity: State) {
    // SAFETY: passed on to the caller.
    unsafe {
        let (mu, rate) = (V::splat(step.mu), V::splat(step.rate));
        let p = load::<V>(value[0], at);
        let g = load::<V>(gradient, at).mul(V::splat(step.rescale)).add(p.mul(V::splat(step.decay)));
        let v = load::<V>(velocity[0], at).mul(mu).add(g);
        let change = if step.nesterov { g.add(v.mul(mu)) } else { v };
        store(v, velocity[1], at);
        store(p.sub(rate.mul(change)), value[1], at);
    }
}

#[inline(always)]
unsafe fn adam_of<V: Lanes>(step: Adam, from: usize, to: usize, gradient: usize, value: State, moments: [State; 2]) {
    let whole = from + (to - from) / V::N * V::N;
    // SAFETY: passed on to the caller.
    unsafe {
        for at in (from..whole).step_by(V::N) {
            adam_at::<V>(&step, at, gradient, value, moments);
        }
        for at in whole..to {
            adam_at::<Single>(&step, at, gradient, value, moments);
        }
    }
}

#[inline(always)]
unsafe fn adam_at<V: Arithmetic>(step: &Adam, at: usize, gradient: usize, value: State, moments: [State; 2]) {
    // SAFETY: passed on to the caller.
    unsafe {
        let g = load::<V>(gradient, at);
        let [b1, b2] = step.betas;
        let m = load::<V>(moments[0][0], at).mul(V::splat(b1)).add(g.mul(V::splat(1.0 - b1)));
        let v = load::<V>(moments[1][0], at).mul(V::splat(b2)).add(g.mul(g).mul(V::splat(1.0 - b2)));
        let change = m.div(v.sqrt().add(V::splat(step.floor)));
        let p = load::<V>(value[0], at).mul(V::splat(step.keep));
        store(m, moments[0][1], at);
        store(v, moments[1][1], at);
        store(p.sub(V::splat(step.rate).mul(change)), value[1], at);
    }
}
