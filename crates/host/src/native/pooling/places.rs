//! Largest elements with their places.

use super::element::{Pooled, larger};
use super::windows::{PoolingWindow, Regular};

/// Elements that are compared side by side.
pub(super) const ABREAST: usize = 16;

/// The largest element of each window of a row and its index in the plane; of equal ones the first. First down the rows, then along the line of their
/// largest, for which there is memory.
#[inline(always)]
pub(super) fn largest<T: Pooled>(
    (plane, width): (&[T], usize),
    row: &PoolingWindow,
    (columns, regular): (&[PoolingWindow], &Regular),
    (line, line_places): (&mut [T::Sum], &mut [i32]),
    (most, places): (&mut [T::Sum], &mut [i32]),
) {
    if row.begin >= row.end {
        most.fill(T::LOWEST);
        return places.fill(-1);
    }
    // As long as the lines of the input, which the compiler then knows.
    let (line, line_places) = (&mut line[..width], &mut line_places[..width]);
    // Planes have fewer elements than an `i32` counts to.
    let row_of = |i: usize| (&plane[i * width..][..width], (i * width) as i32);
    for j in abreast(width) {
        let block = |source: &[T]| -> [T; ABREAST] { source[j..j + ABREAST].try_into().expect("as many") };
        let (source, first) = row_of(row.begin);
        let mut best = block(source).map(|value| larger::<T>(T::LOWEST, value.widen()));
        let mut places: [i32; ABREAST] = std::array::from_fn(|lane| first + (j + lane) as i32);
        for (source, first) in (row.begin + 1..row.end).map(row_of) {
            let source = block(source);
            for lane in 0..ABREAST {
                let element = (source[lane].widen(), first + (j + lane) as i32);
                (best[lane], places[lane]) = below::<T>(element, (best[lane], places[lane]));
            }
        }
        line[j..j + ABREAST].copy_from_slice(&best);
        line_places[j..j + ABREAST].copy_from_slice(&places);
    }
    for j in one_by_one(width) {
        let elements = (row.begin..row.end).map(row_of).map(|(source, first)| (source[j].widen(), first + j as i32));
        (line[j], line_places[j]) = elements.fold((T::LOWEST, -1), |best, element| better::<T>(element, best));
    }
    let these = regular.range.clone();
    regular.largest::<T>((line, line_places), (&mut most[these.clone()], &mut places[these]));
    for x in regular.others(columns.len()) {
        let inside = columns[x].begin..columns[x].end;
        (most[x], places[x]) = largest_in::<T>(&line[inside.clone()], &line_places[inside]);
    }
}

/// The largest element of one window of a line, and its place.
#[inline(always)]
fn largest_in<T: Pooled>(line: &[T::Sum], from: &[i32]) -> (T::Sum, i32) {
    let none = (T::LOWEST, -1);
    if line.len() < ABREAST {
        let elements = line.iter().copied().zip(from.iter().copied());
        return elements.fold(none, |best, element| better::<T>(element, best));
    }
    let (mut some, mut places) = ([T::LOWEST; ABREAST], [-1; ABREAST]);
    for j in abreast(line.len()) {
        let values = line[j..j + ABREAST].try_into().expect("as many");
        let at = from[j..j + ABREAST].try_into().expect("as many");
        take_abreast::<T>(values, at, &mut some, &mut places);
    }
    some.into_iter().zip(places).fold(none, |best, element| better::<T>(element, best))
}

/// Where as many elements as are compared side by side begin, the last ones at the end of the line: an element that is taken twice changes nothing.
#[inline(always)]
pub(super) fn abreast(len: usize) -> impl Iterator<Item = usize> {
    (0..len / ABREAST * ABREAST)
        .step_by(ABREAST)
        .chain((!len.is_multiple_of(ABREAST) && len > ABREAST).then(|| len - ABREAST))
}

/// The elements of a line that is too short for that.
#[inline(always)]
pub(super) fn one_by_one(len: usize) -> std::ops::Range<usize> {
    0..if len < ABREAST { len } else { 0 }
}

/// [`better`] of as many elements, each for a line's next place: first all are read, and then all written, so that they are vectors.
#[inline(always)]
fn take_abreast<T: Pooled>(values: &[T::Sum; ABREAST], at: &[i32; ABREAST], most: &mut [T::Sum], places: &mut [i32]) {
    let most: &mut [T::Sum; ABREAST] = most.try_into().expect("as many");
    let places: &mut [i32; ABREAST] = places.try_into().expect("as many");
    let (mut best, mut best_places) = (*most, *places);
    for lane in 0..ABREAST {
        (best[lane], best_places[lane]) = better::<T>((values[lane], at[lane]), (best[lane], best_places[lane]));
    }
    (*most, *places) = (best, best_places);
}

