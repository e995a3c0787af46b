//! Types: `i32`, `!tt.ptr<f16>`, `tensor<64x32xf32>`.

use super::cursor::{Cursor, Read};
use super::small::Small;
use crate::types::{Dims, Element, MAX_TILE_RANK, Scalar, Type};

const SCALARS: [Scalar; 9] = [
    Scalar::I1,
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
    Scalar::F64,
];

/// One type. Floats of 8 bits are bytes.
pub fn ty(cursor: &mut Cursor) -> Read<Type> {
    Ok(form(cursor)?.0)
}

/// One type, and which floats of 8 bits its bytes are.
pub fn form(cursor: &mut Cursor) -> Read<(Type, Option<Small>)> {
    if !cursor.take("tensor<") {
        let (element, small) = element(cursor)?;
        return Ok((Type { element, dims: Dims::new() }, small));
    }
    let mut dims = Dims::new();
    while cursor.looking_at_digit() {
        let size = cursor.digits()?;
        if dims.try_push(size).is_err() {
            return Err(cursor.error(format!("a tensor of more than {MAX_TILE_RANK} dimensions")));
        }
        cursor.expect_x()?;
    }
    let (element, small) = element(cursor)?;
    cursor.expect(">")?;
    Ok((Type { element, dims }, small))
}

fn element(cursor: &mut Cursor) -> Read<(Element, Option<Small>)> {
    if !cursor.take("!tt.ptr<") {
        let (scalar, small) = scalar(cursor)?;
        return Ok((Element::Scalar(scalar), small));
    }
    let (target, small) = scalar(cursor)?;
    // An address space, a number or a name: all memory is one here.
    if cursor.take(",") {
        if cursor.looking_at("\"") {
            cursor.string()?;
        } else {
            cursor.integer()?;
        }
    }
    cursor.expect(">")?;
    // A boolean takes a byte of memory; what loads it converts.
    Ok((Element::Pointer(if target == Scalar::I1 { Scalar::I8 } else { target }), small))
}

fn scalar(cursor: &mut Cursor) -> Read<(Scalar, Option<Small>)> {
    let name = cursor.word();
    if let Some(small) = Small::named(name) {
        return Ok((Scalar::I8, Some(small)));
    }
    let scalar = SCALARS.into_iter().find(|scalar| scalar.name() == name).ok_or_else(|| {
        let name = if name.is_empty() { cursor.found() } else { format!("`{name}`") };
        cursor.error(format!("{name} is no type of this language"))
    })?;
    Ok((scalar, None))
}
