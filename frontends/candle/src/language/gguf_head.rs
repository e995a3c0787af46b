//! What must be right of a GGUF file's head before candle-core reads it.

use candle_core::{Result, bail};

/// The setting that says at multiples of how many bytes tensors lie. candle-core divides by it.
const ALIGNMENT: &str = "general.alignment";

/// The numbers of two types of values: the others have one size.
const TEXT: u64 = 8;
const LIST: u64 = 9;

/// Refuses tensors at multiples of no bytes. A head that ends too early, or is none, is left to candle-core, which says what is wrong with it.
pub(super) fn check_alignment(file: &[u8]) -> Result<()> {
    match (Head { rest: file, length_bytes: 8 }).is_alignment_zero() {
        Some(true) => bail!("{ALIGNMENT} of the GGUF file is 0, expected at least 1"),
        _ => Ok(()),
    }
}

/// What is left of a head.
struct Head<'a> {
    rest: &'a [u8],
    /// Bytes of the numbers that say how long something is.
    length_bytes: u64,
}

impl<'a> Head<'a> {
    /// Whether one of the settings says so; none where the head ends before its settings do.
    fn is_alignment_zero(&mut self) -> Option<bool> {
        self.take(4)?;
        // The first version of the format had shorter ones.
        self.length_bytes = if self.number(4)? == 1 { 4 } else { 8 };
        let _tensors = self.length()?;
        for _ in 0..self.length()? {
            let name = self.text()?;
            // As candle-core reads it: without zeros at the end.
            let end = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let kind = self.number(4)?;
            let begin = self.rest;
            self.skip(kind)?;
            let value = &begin[..begin.len() - self.rest.len()];
            let is_number = !matches!(kind, TEXT | LIST);
            if is_number && &name[..end] == ALIGNMENT.as_bytes() && value.iter().all(|&byte| byte == 0) {
                return Some(true);
            }
        }
        Some(false)
    }

    fn take(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(bytes).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: u64) -> Option<u64> {
        Some(self.take(bytes)?.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn length(&mut self) -> Option<u64> {
        self.number(self.length_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    /// Goes past a value of this type. Lists may lie in lists, as deep as the file is long: those that are not at their end yet are listed.
    fn skip(&mut self, kind: u64) -> Option<()> {
        let mut open = vec![(kind, 1)];
        while let Some((kind, count)) = open.pop() {
            match kind {
                _ if count == 0 => {}
                TEXT => (0..count).try_for_each(|_| self.text().map(drop))?,
                LIST => {
                    open.push((LIST, count - 1));
                    open.push((self.number(4)?, self.length()?));
                }
                _ => drop(self.take(size(kind)?.checked_mul(count)?)?),
            }
        }
        Some(())
    }
}

/// Bytes of a number of this type.
fn size(kind: u64) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
