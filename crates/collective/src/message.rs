//! The header before the elements of each message, by which a rank sees that the other does the same thing.

use crate::element::{ElementType, Reduction};
use crate::fold::Form;
use crate::program::{Kind, Operation};

/// Bytes of a header, and what elements are padded to: so they lie aligned wherever messages end.
pub(crate) const HEADER: usize = 64;

const MAGIC: [u8; 4] = *b"omps";
/// A number for "none".
const NONE: u64 = u64::MAX;

/// What precedes elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub operation: Operation,
    /// Elements that follow, in their form.
    pub elements: usize,
    pub form: Form,
}

impl Header {
    /// As bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let operation = &self.operation;
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = operation.kind as u8;
        bytes[5] = operation.element as u8;
        bytes[6] = operation.reduction.map_or(u8::MAX, |reduction| reduction as u8);
        bytes[7] = match self.form {
            Form::Whole => 0,
            Form::Partial => 1,
        };
        let numbers = [
            operation.sequence,
            operation.count as u64,
            operation.root.map_or(NONE, |root| root as u64),
            self.elements as u64,
        ];
        for (index, number) in numbers.into_iter().enumerate() {
            bytes[8 + 8 * index..16 + 8 * index].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From bytes, or what is wrong with them.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, &'static str> {
        if bytes[..4] != MAGIC || bytes[40..].iter().any(|&byte| byte != 0) {
            return Err("a header begins or ends wrongly");
        }
        let number = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 + 8 * index + byte]));
        let size = |index| usize::try_from(number(index)).map_err(|_| "a header's size is none");
        let operation = Operation {
            kind: Kind::from_number(bytes[4]).ok_or("a header's operation is none")?,
            element: ElementType::from_number(bytes[5].into()).ok_or("a header's element type is none")?,
            reduction: match bytes[6] {
                u8::MAX => None,
                number => Some(Reduction::from_number(number.into()).ok_or("a header's reduction is none")?),
            },
            root: if number(2) == NONE { None } else { Some(size(2)?) },
            count: size(1)?,
            sequence: number(0),
        };
        let form = match bytes[7] {
            0 => Form::Whole,
            1 => Form::Partial,
            _ => return Err("a header's form is none"),
        };
        Ok(Header { operation, elements: size(3)?, form })
    }
}

/// Bytes of a message of so many bytes of elements.
pub(crate) fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Header {
        let operation = Operation {
            kind: Kind::Reduce,
            element: ElementType::BF16,
            reduction: Some(Reduction::Maximum),
            root: Some(3),
            count: 12_345,
            sequence: 7,
        };
        Header { operation, elements: 99, form: Form::Partial }
    }

    #[test]
    fn what_is_written_is_read() {
        let header = some();
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        let operation = Operation { reduction: None, root: None, ..header.operation };
        let other = Header { operation, form: Form::Whole, ..header };
        assert_eq!(Header::decode(&other.encode()), Ok(other));
    }

    #[test]
    fn any_bytes_are_a_header_that_is_written_the_same_or_are_refused() {
        let mut random = fastrand::Rng::with_seed(19);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = some().encode();
            for _ in 0..random.usize(0..4) {
                bytes[random.usize(0..HEADER)] = random.u8(..);
            }
            match Header::decode(&bytes) {
                Ok(header) => assert_eq!(header.encode(), bytes),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 5_000, "{refused}");
    }
}
