//! What can be wrong with a text.

use thiserror::Error;

/// A text that is no module of this language.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}line {line}, column {column}: {problem}", place(source_line))]
pub struct ParseError {
    /// Line of the text, from 1.
    pub line: usize,
    /// Column of the text, from 1.
    pub column: usize,
    /// The line of the program that the text was made from, as `file:line:column`, where the text says it.
    pub source_line: Option<String>,
    /// Which word or operation cannot be read, and why.
    pub problem: String,
}

fn place(source_line: &Option<String>) -> String {
    source_line.as_ref().map(|line| format!("{line}: ")).unwrap_or_default()
}

impl ParseError {
    /// A problem at a byte of the text.
    pub(super) fn at(text: &str, offset: usize, problem: impl Into<String>) -> ParseError {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|&&byte| byte != b'\n').count();
        ParseError { line, column, source_line: None, problem: problem.into() }
    }
}
