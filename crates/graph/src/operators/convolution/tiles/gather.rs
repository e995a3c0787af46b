//! What both kernels of convolutions share: their parameters, the places of results, and where a filter's tap reads for them.
//!
//! A result at place q (of its phase) reads the image at `origin(q) + shift(tap)`. Of a convolution, origins are a stride apart. Of a
//! transposed one, the places of a phase are a stride apart instead and read neighbours, from the taps that meet the phase.

use super::Form;
use super::epilogue::Epilogue;
use crate::tiles::{Images, Side, moved, numbers, reads_image, scaled, unravelled, within};
use openmps_tile::{Builder, Compare, Scalar, Type, Value};

/// The parameters of both kernels, in the order of their arguments.
pub(super) struct Parameters {
    pub image: Images,
    pub out: Images,
    pub weight: Value,
    /// Strides of the weight from group to group, result to result, channel to channel, and tap to tap in both directions.
    pub weight_strides: [Value; 5],
    /// Results of a group, channels that each is made of, places or results of all programs, results' channels.
    pub sizes: [Value; 4],
    pub window: [Value; 2],
    pub places: [Value; 2],
    image_size: [Value; 2],
    out_size: [Value; 2],
    stride: [Value; 2],
    dilation: [Value; 2],
    before: [Value; 2],
    pub epilogue: Epilogue,
    /// This program's group and phases.
    pub group: Value,
    phase: [Value; 2],
    transposed: bool,
}

impl Parameters {
    pub fn new(b: &mut Builder, form: &Form) -> Parameters {
        let (image, out) = (Images::parameter(b, "x", form.dtype), Images::parameter(b, "out", form.dtype));
        let weight = b.parameter("weight", Type::pointer(form.dtype.into()));
        let names = ["group_stride", "row_stride", "depth_stride", "tap_row_stride", "tap_column_stride"];
        let weight_strides = numbers(b, names);
        let sizes = numbers(b, ["rows", "depth", "count", "channels"]);
        let mut pair =
            |name: &str| ["y", "x"].map(|axis| b.parameter(format!("{name}_{axis}"), Type::scalar(Scalar::I64)));
        let [window, places, image_size, out_size, stride, dilation, before] =
            ["window", "places", "image", "size", "stride", "dilation", "before"].map(&mut pair);
        let epilogue = Epilogue::parameters(b, &form.fused, form.dtype);
        let (group, phase) = if form.transposed {
            let of_grid = unravelled(b, 2, &[stride[0], stride[0], stride[1]]);
            (of_grid[0], [of_grid[1], of_grid[2]])
        } else {
            let zero = b.integer(0, Scalar::I64);
            (b.program_id(2), [zero, zero])
        };
        Parameters {
            image,
            out,
            weight,
            weight_strides,
            sizes,
            window,
            places,
            image_size,
            out_size,
            stride,
            dilation,
            before,
            epilogue,
            group,
            phase,
            transposed: form.transposed,
        }
    }

    /// By how much a tap moves what is read along an axis, and whether it meets this phase, where not all do.
    pub fn shift(&self, b: &mut Builder, axis: usize, tap: Value) -> (Value, Option<Value>) {
        let reach = b.multiply(tap, self.dilation[axis]);
        if !self.transposed {
            return (b.subtract(reach, self.before[axis]), None);
        }
        let place = b.add(self.phase[axis], self.before[axis]);
        let distance = b.subtract(place, reach);
        let shift = b.divide(distance, self.stride[axis]);
        let product = b.multiply(shift, self.stride[axis]);
        (shift, Some(b.compare(Compare::Equal, product, distance)))
    }

    /// As [`Parameters::shift`] of a convolution, for a tile of taps.
    pub fn shifts(&self, b: &mut Builder, axis: usize, taps: Value) -> Value {
        let [dilation, before] = [self.dilation, self.before].map(|pair| b.splat_like(pair[axis], taps));
        let reach = b.multiply(taps, dilation);
        b.subtract(reach, before)
    }

