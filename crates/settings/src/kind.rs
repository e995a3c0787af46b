//! What the value of a setting may be.

use std::ffi::OsStr;
use std::path::PathBuf;

/// A kind of value.
pub trait Kind: Sync + 'static {
    /// What a program gets.
    type Value: Clone + Send + Sync;
    /// Whether an empty variable is a value; elsewhere it is one that is not set.
    const EMPTY_IS_A_VALUE: bool = false;

    /// The value of a text; none where it is not allowed.
    fn read(&self, text: &OsStr) -> Option<Self::Value>;
    /// The value as a text that `read` reads.
    fn text(&self, value: &Self::Value) -> String;
    /// What is allowed, on this machine.
    fn allowed(&self) -> String {
        self.rule()
    }
    /// What is allowed, on every machine.
    fn rule(&self) -> String;
    /// What stands behind the equals sign in a table.
    fn example(&self) -> String;
}

/// One of some words.
pub struct Choice(pub &'static [&'static str]);

impl Kind for Choice {
    type Value = &'static str;

    fn read(&self, text: &OsStr) -> Option<&'static str> {
        let text = text.to_str()?.trim();
        self.0.iter().copied().find(|word| *word == text)
    }

    fn text(&self, value: &&'static str) -> String {
        (*value).to_owned()
    }

    fn rule(&self) -> String {
        self.0.join(", ")
    }

    fn example(&self) -> String {
        self.0.join("|")
    }
}

/// On or off.
pub struct Switch;

impl Kind for Switch {
    type Value = bool;

    fn read(&self, text: &OsStr) -> Option<bool> {
        match text.to_str()?.trim().to_ascii_lowercase().as_str() {
            "1" | "on" | "true" | "yes" => Some(true),
            "0" | "off" | "false" | "no" => Some(false),
            _ => None,
        }
    }

    fn text(&self, value: &bool) -> String {
        u8::from(*value).to_string()
    }

    fn rule(&self) -> String {
        "0 or 1".to_owned()
    }

    fn example(&self) -> String {
        "0|1".to_owned()
    }
}

/// The largest value of a number.
pub enum Most {
    /// This.
    Is(usize),
    /// So many for each CPU, but no fewer than `at_least`.
    ForEachCpu { times: usize, at_least: usize },
}

/// A whole number from 1.
pub struct Number(pub Most);

impl Number {
    fn most(&self) -> usize {
        match self.0 {
            Most::Is(most) => most,
            Most::ForEachCpu { times, at_least } => {
                let cpus = std::thread::available_parallelism().map_or(1, usize::from);
                cpus.saturating_mul(times).max(at_least)
            }
        }
    }
}

impl Kind for Number {
    type Value = usize;

    fn read(&self, text: &OsStr) -> Option<usize> {
        let number = text.to_str()?.trim().parse().ok()?;
        (1..=self.most()).contains(&number).then_some(number)
    }

    fn text(&self, value: &usize) -> String {
        value.to_string()
    }

    fn allowed(&self) -> String {
        format!("1 to {}", self.most())
    }

    fn rule(&self) -> String {
        match self.0 {
            Most::Is(most) => format!("1 to {most}"),
            Most::ForEachCpu { times, at_least } => format!("1 to {times} for each CPU, or to {at_least}"),
        }
    }

    fn example(&self) -> String {
        "n".to_owned()
    }
}

/// A number of bytes with an optional unit.
pub struct Size;

impl Kind for Size {
    type Value = usize;

    fn read(&self, text: &OsStr) -> Option<usize> {
        let text = text.to_str()?.trim();
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let shift = match unit.trim().to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return None,
        };
        let bytes = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
        (bytes >= 1.0 && bytes < usize::MAX as f64).then_some(bytes as usize)
    }

    fn text(&self, value: &usize) -> String {
        value.to_string()
    }

    fn rule(&self) -> String {
        "a number of bytes, or one with K, M, G or T (powers of 1024)".to_owned()
    }

    fn example(&self) -> String {
        "8G".to_owned()
    }
}

