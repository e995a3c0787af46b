//! From 64-bit arguments to Metal's argument table: an address becomes (buffer, offset), a scalar becomes bytes in place.

use crate::error::{Error, Result};
use crate::hazards::Access;
use crate::interface::{Language, MathMode, PipelineKey, Size};
use crate::limits;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How an argument reaches a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// A pointer to device memory, at this index of the buffer argument table.
    Buffer {
        /// The index.
        index: usize,
        /// Whether the kernel may write through it.
        written: bool,
    },
    /// A number, in the structure of numbers that is bound behind the last buffer: the lowest bytes of the argument's 64 bits.
    Number {
        /// Bytes from the structure's beginning.
        offset: usize,
        /// Its size: 1, 2, 4 or 8.
        size: usize,
    },
    /// A number of its own, bound in place at this index of the buffer argument table, as hand-written kernels take it.
    Value {
        /// The index.
        index: usize,
        /// Its size: 1, 2, 4 or 8.
        size: usize,
    },
}

/// A kernel as the compiler hands it over: its text and how it wants to be launched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// Text, entry and compiler options.
    pub pipeline: PipelineKey,
    /// Threads of a threadgroup.
    pub threads: Size,
    /// Bytes of threadgroup memory at `[[threadgroup(0)]]` and so on; none where the text declares what it needs.
    pub threadgroup_memory: Vec<usize>,
    /// How the arguments are passed, in their order.
    pub parameters: Vec<Parameter>,
    /// Bytes of the structure of numbers; 0 where there is none.
    pub numbers: usize,
}

impl Kernel {
    /// A kernel of a text that somebody else wrote. The bound of its threads is the compiler's where `threads` are none.
    pub fn of_text(
        source: impl Into<Arc<str>>,
        entry: &str,
        language: Language,
        threads: Option<Size>,
        parameters: Vec<Parameter>,
    ) -> Kernel {
        let pipeline = PipelineKey {
            source: source.into(),
            entry: entry.to_owned(),
            math: MathMode::Safe,
            language,
            threads: threads.map_or(0, |threads| threads.iter().product()),
            constants: Vec::new(),
        };
        let threads = threads.unwrap_or([1; 3]);
        Kernel { pipeline, threads, threadgroup_memory: Vec::new(), parameters, numbers: 0 }
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.pipeline.entry
    }

