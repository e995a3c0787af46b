//! What a kernel is given, and what it takes.

use crate::buffer::Buffer;
use openmps_tile::Scalar;

/// One argument of a kernel.
///
/// ```
/// use openmps::{Argument, Buffer, Device};
/// let buffer = Buffer::new(&Device::get(0)?, 16)?;
/// let arguments = [Argument::Read(&buffer, 0), Argument::Integer(4), Argument::Float(0.5)];
/// # Ok::<(), openmps::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    /// A buffer from this byte on, for a pointer that is only loaded from. A kernel of tiles says what it points to, and an offset at which no
    /// such element may begin is an [`Error::Argument`](crate::Error::Argument), as one beyond the buffer's end is.
    Read(&'a Buffer, usize),
    /// A buffer from this byte on, for a pointer that is stored to; the offset as for [`Argument::Read`].
    Write(&'a Buffer, usize),
    /// An integer. One that the parameter's type does not have, with a sign or without, is an [`Error::Argument`](crate::Error::Argument).
    Integer(i64),
    /// A number, rounded to the parameter's type.
    Float(f64),
}

/// What a kernel takes as one argument.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Number(Scalar),
    /// A buffer, and what lies in it where that is known.
    Buffer(Option<Scalar>),
}

impl Takes {
    pub fn describe(self) -> String {
        match self {
            Takes::Number(scalar) => format!("a number of {}", scalar.name()),
            Takes::Buffer(_) => "a buffer".to_owned(),
        }
    }
}

/// Refuses, by what there is and what is expected, an offset beyond the buffer's end, or at which no such element may begin.
pub(crate) fn check_offset(
    buffer: &Buffer,
    offset: usize,
    target: Option<Scalar>,
) -> std::result::Result<(), (String, String)> {
    let size = target.map_or(1, Scalar::size);
    let expected = if buffer.check_range(offset, 0).is_err() {
        "one within the buffer".to_owned()
    } else if buffer.check_alignment(offset, size).is_err() {
        format!("one at which an element of {size} bytes may begin")
    } else {
        return Ok(());
    };
    Err((format!("byte {offset} of a buffer of {} bytes", buffer.len()), expected))
}

/// Refuses, by what there is and what is expected, an integer that has no place in this type. Types say nothing of a sign.
pub(crate) fn check_integer(value: i64, scalar: Scalar) -> std::result::Result<(), (String, String)> {
    let range = match scalar {
        Scalar::I1 => 0..=1,
        Scalar::I8 => i8::MIN.into()..=u8::MAX.into(),
        Scalar::I16 => i16::MIN.into()..=u16::MAX.into(),
        Scalar::I32 => i32::MIN.into()..=u32::MAX.into(),
        _ => i64::MIN..=i64::MAX,
    };
    if range.contains(&value) {
        return Ok(());
    }
    let expected = format!("a number of {}, from {} to {}", scalar.name(), range.start(), range.end());
    Err((value.to_string(), expected))
}
