//! Correlation of two images' neighbourhoods (Dosovitskiy et al., 2015), one displacement after the other.

use super::compose::Compose;
use super::values::{SINGLE, dims, expect, positive};
use crate::error::{Result, refuse};
use crate::table::Table;
use crate::{Context, Output, Tensor};
use openmps_graph::View;
use openmps_graph::operators::copy::Copy;
use openmps_graph::operators::reduce::Reduction;
use openmps_graph::view::elements;

/// Adds this family.
pub fn register(table: &mut Table) {
    table.add("correlation", SINGLE, correlation);
}

/// An image with zeros around it.
fn padded(c: &Compose, x: &View, around: usize) -> Result<View> {
    let [images, channels, height, width] = [0, 1, 2, 3].map(|axis| x.shape[axis]);
    let all = c.constant(x.dtype, &[images, channels, height + 2 * around, width + 2 * around], 0.0)?;
    let inner = all.narrowed(2, around, 1, height).narrowed(3, around, 1, width);
    c.launch(&Copy, std::slice::from_ref(x), &[inner])?;
    Ok(all)
}

/// Means over channels and a kernel's window of products with the other image's window, which is displaced.
fn correlation(
    context: &Context,
    x: Tensor,
    y: Tensor,
    around: i32,
    kernel: i32,
    displacement: i32,
    stride: i32,
    displacement_stride: i32,
    _multiply: i32,
    out: Output,
) -> Result<()> {
    let c = Compose::new(context);
    let [images, channels, height, width] = dims("input1", &x)?;
    expect("input2", &y, &[images, channels, height, width])?;
    let [kernel, stride, between] =
        [positive("kernel_size", kernel)?, positive("stride1", stride)?, positive("stride2", displacement_stride)?];
    let size = |name, number: i32| usize::try_from(number).map_err(|_| refuse(name, number, "0 or more"));
    let (around, farthest) = (size("pad_size", around)?, size("max_displacement", displacement)?);
    let (radius, steps) = ((kernel - 1) / 2, farthest / between);
    let border = radius + farthest;
    let [rows, columns] = [height, width].map(|size| {
        let inner = (size + 2 * around).saturating_sub(2 * border);
        inner.div_ceil(stride)
    });
    let (x, y) = (padded(&c, &x.view()?, around + radius)?, padded(&c, &y.view()?, around + radius)?);
    let sides = 2 * steps + 1;
    out.set_dims(&[images, sides * sides, rows, columns]);
    let to = c.place(&out, x.dtype)?;
    if elements(&to.shape)? == 0 {
        return Ok(());
    }
    // Places begin at the largest displacement; the zeros that a window reaches over the border were added to both images.
    let window = |image: &View, down: usize, across: usize| {
        image.narrowed(2, down, stride as isize, rows).narrowed(3, across, stride as isize, columns)
    };
    let share = 1.0 / (kernel * kernel * channels) as f64;
    for number in 0..sides * sides {
        let (down, across) = (number / sides * between, number % sides * between);
        let first = farthest - steps * between;
        let mut sum: Option<View> = None;
        for (i, j) in (0..2 * radius + 1).flat_map(|i| (0..2 * radius + 1).map(move |j| (i, j))) {
            let own = window(&x, farthest + i, farthest + j);
            let other = window(&y, first + down + i, first + across + j);
            let terms = c.reduce(Reduction::Sum, &c.multiply(&own, &other)?, &[1])?;
            sum = Some(match sum {
                Some(sum) => c.add(&sum, &terms)?,
                None => terms,
            });
        }
        let Some(sum) = sum else { continue };
        c.launch(&Copy, &[c.scale(&sum, share, 0.0)?], &[to.narrowed(1, number, 1, 1)])?;
    }
    Ok(())
}
