//! From 64-bit arguments to Metal's argument table: an address becomes (buffer, offset), a scalar becomes bytes in place.

use crate::error::{Error, Result};
use crate::hazards::Access;
use crate::limits;
use crate::seam::{PipelineKey, Size};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a kernel takes at one index of the buffer argument table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// A pointer to device memory.
    Buffer {
        /// Whether the kernel may write through it.
        written: bool,
    },
    /// A value of 1, 2, 4 or 8 bytes: the lowest of the argument's 64 bits.
    Scalar {
        /// Its size.
        bytes: usize,
    },
}

/// A kernel as the compiler hands it over: its text and how it wants to be launched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Text, entry and compiler options.
    pub pipeline: PipelineKey,
    /// Threads of a threadgroup.
    pub threads: Size,
    /// Bytes of threadgroup memory at `[[threadgroup(0)]]`; 0 where it takes none.
    pub threadgroup_memory: usize,
    /// The buffer argument table, from index 0 on.
    pub parameters: Vec<Parameter>,
}

impl Kernel {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.pipeline.entry
    }
}

/// Memory that an address lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved<B> {
    /// The buffer.
    pub buffer: B,
    /// Bytes from its beginning to the address.
    pub offset: usize,
    /// The addresses that belong together with this one: commands that touch the same ones are kept in order.
    pub extent: Range<usize>,
}

/// The buffers of a device by their addresses.
pub struct Addresses<B> {
    buffers: BTreeMap<usize, (usize, B)>,
}

impl<B> Default for Addresses<B> {
    fn default() -> Addresses<B> {
        Addresses { buffers: BTreeMap::new() }
    }
}

impl<B: Clone> Addresses<B> {
    /// Adds a buffer of `bytes` bytes at `address`.
    pub fn insert(&mut self, address: usize, bytes: usize, buffer: B) {
        self.buffers.insert(address, (bytes, buffer));
    }

    /// Takes the buffer away that begins at `address`.
    pub fn remove(&mut self, address: usize) -> Option<B> {
        self.buffers.remove(&address).map(|(_, buffer)| buffer)
    }

    /// The buffer that `bytes` bytes at `address` lie in. An empty range may stand at a buffer's very end.
    pub fn resolve(&self, address: usize, bytes: usize) -> Option<Resolved<B>> {
        let (&base, (length, buffer)) = self.buffers.range(..=address).next_back()?;
        let offset = address - base;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= *length);
        let inside = offset < *length || bytes == 0;
        (fits && inside).then(|| Resolved { buffer: buffer.clone(), offset, extent: base..base + length })
    }

    /// How many buffers there are.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }
}

/// One entry of the argument table, ready to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound<B> {
    /// Memory.
    Buffer(Resolved<B>),
    /// A pointer that is null: nothing is bound, and the kernel must not follow it.
    Null,
    /// Bytes in place, `length` of them.
    Bytes {
        /// The value, lowest byte first.
        value: [u8; 8],
        /// How many of its bytes count.
        length: usize,
    },
}

/// Turns a kernel's arguments into entries of the table. `resolve` is asked for each address that is not null.
pub fn bind<B>(
    kernel: &Kernel,
    arguments: &[u64],
    resolve: impl Fn(usize) -> Option<Resolved<B>>,
) -> Result<Vec<Bound<B>>> {
    let (expected, given) = (kernel.parameters.len(), arguments.len());
    if expected != given {
        return Err(Error::ArgumentCount { kernel: kernel.name().to_string(), expected, given });
    }
    limits::check_arguments(kernel.name(), expected)?;
    let bind_one = |(index, (parameter, &argument)): (usize, (&Parameter, &u64))| match *parameter {
        Parameter::Scalar { bytes } => Ok(Bound::Bytes { value: argument.to_le_bytes(), length: bytes.min(8) }),
        Parameter::Buffer { .. } if argument == 0 => Ok(Bound::Null),
        Parameter::Buffer { .. } => {
            let address = argument as usize;
            let resolved = resolve(address);
            resolved.map(Bound::Buffer).ok_or(Error::UnknownAddress {
                kernel: kernel.name().to_string(),
                index,
                address,
            })
        }
    };
    kernel.parameters.iter().zip(arguments).enumerate().map(bind_one).collect()
}

