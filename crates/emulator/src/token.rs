//! Words, numbers, strings and single signs of Metal Shading Language text, with their places; comments and lines of the preprocessor are
//! left out, and what its line markers say is followed.

/// One word or sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub text: &'a str,
    /// Where it begins, in bytes.
    pub at: usize,
    pub line: u32,
}

impl Token<'_> {
    /// Where it ends.
    pub(crate) fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// Whether it is a name or a keyword.
    pub(crate) fn is_name(&self) -> bool {
        self.text.starts_with(|sign: char| sign.is_ascii_alphabetic() || sign == '_')
    }
}

/// The tokens of a text.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let begin = at;
        let skipped = skipped(text, at).min(bytes.len());
        if skipped > at {
            let marked = (bytes[at] == b'#').then(|| marked_line(&text[at..skipped])).flatten();
            line += bytes[begin..skipped].iter().filter(|byte| **byte == b'\n').count() as u32;
            if let Some(marked) = marked {
                // The marker's own line ends after this.
                line = marked.wrapping_sub(1);
            }
            at = skipped;
            continue;
        }
        at = end_of_token(text, at);
        tokens.push(Token { text: &text[begin..at], at: begin, line });
    }
    tokens
}

/// Where spaces, a comment or a line of the preprocessor end that begin here; the same place where none begins.
fn skipped(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    match bytes[at] {
        b'/' if bytes.get(at + 1) == Some(&b'/') => until(text, at, "\n"),
        b'/' if bytes.get(at + 1) == Some(&b'*') => until(text, at + 2, "*/") + 2,
        b'#' => line_end(text, at),
        byte if byte.is_ascii_whitespace() => at + 1,
        _ => at,
    }
}

/// Where the token ends that begins here.
fn end_of_token(text: &str, begin: usize) -> usize {
    let bytes = text.as_bytes();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut at = begin + 1;
    match bytes[begin] {
        byte if byte.is_ascii_digit() || byte == b'.' && bytes.get(at).is_some_and(u8::is_ascii_digit) => {
            // As the preprocessor reads numbers: a sign may follow the letter of an exponent.
            let goes_on = |at: usize| {
                let sign = matches!(bytes[at], b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E' | b'p' | b'P');
                is_word(&bytes[at]) || bytes[at] == b'.' || sign
            };
            while at < bytes.len() && goes_on(at) {
                at += 1;
            }
        }
        b'"' => {
            while at < bytes.len() && bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at = (at + 1).min(bytes.len());
        }
        b'-' if bytes.get(at) == Some(&b'>') => at += 1,
        byte if is_word(&byte) => at += bytes[at..].iter().take_while(|byte| is_word(byte)).count(),
        _ => {}
    }
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// The number of `# 12 "file"`.
fn marked_line(text: &str) -> Option<u32> {
    text[1..].split_whitespace().next()?.parse().ok()
}

/// The end of a preprocessor's line, which goes on after a backslash.
fn line_end(text: &str, from: usize) -> usize {
    let mut end = until(text, from, "\n");
    while text[..end].trim_end_matches('\r').ends_with('\\') && end < text.len() {
        end = until(text, end + 1, "\n");
    }
    end
}

fn until(text: &str, from: usize, end: &str) -> usize {
    text.as_bytes()[from.min(text.len())..]
        .windows(end.len())
        .position(|window| window == end.as_bytes())
        .map_or(text.len(), |at| from + at)
}

/// Where the bracket closes that opens at `open`, one of `( [ { <`. Comparisons inside round, square or curly brackets close no `<`.
pub(crate) fn closing(tokens: &[Token], open: usize) -> Option<usize> {
    let end = match tokens.get(open)?.text {
        "(" => ")",
        "[" => "]",
        "{" => "}",
        "<" => ">",
        _ => return None,
    };
    let mut at = open + 1;
    while at < tokens.len() {
        match tokens[at].text {
            text if text == end => return Some(at),
            "(" | "[" | "{" => at = closing(tokens, at)?,
            "<" if end == ">" => at = closing(tokens, at)?,
            ")" | "]" | "}" => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

/// Tokens as text, with a space between them.
pub(crate) fn join(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text).collect::<Vec<_>>().join(" ")
}

/// Tokens as they are written, without comments and ends of lines.
pub(crate) fn written(tokens: &[Token]) -> String {
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate() {
        if at > 0 && tokens[at - 1].end() != token.at {
            text.push(' ');
        }
        text.push_str(token.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(&str, u32)> {
        tokens(text).iter().map(|token| (token.text, token.line)).collect()
    }

    #[test]
    fn comments_and_directives_are_left_out() {
        assert_eq!(
            words("a // b\n/* c\n */ d #x \\\n y\ne->f \"g h\""),
            [("a", 1), ("d", 3), ("e", 5), ("->", 5), ("f", 5), ("\"g h\"", 5)]
        );
        assert_eq!(words("a\n# 7 \"file\" 2\nb\n\nc\n#pragma unroll\nd"), [("a", 1), ("b", 7), ("c", 9), ("d", 11)]);
    }

    #[test]
    fn numbers_are_one_token() {
        let texts = |text| words(text).iter().map(|(word, _)| *word).collect::<Vec<_>>();
        assert_eq!(
            texts("1.5e-3f-.5+0x1p-3*a.x-1"),
            ["1.5e-3f", "-", ".5", "+", "0x1p-3", "*", "a", ".", "x", "-", "1"]
        );
    }

    #[test]
    fn brackets_close() {
        let tokens = tokens("f<A<(1 > 2)>, B> (x[1 < 2])");
        assert_eq!((closing(&tokens, 1), closing(&tokens, 3), closing(&tokens, 13)), (Some(12), Some(9), Some(20)));
        assert_eq!(closing(&tokens[..9], 1), None);
    }
}
