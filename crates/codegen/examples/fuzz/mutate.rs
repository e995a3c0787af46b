//! Mutations of a text: of its characters, its words and numbers, its lines.

use fastrand::Rng;

/// The longest text that is made; repetition would double it again and again.
const LONGEST: usize = 256 << 10;

/// The longest word that takes another's place everywhere.
const LONGEST_WORD: usize = 64;

/// Words that bring a text elsewhere.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "31",
    "32",
    "33",
    "63",
    "64",
    "127",
    "128",
    "1024",
    "1048576",
    "1048577",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "99999999999999999999",
    "0x7FC00000",
    "0xFFFFFFFF",
    "0xFFFFFFFFFFFFFFFF",
    "1.0e400",
    "nan",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "f16",
    "bf16",
    "f32",
    "f64",
    "tensor<",
    "!tt.ptr<",
    "tensor<1xf32>",
    "tensor<0xf32>",
    "tensor<3xf32>",
    "tensor<1x1x1x1x1x1x1x1x1x1x1x1xi1>",
    "tensor<1048576xf32>",
    "tensor<128x!tt.ptr<f32>>",
    "tensor<1024x1024xf64>",
    "tensor<32x64xi64>",
    "tt.reduce",
    "tt.scan",
    "tt.dot",
    "tt.trans",
    "tt.join",
    "tt.split",
    "tt.cat",
    "tt.gather",
    "tt.histogram",
    "tt.reshape",
    "tt.expand_dims",
    "tt.broadcast",
    "tt.splat",
    "tt.addptr",
    "tt.load",
    "tt.store",
    "tt.call",
    "tt.unsplat",
    "tt.atomic_rmw",
    "tt.atomic_cas",
    "tt.extern_elementwise",
    "tt.clampf",
    "tt.bitcast",
    "tt.fp_to_fp",
    "tt.int_to_ptr",
    "tt.ptr_to_int",
    "tt.make_range",
    "tt.assert",
    "tt.print",
    "ttg.barrier",
    "ub.poison",
    "scf.for",
    "scf.if",
    "scf.while",
    "scf.condition",
    "scf.yield",
    "arith.constant",
    "arith.cmpf",
    "arith.cmpi",
    "arith.select",
    "arith.extsi",
    "arith.sitofp",
    "math.fma",
    "math.exp",
    "tt.func",
    "private",
    "iter_args",
    "axis",
    "order",
    "array<i32:",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "loc(",
    "\"",
    "%",
    "#",
    ":",
    "->",
    "^bb0(",
    "dense<",
    "é",
    "\u{2028}",
    "//",
];

/// A mutant of one of the texts.
pub fn text(texts: &[String], random: &mut Rng) -> String {
    let mut text = texts[random.usize(..texts.len())].clone();
    for _ in 0..1 + random.usize(..4) {
        text = once(text, texts, random);
        let end = (0..=text.len().min(LONGEST)).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// Bytes that say how a kernel is changed.
pub fn bytes(random: &mut Rng) -> Vec<u8> {
    let count = 8 + random.usize(..120);
    (0..count).map(|_| random.u8(..)).collect()
}

fn once(mut text: String, texts: &[String], random: &mut Rng) -> String {
    match random.u8(..9) {
        0 => {
            let (begin, end) = range(&text, random);
            text.replace_range(begin..end, "");
        }
        1 => {
            let (begin, end) = range(&text, random);
            let most = if random.u8(..16) == 0 { 2000 } else { 3 };
            let times = (1 + random.usize(..most)).min(LONGEST / (end - begin).max(1));
            let piece = text[begin..end].repeat(times);
            text.insert_str(begin, &piece);
        }
        2 => {
            let at = floor(&text, random.usize(..=text.len()));
            text.insert_str(at, WORDS[random.usize(..WORDS.len())]);
        }
        3 | 4 => {
            let words = words(&text);
            if let Some(&(begin, end)) = random.choice(&words) {
                let with = match random.bool() {
                    true => WORDS[random.usize(..WORDS.len())].to_owned(),
                    false => {
                        random.choice(&words).map_or_else(String::new, |&(begin, end)| text[begin..end].to_owned())
                    }
                };
                text.replace_range(begin..end, &with);
            }
        }
        5 => {
            let (from, to) = (random.choice(&words(&text)).copied(), random.choice(&words(&text)).copied());
            if let (Some((a, b)), Some((c, d))) = (from, to)
                && d - c <= LONGEST_WORD
            {
                // A word wherever it stands: types and names mostly change together.
                text = text.replace(&text[a..b], &text[c..d]);
            }
        }
        kind => {
            let other = &texts[random.usize(..texts.len())];
            let mut lines: Vec<&str> = text.lines().collect();
            let source: Vec<&str> = if kind == 6 { other.lines().collect() } else { lines.clone() };
            if lines.is_empty() || source.is_empty() {
                return text;
            }
            let (at, from) = (random.usize(..lines.len()), random.usize(..source.len()));
            match random.u8(..3) {
                0 => lines[at] = source[from],
                1 => lines.insert(at, source[from]),
                _ => _ = lines.remove(at),
            }
            text = lines.join("\n");
        }
    }
    text
}

/// A short stretch of characters, now and then a long one.
fn range(text: &str, random: &mut Rng) -> (usize, usize) {
    let most = if random.u8(..8) == 0 { text.len() } else { 40 };
    let length = random.usize(..=most);
    let begin = floor(text, random.usize(..=text.len()));
    (begin, floor(text, begin + length))
}

/// The last boundary of a character up to a byte.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// Where words, numbers and names are.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut begin = None;
    for (i, c) in text.char_indices().chain([(text.len(), ' ')]) {
        let inside = c.is_alphanumeric() || matches!(c, '_' | '.' | '%' | '#' | '!' | '-');
        match (inside, begin) {
            (true, None) => begin = Some(i),
            (false, Some(from)) => {
                words.push((from, i));
                begin = None;
            }
            _ => {}
        }
    }
    words
}
