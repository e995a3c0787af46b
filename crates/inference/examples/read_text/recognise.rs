//! What the classifier's and the recogniser's numbers mean.

use std::path::Path;

/// Pieces are turned that stand on their heads with more than this probability.
const TURNED: f32 = 0.9;

/// A line's text.
#[derive(Default)]
pub struct Recognition {
    pub text: String,
    pub confidence: f32,
}

/// The characters by the recogniser's number: a blank, those of the file, a space.
pub fn characters(file: &Path) -> std::io::Result<Vec<String>> {
    let text = std::fs::read_to_string(file)?;
    let own = text.lines().map(str::to_owned);
    Ok(std::iter::once(String::new()).chain(own).chain([" ".to_owned()]).collect())
}

pub fn is_upside_down(scores: &[f32]) -> bool {
    scores[1] > scores[0] && scores[1] > TURNED
}

/// The text of columns of probabilities (connectionist temporal classification): the likeliest character of each column, once where it
/// repeats, without blanks.
pub fn decode(probabilities: &[f32], characters: &[String]) -> Recognition {
    let (mut text, mut sum, mut count, mut last) = (String::new(), 0.0, 0, 0);
    for column in probabilities.chunks_exact(characters.len()) {
        let likeliest = column.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        let Some((character, &probability)) = likeliest else { continue };
        if character != 0 && character != last {
            text.push_str(&characters[character]);
            (sum, count) = (sum + probability, count + 1);
        }
        last = character;
    }
    Recognition { text, confidence: if count == 0 { 0.0 } else { sum / count as f32 } }
}