    /// Bytes of threadgroup memory that a dispatch gives it.
    pub fn given_threadgroup_memory(&self) -> usize {
        self.threadgroup_memory.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// How many entries of the argument table its parameters take; the structure of numbers has this index.
    pub fn bound(&self) -> usize {
        self.parameters.iter().filter(|parameter| !matches!(parameter, Parameter::Number { .. })).count()
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
    /// Memory of the host, by a number each; the same bytes may be borrowed more than once.
    borrowed: BTreeMap<u64, (Range<usize>, Resolved<B>)>,
}

impl<B> Default for Addresses<B> {
    fn default() -> Addresses<B> {
        Addresses { buffers: BTreeMap::new(), borrowed: BTreeMap::new() }
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

    /// Adds `bytes` bytes at `address` of the host's, which begin `offset` bytes inside a buffer, and gives a number to take them away by.
    pub fn borrow(&mut self, address: usize, bytes: usize, buffer: B, offset: usize) -> u64 {
        let number = self.borrowed.last_key_value().map_or(0, |(last, _)| last + 1);
        let extent = address..address + bytes;
        self.borrowed.insert(number, (extent.clone(), Resolved { buffer, offset, extent }));
        number
    }

    /// Takes borrowed memory away.
    pub fn give_back(&mut self, number: u64) -> Option<B> {
        self.borrowed.remove(&number).map(|(_, place)| place.buffer)
    }

    /// The borrowed memory that `bytes` bytes at `address` lie in: of several, that which reaches furthest.
    fn resolve_borrowed(&self, address: usize, bytes: usize) -> Option<Resolved<B>> {
        let end = address.checked_add(bytes.max(1))?;
        let around = self.borrowed.values().filter(|(extent, _)| extent.start <= address && end <= extent.end);
        let (extent, place) = around.max_by_key(|(extent, _)| extent.end)?;
        Some(Resolved { offset: place.offset + address - extent.start, ..place.clone() })
    }

    /// The buffer that `bytes` bytes at `address` lie in. An empty range may stand at a buffer's very end.
    pub fn resolve(&self, address: usize, bytes: usize) -> Option<Resolved<B>> {
        if let Some(borrowed) = self.resolve_borrowed(address, bytes) {
            return Some(borrowed);
        }
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

/// The argument table of one dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<B> {
    /// Index, memory and whether it may be written. A buffer for nothing stands for pointers that lead nowhere: Metal's validation ends the
    /// process over an index without a buffer, and over an offset at a buffer's end.
    pub buffers: Vec<(usize, Resolved<B>, bool)>,
    /// What is bound in place, with its index: numbers of their own, then the structure of numbers.
    pub bytes: Vec<(usize, Vec<u8>)>,
}

impl<B> Table<B> {
    /// The memory that the dispatch may touch.
    pub fn accesses(&self) -> Vec<Access> {
        let access = |(_, resolved, written): &(usize, Resolved<B>, bool)| Access {
            range: resolved.extent.clone(),
            written: *written,
        };
        self.buffers.iter().map(access).collect()
    }
}

/// Turns a kernel's arguments into its table. `resolve` is asked for each address that is not null, `nothing` gives the buffer that is bound
/// for a null pointer and for one at the very end of its memory.
pub fn bind<B>(
    kernel: &Kernel,
    arguments: &[u64],
    resolve: impl Fn(usize) -> Option<Resolved<B>>,
    nothing: impl Fn() -> Result<B>,
) -> Result<Table<B>> {
    let (expected, given) = (kernel.parameters.len(), arguments.len());
    if expected != given {
        return Err(Error::ArgumentCount { kernel: kernel.name().to_string(), expected, given });
    }
    let last = kernel.bound();
    limits::check_arguments(kernel.name(), last + usize::from(kernel.numbers > 0))?;
    limits::check_bytes(kernel.name(), kernel.numbers)?;
    let mut buffers = Vec::with_capacity(last);
    let (mut numbers, mut bytes) = (vec![0; kernel.numbers], Vec::new());
    for (place, (parameter, &argument)) in kernel.parameters.iter().zip(arguments).enumerate() {
        match *parameter {
            Parameter::Number { offset, size } => {
                numbers[offset..offset + size].copy_from_slice(&argument.to_le_bytes()[..size]);
            }
            Parameter::Value { index, size } => bytes.push((index, argument.to_le_bytes()[..size].to_vec())),
            Parameter::Buffer { index, written } => {
                let address = argument as usize;
                let unknown = || Error::UnknownAddress { kernel: kernel.name().to_string(), index: place, address };
                let found = if address == 0 { None } else { Some(resolve(address).ok_or_else(unknown)?) };
                buffers.push(match found.filter(|found| found.extent.end != address) {
                    Some(found) => (index, found, written),
                    None => (index, Resolved { buffer: nothing()?, offset: 0, extent: 0..0 }, false),
                });
            }
        }
    }
    if kernel.numbers > 0 {
        bytes.push((last, numbers));
    }
    Ok(Table { buffers, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(parameters: Vec<Parameter>) -> Kernel {
        let pipeline = PipelineKey {
            source: "kernel void k() {}".into(),
            entry: "k".to_string(),
            math: MathMode::Safe,
            language: Language::Metal3_0,
            threads: 256,
            constants: Vec::new(),
        };
        let sizes = parameters.iter().map(|parameter| match parameter {
            Parameter::Number { offset, size } => offset + size,
            Parameter::Buffer { .. } | Parameter::Value { .. } => 0,
        });
        let numbers = sizes.max().unwrap_or(0);
        Kernel { pipeline, threads: [256, 1, 1], threadgroup_memory: Vec::new(), parameters, numbers }
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
    fn lent_memory_is_known_until_it_is_given_back() {
        let mut addresses = addresses();
        let found = |addresses: &Addresses<char>, address, bytes| {
            addresses.resolve(address, bytes).map(|found| (found.buffer, found.offset, found.extent))
        };
        // Behind the end of another buffer, and the same bytes twice.
        let short = addresses.borrow(0x1140, 0x10, 'c', 0x140);
        let long = addresses.borrow(0x1140, 0x20, 'd', 0x140);
        assert_eq!(found(&addresses, 0x1140, 0), Some(('d', 0x140, 0x1140..0x1160)));
        assert_eq!(found(&addresses, 0x1158, 8), Some(('d', 0x158, 0x1140..0x1160)));
        assert_eq!(found(&addresses, 0x1158, 9), None);
        assert_eq!(addresses.give_back(long), Some('d'));
        assert_eq!(found(&addresses, 0x1144, 4), Some(('c', 0x144, 0x1140..0x1150)));
        assert_eq!(addresses.give_back(short), Some('c'));
        assert_eq!(addresses.give_back(short), None);
        assert_eq!(found(&addresses, 0x1144, 4), None);
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
    fn arguments_become_buffers_and_a_structure_of_numbers() {
        let buffer = |index, written| Parameter::Buffer { index, written };
        let kernel = kernel(vec![
            buffer(0, false),
            Parameter::Number { offset: 0, size: 4 },
            buffer(1, true),
            buffer(2, true),
            Parameter::Number { offset: 8, size: 8 },
            Parameter::Number { offset: 4, size: 2 },
        ]);
        let addresses = addresses();
        let arguments = [0x1010, 0xffff_fffe, 0x1104, 0, 0x0102_0304_0506_0708, 0xaabb_ccdd];
        let table = bind(&kernel, &arguments, |address| addresses.resolve(address, 0), || Ok('n')).unwrap();
        let places: Vec<_> =
            table.buffers.iter().map(|(index, found, _)| (*index, found.buffer, found.offset)).collect();
        assert_eq!(places, [(0, 'a', 0x10), (1, 'b', 4), (2, 'n', 0)]);
        let expected = vec![0xfe, 0xff, 0xff, 0xff, 0xdd, 0xcc, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(table.bytes, [(3, expected)]);
        let expected = [(0x1000..0x1100, false), (0x1100..0x1140, true), (0..0, false)]
            .map(|(range, written)| Access { range, written });
        assert_eq!(table.accesses(), expected);
    }

    #[test]
    fn pointers_that_lead_nowhere_are_bound_to_nothing() {
        let kernel = kernel([0, 1, 2].map(|index| Parameter::Buffer { index, written: true }).to_vec());
        let addresses = addresses();
        // Null, the end of the last buffer, and the end of one where another begins.
        let arguments = [0, 0x1140, 0x1100];
        let table = bind(&kernel, &arguments, |address| addresses.resolve(address, 0), || Ok('n')).unwrap();
        let bound: Vec<_> =
            table.buffers.iter().map(|(index, found, _)| (*index, found.buffer, found.offset)).collect();
        assert_eq!(bound, [(0, 'n', 0), (1, 'n', 0), (2, 'b', 0)]);
    }

    #[test]
    fn numbers_of_their_own_have_their_own_index() {
        let kernel = kernel(vec![
            Parameter::Value { index: 0, size: 4 },
            Parameter::Buffer { index: 1, written: true },
            Parameter::Value { index: 2, size: 2 },
        ]);
        let addresses = addresses();
        let table =
            bind(&kernel, &[0x1122_3344_5566, 0x1000, 7], |address| addresses.resolve(address, 0), || Ok('n')).unwrap();
        assert_eq!(table.bytes, [(0, vec![0x66, 0x55, 0x44, 0x33]), (2, vec![7, 0])]);
        assert_eq!((table.buffers.len(), table.buffers[0].0), (1, 1));
    }

    #[test]
    fn wrong_arguments_are_named() {
        let buffer = |index| Parameter::Buffer { index, written: false };
        let one = kernel(vec![buffer(0)]);
        let bind = |kernel: &Kernel, arguments: &[u64], resolve: fn(usize) -> Option<Resolved<char>>| {
            super::bind(kernel, arguments, resolve, || Ok('n'))
        };
        let none = |_: usize| None::<Resolved<char>>;
        let text = |result: Result<Table<char>>| result.unwrap_err().to_string();
        assert_eq!(text(bind(&one, &[], none)), "k takes 1 arguments, 0 were given");
        assert_eq!(
            text(bind(&one, &[0x77], none)),
            "k: argument 0 is the address 0x77, which lies in no buffer of the device"
        );
        let many = kernel((0..32).map(buffer).collect());
        assert_eq!(text(bind(&many, &[0; 32], none)), "k: bound arguments is 32, 1 more than the limit of 31");
        let large = kernel(vec![Parameter::Number { offset: 4096, size: 4 }]);
        assert_eq!(text(bind(&large, &[0], none)), "k: bytes bound in place is 4100, 4 more than the limit of 4096");
    }
}
