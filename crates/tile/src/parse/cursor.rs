//! A place in a text, and the small steps of reading on from it.

use super::error::ParseError;
use super::locations::Locations;

/// The end of a line is looked for so far: a line of a location and a long list of types has a few thousand bytes.
const LONGEST_LINE: usize = 16 << 10;

pub type Read<T> = Result<T, ParseError>;

/// A place in a text.
#[derive(Clone)]
pub struct Cursor<'t> {
    text: &'t str,
    at: usize,
    locations: &'t Locations<'t>,
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str, locations: &'t Locations<'t>) -> Cursor<'t> {
        Cursor { text, at: 0, locations }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// A problem at this place.
    pub fn error(&self, problem: impl Into<String>) -> ParseError {
        ParseError::at(self.text, self.at, problem)
    }

    /// An operation that is not covered. The source line is that of the next location in the text, the operation's own.
    pub fn refuse(&self, operation: &str, why: impl std::fmt::Display) -> ParseError {
        let mut error = self.error(format!("{operation}: {why}"));
        error.source_line = self.next_location();
        error
    }

    /// This place, to come back to for an error.
    pub fn mark(&self) -> Mark {
        Mark(self.at)
    }

    /// The line of the program that this line of the text was made from.
    pub fn source_line(&self) -> Option<String> {
        self.next_location()
    }

    /// How far this place is behind another one.
    pub fn bytes_since(&self, start: &Cursor) -> usize {
        self.at.saturating_sub(start.at)
    }

    /// Moves from a function's parameters to behind its body.
    pub fn skip_function(&mut self) -> Read<()> {
        let (mut depth, mut in_string) = (0_usize, false);
        let mut in_parentheses = 0_usize;
        for (i, c) in self.rest().char_indices() {
            match c {
                '"' => in_string = !in_string,
                _ if in_string => {}
                '(' => in_parentheses += 1,
                ')' => in_parentheses = in_parentheses.saturating_sub(1),
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    // Attributes in braces may stand before the body, on its first line.
                    let rest = &self.rest()[i + 1..];
                    if depth == 0 && in_parentheses == 0 && !rest.trim_start_matches(' ').starts_with('{') {
                        self.at += i + 1;
                        return self.skip_location();
                    }
                }
                _ => {}
            }
        }
        Err(self.error("a function without end"))
    }

    /// The lines from here to the closing brace that stand in no braces of their own, each with the place where it begins.
    pub fn own_lines(&self) -> Vec<(Cursor<'t>, &'t str)> {
        let (mut depth, mut at, mut lines) = (0_i64, self.at, Vec::new());
        for line in self.rest().split_inclusive('\n') {
            if depth == 0 {
                lines.push((Cursor { text: self.text, at, locations: self.locations }, line));
            }
            let mut in_string = false;
            for byte in line.bytes() {
                match byte {
                    b'"' => in_string = !in_string,
                    b'{' if !in_string => depth += 1,
                    b'}' if !in_string => depth -= 1,
                    _ => {}
                }
            }
            if depth < 0 {
                break;
            }
            at += line.len();
        }
        lines
    }

    /// The location at the end of this line.
    fn next_location(&self) -> Option<String> {
        let rest = self.rest();
        let end = rest.bytes().take(LONGEST_LINE).position(|byte| byte == b'\n');
        let line = &rest[..end.or((rest.len() < LONGEST_LINE).then_some(rest.len()))?];
        let inner = line.rsplit_once(" loc(")?.1.trim_end();
        self.locations.resolve(inner.strip_suffix(')')?)
    }

    /// What comes next, for an error.
    pub fn found(&self) -> String {
        let next: String = self.rest().trim_start().chars().take_while(|c| !c.is_whitespace()).take(40).collect();
        if next.is_empty() { "the end of the text".to_owned() } else { format!("`{next}`") }
    }

    /// Moves to the next line that begins with a word.
    pub fn skip_until(&mut self, word: &str) -> Read<()> {
        loop {
            self.skip_space();
            if self.rest().is_empty() {
                return Err(self.error(format!("no `{word}` in the text")));
            }
            if self.rest().starts_with(word) {
                return Ok(());
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// Whether this text comes next.
    pub fn looking_at(&mut self, text: &str) -> bool {
        self.skip_space();
        self.rest().starts_with(text)
    }

    /// Takes this text if it comes next; a word must end where the text ends.
    pub fn take(&mut self, text: &str) -> bool {
        let is_word = text.ends_with(|c: char| c.is_alphanumeric());
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        let found = self.looking_at(text) && (!is_word || ends(&self.rest()[text.len()..]));
        if found {
            self.at += text.len();
        }
        found
    }

    /// Takes this text or fails.
    pub fn expect(&mut self, text: &str) -> Read<()> {
        if self.take(text) { Ok(()) } else { Err(self.error(format!("{}, expected `{text}`", self.found()))) }
    }

    /// Characters as long as they are of a kind; possibly none.
    fn run(&mut self, of: impl Fn(char) -> bool) -> &'t str {
        self.skip_space();
        let rest = self.rest();
        let run = &rest[..rest.find(|c| !of(c)).unwrap_or(rest.len())];
        self.at += run.len();
        run
    }

    /// A word: letters, digits, underscores and dots.
    pub fn word(&mut self) -> &'t str {
        self.run(|c| c.is_alphanumeric() || c == '_' || c == '.')
    }

    /// A value's name after `%`, with the number of a result (`%0#1`).
    pub fn value(&mut self) -> Read<&'t str> {
        self.expect("%")?;
        let name = self.run(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '#' | '-' | '$'));
        if name.is_empty() { Err(self.error(format!("{}, expected a value's name", self.found()))) } else { Ok(name) }
    }

    /// A function's name after `@`, in quotes where it has signs that a word has not.
    pub fn symbol(&mut self) -> Read<&'t str> {
        self.expect("@")?;
        if self.looking_at("\"") { self.string() } else { Ok(self.word()) }
    }

    /// Digits, and what else a number has.
    pub fn number(&mut self) -> &'t str {
        self.run(|c| c.is_alphanumeric() || matches!(c, '-' | '+' | '.'))
    }

    /// An integer.
    pub fn integer(&mut self) -> Read<i64> {
        let text = self.number();
        text.parse().map_err(|_| self.error(format!("`{text}` is no integer")))
    }

    /// Decimal digits only, as in `1024x`.
    pub fn digits(&mut self) -> Read<usize> {
        let text = self.run(|c| c.is_ascii_digit());
        text.parse().map_err(|_| self.error(format!("{}, expected a number", self.found())))
    }

    /// Whether a digit comes next.
    pub fn looking_at_digit(&mut self) -> bool {
        self.skip_space();
        self.rest().starts_with(|c: char| c.is_ascii_digit())
    }

    /// The x between dimensions, which has no space after it.
    pub fn expect_x(&mut self) -> Read<()> {
        if self.rest().starts_with('x') {
            self.at += 1;
            return Ok(());
        }
        Err(self.error(format!("{}, expected `x` after a dimension", self.found())))
    }

    /// The text between quotes that come next.
    pub fn string(&mut self) -> Read<&'t str> {
        self.expect("\"")?;
        let Some(end) = self.rest().find('"') else { return Err(self.error("a text without end")) };
        let text = &self.rest()[..end];
        self.at += end + 1;
        Ok(text)
    }

    /// Moves over an attribute dictionary.
    pub fn skip_braces(&mut self) -> Read<()> {
        self.attributes().map(|_| ())
    }

    /// The text between braces that come next, without them; strings and nested braces are respected.
    pub fn attributes(&mut self) -> Read<&'t str> {
        self.expect("{")?;
        let (mut depth, mut in_string) = (1, false);
        for (i, c) in self.rest().char_indices() {
            match c {
                '"' => in_string = !in_string,
                '{' if !in_string => depth += 1,
                '}' if !in_string => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let inner = &self.rest()[..i];
                self.at += i + 1;
                return Ok(inner);
            }
        }
        Err(self.error("an attribute dictionary without end"))
    }

    /// Moves over `loc(..)`, if it comes next.
    pub fn skip_location(&mut self) -> Read<()> {
        if !self.take("loc(") {
            return Ok(());
        }
        let (mut depth, mut in_string) = (1, false);
        for (i, c) in self.rest().char_indices() {
            match c {
                '"' => in_string = !in_string,
                '(' if !in_string => depth += 1,
                ')' if !in_string => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.at += i + 1;
                return Ok(());
            }
        }
        Err(self.error("a location without end"))
    }
}

/// A place in the text.
pub struct Mark(usize);

impl Mark {
    /// As [`Cursor::refuse`], at this place.
    pub fn refuse(&self, cursor: &Cursor, operation: &str, why: impl std::fmt::Display) -> ParseError {
        let here = Cursor { text: cursor.text, at: self.0, locations: cursor.locations };
        here.refuse(operation, why)
    }
}