/// The memory that bound arguments may touch.
pub fn accesses<B>(kernel: &Kernel, bound: &[Bound<B>]) -> Vec<Access> {
    let access = |(parameter, bound): (&Parameter, &Bound<B>)| match (parameter, bound) {
        (Parameter::Buffer { written }, Bound::Buffer(resolved)) => {
            Some(Access { range: resolved.extent.clone(), written: *written })
        }
        _ => None,
    };
    kernel.parameters.iter().zip(bound).filter_map(access).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::{Language, MathMode};

    fn kernel(parameters: Vec<Parameter>) -> Kernel {
        let pipeline = PipelineKey {
            source: "kernel void k() {}".into(),
            entry: "k".to_string(),
            math: MathMode::Safe,
            language: Language::Metal3_0,
            threads: 256,
        };
        Kernel { pipeline, threads: [256, 1, 1], threadgroup_memory: 0, parameters }
    }

    fn addresses() -> Addresses<char> {
        let mut addresses = Addresses::default();
        addresses.insert(0x1000, 0x100, 'a');
        addresses.insert(0x1100, 0x40, 'b');
        addresses
    }

    #[test]
    fn interior_addresses_resolve_to_buffer_and_offset() {
        let addresses = addresses();
        let found = |address, bytes| addresses.resolve(address, bytes).map(|found| (found.buffer, found.offset));
        assert_eq!(found(0x1000, 0x100), Some(('a', 0)));
        assert_eq!(found(0x10ff, 1), Some(('a', 0xff)));
        assert_eq!(found(0x1100, 0x40), Some(('b', 0)));
        assert_eq!(found(0x1120, 0x20), Some(('b', 0x20)));
        // Across an end, before the first, behind the last.
        assert_eq!(found(0x10ff, 2), None);
        assert_eq!(found(0xfff, 1), None);
        assert_eq!(found(0x1140, 1), None);
        assert_eq!(found(0x1140, 0), Some(('b', 0x40)));
        assert_eq!(found(0x1120, usize::MAX), None);
    }

    #[test]
    fn removed_buffers_are_gone() {
        let mut addresses = addresses();
        assert_eq!(addresses.remove(0x1000), Some('a'));
        assert_eq!(addresses.remove(0x1000), None);
        assert_eq!(addresses.resolve(0x1000, 1), None);
        assert_eq!(addresses.len(), 1);
    }

    #[test]
    fn arguments_become_buffers_bytes_and_nulls() {
        let kernel = kernel(vec![
            Parameter::Buffer { written: false },
            Parameter::Scalar { bytes: 4 },
            Parameter::Buffer { written: true },
            Parameter::Buffer { written: true },
        ]);
        let addresses = addresses();
        let bound = bind(&kernel, &[0x1010, 0xffff_fffe, 0x1104, 0], |address| addresses.resolve(address, 0)).unwrap();
        assert!(matches!(&bound[0], Bound::Buffer(found) if found.buffer == 'a' && found.offset == 0x10));
        assert_eq!(bound[1], Bound::Bytes { value: [0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0], length: 4 });
        assert!(matches!(&bound[2], Bound::Buffer(found) if found.buffer == 'b' && found.offset == 4));
        assert_eq!(bound[3], Bound::Null);
        let expected =
            [Access { range: 0x1000..0x1100, written: false }, Access { range: 0x1100..0x1140, written: true }];
        assert_eq!(accesses(&kernel, &bound), expected);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let kernel = kernel(vec![Parameter::Buffer { written: false }]);
        let none = |_: usize| None::<Resolved<char>>;
        let text = |result: Result<Vec<Bound<char>>>| result.unwrap_err().to_string();
        assert_eq!(text(bind(&kernel, &[], none)), "k takes 1 arguments, 0 were given");
        assert_eq!(
            text(bind(&kernel, &[0x77], none)),
            "k: argument 0 is the address 0x77, which lies in no buffer of the device"
        );
        let many = super::tests::kernel(vec![Parameter::Scalar { bytes: 4 }; 32]);
        assert_eq!(text(bind(&many, &[0; 32], none)), "k: bound arguments is 32, 1 more than the limit of 31");
    }
}
