//! One setting: what it is called, what it may be, and its value.

use crate::environment;
use crate::kind::Kind;
use std::ffi::OsStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whom a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Audience {
    /// Everyone.
    Everyone,
    /// Authors of kernels.
    KernelAuthors,
    /// Users of Metal and of its emulator.
    Metal,
    /// The tests and measurements of openmps itself.
    Tests,
}

impl Audience {
    /// All, in the order of the documents.
    pub const ALL: [Audience; 4] = [Audience::Everyone, Audience::KernelAuthors, Audience::Metal, Audience::Tests];

    /// A heading.
    pub const fn title(self) -> &'static str {
        match self {
            Audience::Everyone => "For everyone",
            Audience::KernelAuthors => "For authors of kernels",
            Audience::Metal => "For Metal and its emulator",
            Audience::Tests => "Of the tests and measurements of openmps itself",
        }
    }
}

/// A row of the table.
pub struct Setting<K: Kind> {
    pub(crate) name: &'static str,
    pub(crate) kind: K,
    /// What holds where the variable is not set.
    pub(crate) default: &'static str,
    /// What a wrong value does; empty: what holds where the variable is not set.
    pub(crate) instead: &'static str,
    /// The folders that read it.
    pub(crate) reader: &'static str,
    pub(crate) audience: Audience,
    pub(crate) meaning: &'static str,
    /// The table that it is a row of: all of its rows are checked when a value is first asked for.
    pub(crate) table: fn() -> &'static [&'static dyn Row],
    pub(crate) value: OnceLock<Result<Option<K::Value>, String>>,
    pub(crate) reported: AtomicBool,
}

/// What all settings have in common.
pub trait Row: Sync {
    /// The variable.
    fn name(&self) -> &'static str;
    /// What holds where it is not set.
    fn default(&self) -> &'static str;
    /// The folders that read it.
    fn reader(&self) -> &'static str;
    /// Whom it is for.
    fn audience(&self) -> Audience;
    /// What it changes, in a sentence.
    fn meaning(&self) -> &'static str;
    /// What is allowed.
    fn rule(&self) -> String;
    /// `NAME=..` as a table shows it.
    fn example(&self) -> String;
    /// The checked value as a text; none where it is not set or wrong.
    fn text(&'static self) -> Option<String>;
    /// Why a text is not allowed, and what is used instead.
    fn problem(&self, text: &OsStr) -> Option<String>;
    /// Says a problem once on standard error.
    fn report(&self, problem: &str);
}

impl<K: Kind> Setting<K> {
    /// The value; none where the variable is not set, or wrong.
    pub fn get(&'static self) -> Option<K::Value> {
        self.checked().ok().flatten()
    }

    /// The value; none where the variable is not set, an error that says everything where it is wrong.
    pub fn checked(&'static self) -> Result<Option<K::Value>, String> {
        environment::look_through((self.table)());
        let value = self.value.get_or_init(|| {
            let Some(text) = std::env::var_os(self.name).filter(|text| !self.is_unset(text)) else { return Ok(None) };
            let problem = || self.problem(&text).unwrap_or_default();
            self.kind.read(&text).map(Some).ok_or_else(problem).inspect_err(|problem| self.report(problem))
        });
        value.clone()
    }

    fn is_unset(&self, text: &OsStr) -> bool {
        !K::EMPTY_IS_A_VALUE && text.to_str().is_some_and(|text| text.trim().is_empty())
    }
}

impl<K: Kind> Row for Setting<K> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn default(&self) -> &'static str {
        self.default
    }

    fn reader(&self) -> &'static str {
        self.reader
    }

    fn audience(&self) -> Audience {
        self.audience
    }

    fn meaning(&self) -> &'static str {
        self.meaning
    }

    fn rule(&self) -> String {
        self.kind.rule()
    }

    fn example(&self) -> String {
        format!("{}={}", self.name, self.kind.example())
    }

    fn text(&'static self) -> Option<String> {
        self.get().map(|value| self.kind.text(&value))
    }

    fn problem(&self, text: &OsStr) -> Option<String> {
        if self.is_unset(text) || self.kind.read(text).is_some() {
            return None;
        }
        let instead = if self.instead.is_empty() { self.default } else { self.instead };
        Some(format!("{}={text:?} is not allowed: {}; used instead: {instead}", self.name, self.kind.allowed()))
    }

    fn report(&self, problem: &str) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            environment::say(problem);
        }
    }
}