/// The element or the largest one so far, if it is larger, not a number where that is one, or equal to it and in front of it; with the place of the
/// first of all. Where there is no element its place is negative.
#[inline(always)]
fn better<T: Pooled>((value, at): (T::Sum, i32), (most, place): (T::Sum, i32)) -> (T::Sum, i32) {
    let is_like = (value == most) | (is_nan(value) & is_nan(most));
    let is_larger = (value > most) | (is_nan(value) & !is_nan(most));
    let is_better = (is_larger | (is_like & (at < place))) & (at >= 0);
    // A number below the lowest finite one is not taken, but for its place.
    (larger::<T>(most, value), if (place < 0) | is_better { at } else { place })
}

/// [`better`] for an element below the largest one so far, whose place is a smaller one.
#[inline(always)]
fn below<T: Pooled>((value, at): (T::Sum, i32), (most, place): (T::Sum, i32)) -> (T::Sum, i32) {
    let is_larger = (value > most) | (is_nan(value) & !is_nan(most));
    (larger::<T>(most, value), if is_larger { at } else { place })
}

/// [`better`] for two elements that are there.
#[inline(always)]
fn beside<T: Pooled>((value, at): (T::Sum, i32), (most, place): (T::Sum, i32)) -> (T::Sum, i32) {
    let is_like = (value == most) | (is_nan(value) & is_nan(most));
    let is_larger = (value > most) | (is_nan(value) & !is_nan(most));
    (larger::<T>(most, value), if is_larger | (is_like & (at < place)) { at } else { place })
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<S: PartialOrd + Copy>(value: S) -> bool {
    value != value
}

/// The largest element of each of some windows of as many elements, of which there is one by lane and tap, and its place.
#[inline(always)]
fn block<T: Pooled>(length: usize, at: impl Fn(usize, usize) -> (T::Sum, i32)) -> ([T::Sum; ABREAST], [i32; ABREAST]) {
    let (mut best, mut places) = ([T::LOWEST; ABREAST], [-1; ABREAST]);
    if length > 0 {
        for lane in 0..ABREAST {
            (best[lane], places[lane]) = at(lane, 0);
        }
    }
    for tap in 1..length {
        for lane in 0..ABREAST {
            (best[lane], places[lane]) = beside::<T>(at(lane, tap), (best[lane], places[lane]));
        }
    }
    (best, places)
}

impl Regular {
    /// The largest elements of these windows and their places, of those of a line.
    #[inline(always)]
    fn largest<T: Pooled>(&self, line: (&[T::Sum], &[i32]), best: (&mut [T::Sum], &mut [i32])) {
        match self.stride {
            1 => self.largest_by::<T, 1>(line, best),
            2 => self.largest_by::<T, 2>(line, best),
            _ => self.largest_by::<T, 0>(line, best),
        }
    }

    /// As many windows side by side as a few registers hold. `BY` is the stride, where it is known when this is compiled.
    #[inline(always)]
    fn largest_by<T: Pooled, const BY: usize>(
        &self,
        (values, from): (&[T::Sum], &[i32]),
        (most, places): (&mut [T::Sum], &mut [i32]),
    ) {
        let by = if BY == 0 { self.stride } else { BY };
        let count = most.len();
        self.assert_inside(count, values.len().min(from.len()));
        let at = |window: usize, tap: usize| {
            let place = self.begin + window * by + tap;
            // SAFETY: asserted for the last element of the last window. A check of each would keep the loop from being vectors'.
            unsafe { (*values.get_unchecked(place), *from.get_unchecked(place)) }
        };
        for i in abreast(count) {
            let (best, best_places) = block::<T>(self.length, |lane, tap| at(i + lane, tap));
            most[i..i + ABREAST].copy_from_slice(&best);
            places[i..i + ABREAST].copy_from_slice(&best_places);
        }
        if (1..ABREAST).contains(&count) {
            // The last window stands for those that are missing: one by one each comparison would be a jump that nobody foresees.
            let (best, best_places) = block::<T>(self.length, |lane, tap| at(lane.min(count - 1), tap));
            most.copy_from_slice(&best[..count]);
            places.copy_from_slice(&best_places[..count]);
        }
    }
}
