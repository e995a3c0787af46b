//! Types: `i32`, `!tt.ptr<f16>`, `tensor<64x32xf32>`.

use super::cursor::{Cursor, Read};
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

/// One type.
pub fn ty(cursor: &mut Cursor) -> Read<Type> {
    if !cursor.take("tensor<") {
        return Ok(Type { element: element(cursor)?, dims: Dims::new() });
    }
    let mut dims = Dims::new();
    while cursor.looking_at_digit() {
        let size = cursor.digits()?;
        if dims.try_push(size).is_err() {
            return Err(cursor.error(format!("a tensor of more than {MAX_TILE_RANK} dimensions")));
        }
        cursor.expect_x()?;
    }
    let element = element(cursor)?;
    cursor.expect(">")?;
    Ok(Type { element, dims })
}

fn element(cursor: &mut Cursor) -> Read<Element> {
    if !cursor.take("!tt.ptr<") {
        return scalar(cursor).map(Element::Scalar);
    }
    let target = scalar(cursor)?;
    if cursor.take(",") {
        cursor.integer()?;
    }
    cursor.expect(">")?;
    // A truth value takes a byte of memory; what loads it converts.
    Ok(Element::Pointer(if target == Scalar::I1 { Scalar::I8 } else { target }))
}

fn scalar(cursor: &mut Cursor) -> Read<Scalar> {
    let name = cursor.word();
    SCALARS.into_iter().find(|scalar| scalar.name() == name).ok_or_else(|| {
        let name = if name.is_empty() { cursor.found() } else { format!("`{name}`") };
        cursor.error(format!("{name} is no type of this language"))
    })
}
