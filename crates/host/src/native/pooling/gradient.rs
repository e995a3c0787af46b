//! Gradients of pooling.

use super::element::Pooled;
use super::windows::{PoolingKind, PoolingWindow, divisor};
use crate::Error;
use crate::native::{Shared, elements, scratch};
use crate::threads::parallel_for;

/// The gradient of [`pool`](super::pool) with respect to its input. `places` are those of the largest elements; without them every window spreads
/// its average's gradient evenly.
#[allow(clippy::too_many_arguments)]
pub fn pool_backward<T: Pooled>(
    kind: PoolingKind,
    planes: usize,
    [height, width]: [usize; 2],
    rows: &[PoolingWindow],
    columns: &[PoolingWindow],
    upstream: &[T],
    places: Option<&[i32]>,
    gradient: &mut [T],
) -> Result<(), Error> {
    let lens = (elements(&[planes, rows.len(), columns.len()]), elements(&[planes, height, width]));
    let inside = rows.iter().all(|w| w.lies_in(height)) && columns.iter().all(|w| w.lies_in(width));
    if (upstream.len(), gradient.len()) != lens || places.is_some_and(|p| p.len() != lens.0) || !inside {
        let lens = (upstream.len(), gradient.len(), lens);
        return Err(Error::Invalid(format!(
            "pooling gradient: upstream and gradient have {lens:?} elements or windows leave the input"
        )));
    }
    let size = rows.len() * columns.len();
    let gradient = Shared::new(gradient);
    parallel_for(planes, height * width + 4 * size, |from, to| {
        scratch::with(height * width, |sums: &mut [T::Sum]| {
            for index in from..to {
                sums.fill(T::Sum::from(0));
                for (i, up) in upstream[index * size..][..size].iter().enumerate() {
                    if let Some(places) = places {
                        let place = places[index * size + i];
                        if let Some(sum) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) {
                            *sum += up.widen();
                        }
                        continue;
                    }
                    let (row, column) = (&rows[i / columns.len()], &columns[i % columns.len()]);
                    let share = up.widen() / T::count(divisor(kind, row, column).max(1));
                    for y in row.begin..row.end {
                        sums[y * width + column.begin..y * width + column.end].iter_mut().for_each(|s| *s += share);
                    }
                }
                // SAFETY: this task alone writes this plane.
                let out = unsafe { gradient.part(index * height * width, height * width) };
                out.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::narrow(sum));
            }
        });
    });
    Ok(())
}
