//! The next token from a model's scores.

use candle_core::{Result, Tensor};
use std::collections::VecDeque;

/// How the next token is chosen. The restrictions hold together, in the order of the fields.
///
/// ```
/// let sampling = openmps_candle::Sampling { temperature: 0.8, top_p: 0.95, ..Default::default() };
/// assert_eq!(sampling.top_k, None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Scores of tokens among the last `repetition_window` are divided by it where positive, multiplied where negative; 1 changes nothing.
    pub repetition_penalty: f64,
    /// How many tokens back a repetition counts.
    pub repetition_window: usize,
    /// Scores are divided by it; 0 always takes the best.
    pub temperature: f64,
    /// Only so many of the best.
    pub top_k: Option<usize>,
    /// Only the best that together have this probability; 1 is all.
    pub top_p: f64,
    /// Only those whose probability is at least this part of the best one's; 0 is all.
    pub min_p: f64,
}

impl Default for Sampling {
    /// The best token, always.
    fn default() -> Sampling {
        Sampling {
            repetition_penalty: 1.0,
            repetition_window: 64,
            temperature: 0.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
        }
    }
}

impl Sampling {
    /// Refuses numbers that mean nothing.
    fn check(&self) -> Result<()> {
        let Sampling { repetition_penalty, temperature, top_p, min_p, .. } = *self;
        if !(repetition_penalty > 0.0 && repetition_penalty.is_finite()) {
            candle_core::bail!("the repetition penalty is {repetition_penalty}, expected a finite number above 0");
        }
        for (name, number) in [("temperature", temperature), ("top_p", top_p), ("min_p", min_p)] {
            if number.is_nan() || number < 0.0 {
                candle_core::bail!("the {name} is {number}, expected a number of at least 0");
            }
        }
        Ok(())
    }
}

/// Chooses tokens; one seed gives one text.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use openmps_candle::{Sampler, Sampling};
/// let mut sampler = Sampler::new(Sampling::default(), 1);
/// assert_eq!(sampler.next(&Tensor::new(&[0.5f32, 2.0, -1.0], &Device::Cpu)?)?, 1);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: fastrand::Rng,
    last: VecDeque<u32>,
}

impl Sampler {
    /// A sampler whose numbers come from this seed.
    ///
    /// ```
    /// openmps_candle::Sampler::new(openmps_candle::Sampling::default(), 42);
    /// ```
    pub fn new(sampling: Sampling, seed: u64) -> Sampler {
        Sampler { sampling, random: fastrand::Rng::with_seed(seed), last: VecDeque::new() }
    }

    /// Counts a token of the prompt for the penalty of repetitions.
    ///
    /// ```
    /// openmps_candle::Sampler::new(openmps_candle::Sampling::default(), 42).saw(7);
    /// ```
    pub fn saw(&mut self, token: u32) {
        self.last.push_back(token);
        while self.last.len() > self.sampling.repetition_window {
            self.last.pop_front();
        }
    }

    /// The next token after these scores, one for each token of the vocabulary. Scores that are not a number are never chosen. Settings that mean
    /// nothing are an error: a number that is NaN, a penalty that is not above 0, a temperature or a probability that is negative.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use openmps_candle::{Sampler, Sampling};
    /// let mut sampler = Sampler::new(Sampling { temperature: 1.0, top_k: Some(1), ..Default::default() }, 3);
    /// assert_eq!(sampler.next(&Tensor::new(&[0.5f32, 2.0], &Device::Cpu)?)?, 1);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn next(&mut self, scores: &Tensor) -> Result<u32> {
        self.sampling.check()?;
        let mut scores = scores.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        self.penalise(&mut scores);
        let best = |scores: &[f32]| {
            let numbers = scores.iter().enumerate().filter(|(_, score)| !score.is_nan());
            numbers.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0))).map(|(token, _)| token as u32)
        };
        let token = match self.sampling.temperature > 0.0 {
            false => best(&scores),
            true => self.draw(&scores),
        };
        let token = token.ok_or_else(|| candle_core::Error::msg("no score of the model is a number"))?;
        self.saw(token);
        Ok(token)
    }

    fn penalise(&self, scores: &mut [f32]) {
        let penalty = self.sampling.repetition_penalty as f32;
        if penalty == 1.0 {
            return;
        }
        let mut seen: Vec<u32> = self.last.iter().copied().collect();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = if *score > 0.0 { *score / penalty } else { *score * penalty };
            }
        }
    }

    fn draw(&mut self, scores: &[f32]) -> Option<u32> {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        let mut tokens: Vec<(u32, f64)> = scores
            .iter()
            .enumerate()
            .filter(|(_, score)| !score.is_nan())
            .map(|(token, &score)| (token as u32, f64::from(score)))
            .collect();
        let by_score = |a: &(u32, f64), b: &(u32, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        match top_k {
            Some(count) if count.max(1) < tokens.len() => {
                tokens.select_nth_unstable_by(count.max(1) - 1, by_score);
                tokens.truncate(count.max(1));
            }
            _ => {}
        }
        tokens.sort_unstable_by(by_score);
        let highest = tokens.first()?.1;
        let mut sum = 0.0;
        for (_, score) in &mut tokens {
            // Infinite ones have no difference; and what is divided by a temperature near 0 may be infinite, but no difference is above 0.
            *score = if *score == highest { 1.0 } else { ((*score - highest) / temperature).exp() };
            sum += *score;
        }
        let mut kept = 0.0;
        let mut count = 0;
        for (_, weight) in &tokens {
            if count > 0 && (kept >= top_p * sum || *weight < min_p) {
                break;
            }
            kept += *weight;
            count += 1;
        }
        let mut left = self.random.f64() * kept;
        for (token, weight) in &tokens[..count] {
            left -= weight;
            if left < 0.0 {
                return Some(*token);
            }
        }
        Some(tokens[count - 1].0)
    }
}
