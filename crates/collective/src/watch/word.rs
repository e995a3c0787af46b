//! The words that ranks say to each other, as bytes.

use crate::program::Kind;

/// Bytes of a word.
pub(super) const WORD: usize = 512;
/// Bytes of the text in it.
const TEXT: usize = WORD - 24;

/// What a rank is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doing {
    /// The kind of the operation; none between two.
    pub kind: Option<Kind>,
    /// Its number, or that of the last one.
    pub sequence: u64,
    /// The rank that it waits for.
    pub waits_for: Option<usize>,
}

impl Doing {
    pub fn describe(self) -> String {
        match self.kind {
            None if self.sequence == 0 => "no operation yet".to_owned(),
            None => format!("no operation since number {}", self.sequence),
            Some(kind) if self.sequence == 0 => kind.name().to_owned(),
            Some(kind) => format!("{} (operation {})", kind.name(), self.sequence),
        }
    }
}

/// One word from rank to rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A sign of life.
    Doing(Doing),
    /// This rank leaves.
    Farewell,
    /// This rank has failed because of a rank.
    Failed { rank: usize, text: String },
}

impl Word {
    /// As bytes.
    pub fn encode(&self) -> [u8; WORD] {
        let mut bytes = [0; WORD];
        let number = |rank: Option<usize>| rank.map_or(u64::MAX, |rank| rank as u64).to_le_bytes();
        match self {
            Word::Doing(doing) => {
                bytes[0] = 1;
                bytes[1] = doing.kind.map_or(0, |kind| kind as u8);
                bytes[8..16].copy_from_slice(&doing.sequence.to_le_bytes());
                bytes[16..24].copy_from_slice(&number(doing.waits_for));
            }
            Word::Farewell => bytes[0] = 2,
            Word::Failed { rank, text } => {
                let end = (0..=text.len().min(TEXT)).rfind(|&end| text.is_char_boundary(end)).unwrap_or(0);
                let text = &text.as_bytes()[..end];
                bytes[0] = 3;
                bytes[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
                bytes[16..24].copy_from_slice(&number(Some(*rank)));
                bytes[24..24 + text.len()].copy_from_slice(text);
            }
        }
        bytes
    }

    /// From bytes of a rank among so many; none where they are no word.
    pub fn decode(bytes: &[u8; WORD], ranks: usize) -> Option<Word> {
        let number = |begin: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[begin + byte]));
        let rank = usize::try_from(number(16)).ok().filter(|&rank| rank < ranks);
        match bytes[0] {
            1 => {
                let kind = if bytes[1] == 0 { None } else { Some(Kind::from_number(bytes[1])?) };
                Some(Word::Doing(Doing { kind, sequence: number(8), waits_for: rank }))
            }
            2 => Some(Word::Farewell),
            3 => {
                let length = usize::try_from(number(8)).ok().filter(|&length| length <= TEXT)?;
                let text = String::from_utf8_lossy(&bytes[24..24 + length]).into_owned();
                Some(Word::Failed { rank: rank?, text })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_their_bytes_and_others_are_refused() {
        let doing = Doing { kind: Some(Kind::Reduce), sequence: 9, waits_for: Some(1) };
        let long = "ü".repeat(400);
        for word in [Word::Doing(doing), Word::Farewell, Word::Failed { rank: 1, text: "it broke".to_owned() }] {
            assert_eq!(Word::decode(&word.encode(), 2), Some(word));
        }
        let Some(Word::Failed { text, .. }) = Word::decode(&Word::Failed { rank: 0, text: long.clone() }.encode(), 1)
        else {
            panic!("it is a word");
        };
        assert!(long.starts_with(&text) && text.len() > TEXT - 4, "{}", text.len());
        // A rank that there is not.
        assert_eq!(Word::decode(&Word::Failed { rank: 5, text: String::new() }.encode(), 2), None);
        let mut random = fastrand::Rng::with_seed(1);
        let refused = (0..5_000).filter(|_| Word::decode(&std::array::from_fn(|_| random.u8(..)), 4).is_none()).count();
        assert!(refused > 4_900, "{refused}");
    }
}