    /// The loop over taps: `each` gets the sums so far, where the tap's weights and pixels begin, by how much it moves what is read, and
    /// how many channels there are, 0 where it does not meet the phase.
    pub fn for_taps(
        &self,
        b: &mut Builder,
        sums: Value,
        each: impl FnOnce(&mut Builder, Value, Tap) -> Value,
    ) -> Value {
        let (zero, one) = (b.integer(0, Scalar::I64), b.integer(1, Scalar::I64));
        let taps = b.multiply(self.window[0], self.window[1]);
        b.for_loop([zero, taps, one], &[sums], |b, tap, carried| {
            let row = b.divide(tap, self.window[1]);
            let before = b.multiply(row, self.window[1]);
            let column = b.subtract(tap, before);
            let ((y, meets_y), (x, meets_x)) = (self.shift(b, 0, row), self.shift(b, 1, column));
            let mut depth = self.sizes[1];
            for meets in [meets_y, meets_x].into_iter().flatten() {
                depth = b.select(meets, depth, zero);
            }
            let of_weight = [(row, self.weight_strides[3]), (column, self.weight_strides[4])];
            let weight = moved(b, self.weight, of_weight);
            let of_image = [(y, self.image.strides[2]), (x, self.image.strides[3])];
            let image = moved(b, self.image.pointer, of_image);
            vec![each(b, carried[0], Tap { weight, image, shift: [y, x], depth })]
        })[0]
    }
}

/// A filter's tap within the loop over all.
pub(super) struct Tap {
    pub weight: Value,
    pub image: Value,
    shift: [Value; 2],
    pub depth: Value,
}

/// The places of a tile of results.
pub(super) struct Places {
    batch: Value,
    /// Rows and columns of the results.
    own: [Value; 2],
    /// Where a tap without a shift reads.
    pub origin: [Value; 2],
    pub inside: Value,
}

impl Places {
    /// From the tiles of image, row and column of places, and which of them exist.
    pub fn new(b: &mut Builder, p: &Parameters, batch: Value, place: Side, column: Value) -> Places {
        let ([row, column], mut inside) = ([place.0, column], place.1);
        let apart = [scaled(b, row, p.stride[0]), scaled(b, column, p.stride[1])];
        if !p.transposed {
            return Places { batch, own: [row, column], origin: apart, inside };
        }
        let own = [0, 1].map(|axis| {
            let phase = b.splat_like(p.phase[axis], row);
            b.add(apart[axis], phase)
        });
        for axis in [0, 1] {
            let exists = within(b, own[axis], p.out_size[axis]);
            inside = b.and(inside, exists);
        }
        Places { batch, own, origin: [row, column], inside }
    }

    /// How far the pixels that a tap without a shift reads lie from an image's first, but for the channel.
    pub fn of_image(&self, b: &mut Builder, images: &Images) -> Value {
        self.offset(b, images, self.origin)
    }

    /// The same of the results.
    pub fn of_result(&self, b: &mut Builder, images: &Images) -> Value {
        self.offset(b, images, self.own)
    }

    fn offset(&self, b: &mut Builder, images: &Images, [row, column]: [Value; 2]) -> Value {
        let [of_batch, _, of_row, of_column] = images.strides;
        crate::tiles::offset(b, (self.batch, of_batch), [(row, of_row), (column, of_column)])
    }

    /// Which results read a pixel of the image with this tap, and not padding.
    pub fn reads(&self, b: &mut Builder, p: &Parameters, tap: &Tap) -> Value {
        (0..2).fold(self.inside, |inside, axis| {
            reads_image(b, inside, self.origin[axis], tap.shift[axis], p.image_size[axis])
        })
    }

    /// As [`Places::reads`] for rows of taps with these shifts, of which some exist.
    pub fn reads_all(&self, b: &mut Builder, p: &Parameters, shifts: [Value; 2], exist: Value) -> Value {
        let inside = crate::tiles::both(b, exist, self.inside);
        (0..2).fold(inside, |inside, axis| reads_image(b, inside, shifts[axis], self.origin[axis], p.image_size[axis]))
    }
}