/// A file or folder, named as in `example`.
pub struct Path(pub &'static str);

impl Kind for Path {
    type Value = PathBuf;

    fn read(&self, text: &OsStr) -> Option<PathBuf> {
        Some(text.into())
    }

    fn text(&self, value: &PathBuf) -> String {
        value.to_string_lossy().into_owned()
    }

    fn rule(&self) -> String {
        "a path".to_owned()
    }

    fn example(&self) -> String {
        self.0.to_owned()
    }
}

/// A folder, or nothing for none.
pub struct FolderOrNone;

impl Kind for FolderOrNone {
    type Value = Option<PathBuf>;
    const EMPTY_IS_A_VALUE: bool = true;

    fn read(&self, text: &OsStr) -> Option<Option<PathBuf>> {
        Some((!text.is_empty()).then(|| text.into()))
    }

    fn text(&self, value: &Option<PathBuf>) -> String {
        value.as_ref().map_or_else(String::new, |path| path.to_string_lossy().into_owned())
    }

    fn rule(&self) -> String {
        "a path, or empty for none".to_owned()
    }

    fn example(&self) -> String {
        "folder".to_owned()
    }
}

/// Any text.
pub struct Text;

impl Kind for Text {
    type Value = String;

    fn read(&self, text: &OsStr) -> Option<String> {
        Some(text.to_string_lossy().into_owned())
    }

    fn text(&self, value: &String) -> String {
        value.clone()
    }

    fn rule(&self) -> String {
        "any text".to_owned()
    }

    fn example(&self) -> String {
        "text".to_owned()
    }
}

/// What is logged: a level, or targets with levels.
pub struct Log;

impl Log {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
}

impl Kind for Log {
    type Value = String;

    fn read(&self, text: &OsStr) -> Option<String> {
        let text = text.to_str()?.trim();
        let level = |word: &str| Log::LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let of_target =
            |item: &str| item.split_once('=').is_some_and(|(target, word)| !target.is_empty() && level(word));
        text.split(',').all(|item| level(item) || of_target(item)).then(|| text.to_owned())
    }

    fn text(&self, value: &String) -> String {
        value.clone()
    }

    fn rule(&self) -> String {
        format!("{}, or TARGET=LEVEL,..", Log::LEVELS.join(", "))
    }

    fn example(&self) -> String {
        "info".to_owned()
    }
}

/// The order in which an emulated GPU runs threads, and dispatches that no barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By number.
    Ascending,
    /// By number, from the last.
    Descending,
    /// Shuffled by this number.
    Shuffled(u64),
}

/// The kind of an [`Order`].
pub struct AnOrder;

impl Kind for AnOrder {
    type Value = Order;

    fn read(&self, text: &OsStr) -> Option<Order> {
        match text.to_str()?.trim() {
            "ascending" => Some(Order::Ascending),
            "descending" => Some(Order::Descending),
            number => number.parse().map(Order::Shuffled).ok(),
        }
    }

    fn text(&self, value: &Order) -> String {
        match value {
            Order::Ascending => "ascending".to_owned(),
            Order::Descending => "descending".to_owned(),
            Order::Shuffled(number) => number.to_string(),
        }
    }

    fn rule(&self) -> String {
        "ascending, descending, or a number".to_owned()
    }

    fn example(&self) -> String {
        "ascending|descending|n".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<K: Kind>(kind: &K, text: &str) -> Option<K::Value> {
        kind.read(OsStr::new(text))
    }

    #[test]
    fn sizes() {
        assert_eq!(read(&Size, "8G"), Some(8 << 30));
        assert_eq!(read(&Size, " 512 MiB "), Some(512 << 20));
        assert_eq!(read(&Size, "1.5k"), Some(1536));
        assert_eq!(read(&Size, "4096"), Some(4096));
        for nonsense in ["", "G", "0", "-1G", "8X", "1e400", "1..2G", "999999999T"] {
            assert_eq!(read(&Size, nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        let threads = Number(Most::ForEachCpu { times: 4, at_least: 16 });
        assert_eq!(read(&threads, " 2 "), Some(2));
        for nonsense in ["0", "-1", "two", "", "1000000", "99999999999999999999"] {
            assert_eq!(read(&threads, nonsense), None, "{nonsense}");
        }
        assert_eq!((read(&Number(Most::Is(64)), "64"), read(&Number(Most::Is(64)), "65")), (Some(64), None));
    }

    #[test]
    fn logs_name_levels() {
        for good in ["info", "WARN", "openmps_runtime::stage=info", "warn,a=debug"] {
            assert_eq!(read(&Log, good).as_deref(), Some(good));
        }
        for nonsense in ["inof", "a=b=c", "=info", "a=", "info,"] {
            assert_eq!(read(&Log, nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn switches_and_orders() {
        assert_eq!((read(&Switch, "1"), read(&Switch, "off"), read(&Switch, "maybe")), (Some(true), Some(false), None));
        assert_eq!(read(&AnOrder, "7"), Some(Order::Shuffled(7)));
        assert_eq!(read(&AnOrder, "sideways"), None);
    }
}
