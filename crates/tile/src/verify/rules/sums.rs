//! The rules of what combines elements: reductions, scans, histograms, products of matrices.

use super::memory::mask;
use super::{Class, Result, axis_below, require, same, tile};
use crate::kernel::*;
use crate::types::{Scalar, Type};

pub(super) fn reduce(axis: usize, combine: Combine, x: &Type, result: &Type) -> Result {
    let class = match combine {
        Combine::Sum | Combine::Product | Combine::Minimum | Combine::Maximum => Class::Number,
        Combine::MinimumNumber | Combine::MaximumNumber => Class::Float,
        Combine::And | Combine::Or | Combine::Xor => Class::IntegerOrTruth,
    };
    class.require("the operand", x)?;
    tile("the operand", x)?;
    axis_below(axis, x.dims.len())?;
    let mut dims = x.dims.clone();
    dims.remove(axis);
    same("the result", result, &x.with_dims(&dims))
}

/// Tiles of the same dimensions, which have the axis.
fn alike(axis: usize, tiles: &[&Type]) -> Result {
    let first = tiles[0];
    tile("operand 0", first)?;
    axis_below(axis, first.dims.len())?;
    for (i, found) in tiles.iter().enumerate() {
        let expected = || format!("the dimensions of {first}");
        require(&format!("operand {i}"), found, found.dims == first.dims, expected)?;
    }
    Ok(())
}

pub(super) fn reduce_block(axis: usize, tiles: &[&Type], results: &[&Type]) -> Result {
    alike(axis, tiles)?;
    let mut dims = tiles[0].dims.clone();
    dims.remove(axis);
    let mut pairs = results.iter().zip(tiles).enumerate();
    pairs.try_for_each(|(i, (found, x))| same(&format!("result {i}"), found, &x.with_dims(&dims)))
}

pub(super) fn scan(axis: usize, tiles: &[&Type], results: &[&Type]) -> Result {
    alike(axis, tiles)?;
    let mut pairs = results.iter().zip(tiles).enumerate();
    pairs.try_for_each(|(i, (found, x))| same(&format!("result {i}"), found, x))
}

pub(super) fn histogram(x: &Type, rest: &[&Type], result: &Type) -> Result {
    let fits = |ty: &Type| ty.number() == Some(Scalar::I32) && ty.dims.len() == 1;
    require("the operand", x, fits(x), || "an i32 tile of one dimension".to_owned())?;
    require("the result", result, fits(result), || "an i32 tile of one dimension".to_owned())?;
    rest.first().map_or(Ok(()), |found| mask(found, x))
}

pub(super) fn dot(x: &Type, y: &Type, sum: &Type, result: &Type) -> Result {
    let wide = match x.number() {
        Some(Scalar::I8) => Scalar::I32,
        Some(Scalar::F64) => Scalar::F64,
        _ => {
            Class::Float.require("operand 0", x)?;
            Scalar::F32
        }
    };
    let matrix = |what: &str, ty: &Type| {
        require(what, ty, matches!(ty.dims.len(), 2 | 3), || "a tile of two or three dimensions".to_owned())
    };
    matrix("operand 0", x)?;
    matrix("operand 1", y)?;
    let (batch, [.., rows, depth], [.., columns]) = (&x.dims[..x.dims.len() - 2], &x.dims[..], &y.dims[..]) else {
        return Ok(());
    };
    let with = |rows: usize, columns: usize| [batch, &[rows, columns]].concat();
    same("operand 1", y, &x.with_dims(&with(*depth, *columns)))?;
    same("operand 2", sum, &Type::tile(wide, &with(*rows, *columns)))?;
    same("the result", result, sum)
}
