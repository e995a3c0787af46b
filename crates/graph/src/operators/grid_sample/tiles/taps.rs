//! Which elements a point reads: along each dimension, and all together.

use super::{Form, Parameters};
use crate::operators::grid_sample::{Beyond, Coordinates, Sampling};
use crate::tiles::{load_wide, within};
use openmps_tile::{Binary, Builder, Cast, Compare, Scalar, Value};

/// What a point reads along one dimension: one element, or two with their weights.
pub(super) struct Tap {
    /// Places, and which of them exist.
    pub elements: Vec<(Value, Value)>,
    /// The weight of each; none for the nearest.
    pub weights: Vec<Value>,
    /// How far the point moves with its coordinate.
    pub slope: Value,
}

/// Where a point reads: how far the element is from its channel's first, whether it exists, and which element of each tap it is.
pub(super) struct Corner {
    pub offset: Value,
    pub exists: Value,
    pub sides: Vec<usize>,
}

/// What a tile of points reads, dimension by dimension.
pub(super) fn taps(
    b: &mut Builder,
    form: &Form,
    p: &Parameters,
    image: Value,
    places: &[Value],
    inside: Value,
) -> Vec<Tap> {
    let of_point = p.grid.offset(b, 1, places);
    let mut taps = Vec::new();
    for d in 0..form.spatial {
        let pointers = p.grid.of_coordinate(b, image, d, of_point);
        let coordinate = load_wide(b, pointers, inside, form.dtype);
        taps.push(tap(b, form, coordinate, p.input[d], p.factors[d]));
    }
    taps
}

/// What a coordinate reads of a dimension of `size`; from one element to the next it is `1 / factor`.
fn tap(b: &mut Builder, form: &Form, coordinate: Value, size: Value, factor: Value) -> Tap {
    let (one, half) = (b.constant_like(1.0, coordinate), b.constant_like(0.5, coordinate));
    let factor = b.splat_like(factor, coordinate);
    let mut point = coordinate;
    if form.of.coordinates != Coordinates::Elements {
        let moved = b.add(coordinate, one);
        point = b.multiply(moved, factor);
    }
    if form.of.coordinates == Coordinates::Sides {
        point = b.subtract(point, half);
    }
    let float = b.cast(Cast::SignedToFloat, size, form.compute());
    let float = b.splat_like(float, coordinate);
    let (point, slope) = held(b, form, (point, factor), float);
    let whole = match form.of.sampling {
        Sampling::Linear => b.unary(openmps_tile::Unary::Floor, point),
        Sampling::Nearest => b.unary(openmps_tile::Unary::Round, point),
    };
    // NaN and what is far away become integers that are outside, with their neighbours.
    let before = b.constant_like(-2.0, whole);
    let bounded = b.binary(Binary::MaximumNumber, whole, before);
    let bounded = b.minimum(bounded, float);
    let low = b.cast(Cast::FloatToSigned, bounded, Scalar::I64);
    let exists = within(b, low, size);
    if form.of.sampling == Sampling::Nearest {
        return Tap { elements: vec![(low, exists)], weights: Vec::new(), slope };
    }
    let next = b.constant_like(1.0, low);
    let mut high = b.add(low, next);
    if form.of.beyond != Beyond::Zeros {
        let size = b.splat_like(size, high);
        let last = b.subtract(size, next);
        high = b.minimum(high, last);
    }
    let also = within(b, high, size);
    let weight = b.subtract(point, whole);
    let rest = b.subtract(one, weight);
    Tap { elements: vec![(low, exists), (high, also)], weights: vec![rest, weight], slope }
}

/// A point and its slope as the rule for what lies beyond the border has them.
fn held(b: &mut Builder, form: &Form, (mut point, mut slope): (Value, Value), size: Value) -> (Value, Value) {
    if form.of.beyond == Beyond::Zeros {
        return (point, slope);
    }
    let (zero, one) = (b.constant_like(0.0, point), b.constant_like(1.0, point));
    let last = b.subtract(size, one);
    if form.of.beyond == Beyond::Reflection {
        (point, slope) = reflected(b, form, (point, slope), [size, last]);
    }
    for (comparison, bound) in [(Compare::Less, zero), (Compare::Greater, last)] {
        let is_beyond = b.compare(comparison, point, bound);
        slope = b.select(is_beyond, zero, slope);
    }
    let point = b.maximum(point, zero);
    (b.minimum(point, last), slope)
}

/// Mirrors stand at the outermost elements' centres, or half an element beyond.
fn reflected(b: &mut Builder, form: &Form, (point, slope): (Value, Value), [size, last]: [Value; 2]) -> (Value, Value) {
    let zero = b.constant_like(0.0, point);
    let shift = b.constant_like(form.of.shift(), point);
    let between = if form.of.coordinates == Coordinates::Sides { size } else { last };
    let range = b.add(between, between);
    let own = b.add(point, shift);
    let distance = b.unary(openmps_tile::Unary::Absolute, own);
    let turns = b.divide(distance, range);
    let turns = b.unary(openmps_tile::Unary::Floor, turns);
    let whole = b.multiply(turns, range);
    let rest = b.subtract(distance, whole);
    let back = b.subtract(range, rest);
    let (is_back, is_before) = (b.compare(Compare::Greater, rest, back), b.compare(Compare::Less, own, zero));
    let is_turned = b.binary(Binary::Xor, is_back, is_before);
    let turned = b.unary(openmps_tile::Unary::Negate, slope);
    let slope = b.select(is_turned, turned, slope);
    let nearer = b.minimum(rest, back);
    let point = b.subtract(nearer, shift);
    // Between mirrors in one place there is one point.
    let is_wide = b.compare(Compare::Greater, range, zero);
    (b.select(is_wide, point, zero), slope)
}

/// The elements that a tile of points reads.
pub(super) fn corners(b: &mut Builder, form: &Form, p: &Parameters, taps: &[Tap], inside: Value) -> Vec<Corner> {
    let sides = if form.of.sampling == Sampling::Nearest { 1 } else { 2_usize };
    let corner = |number: usize| {
        let sides: Vec<usize> = (0..form.spatial).map(|d| number / sides.pow(d as u32) % sides).collect();
        let elements: Vec<_> = taps.iter().zip(&sides).map(|(tap, &side)| tap.elements[side]).collect();
        let places: Vec<Value> = elements.iter().map(|element| element.0).collect();
        let exists = elements.iter().fold(inside, |all, element| b.and(all, element.1));
        Corner { offset: p.x.offset(b, 2, &places), exists, sides }
    };
    (0..sides.pow(form.spatial as u32)).map(corner).collect()
}
