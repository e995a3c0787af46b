//! Questions and answers: text as it is chosen, and how fast.

use crate::options::Options;
use candle_core::{Device, Error, Result};
use openmps_candle::{Cache, Llama, LoraAdapter, Sampler};
use std::io::{BufRead, Write};
use std::time::Instant;
use tokenizers::Tokenizer;

/// Answers the prompt, or every line of the terminal until it ends.
pub fn run(model: &Llama, tokenizer: &Tokenizer, options: &Options) -> Result<()> {
    let model = match &options.adapter {
        Some(folder) => {
            let adapter = LoraAdapter::load(folder, &Device::Cpu).map_err(Error::wrap)?;
            &model.clone().with_adapter(&adapter).map_err(Error::wrap)?
        }
        None => model,
    };
    let mut talk = Talk { model, tokenizer, cache: model.cache(), sampler: sampler(options), longest: options.tokens };
    let mut before = turn("system", &options.system);
    if let Some(prompt) = &options.prompt {
        return talk.answer(&(before + &turn("user", prompt)));
    }
    println!("(an empty line ends the conversation)");
    loop {
        print!("> ");
        std::io::stdout().flush()?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        if line.trim().is_empty() {
            return Ok(());
        }
        talk.answer(&(before + &turn("user", line.trim())))?;
        // The answer ended with its own mark, or was cut off.
        before = "<|im_end|>\n".into();
    }
}

fn sampler(options: &Options) -> Sampler {
    Sampler::new(options.sampling.clone(), options.seed)
}

/// One turn as ChatML has it, the template of SmolLM2 and Qwen2.
fn turn(who: &str, text: &str) -> String {
    format!("<|im_start|>{who}\n{text}<|im_end|>\n")
}

struct Talk<'a> {
    model: &'a Llama,
    tokenizer: &'a Tokenizer,
    cache: Cache,
    sampler: Sampler,
    longest: usize,
}

impl Talk<'_> {
    /// Reads what is new, and prints the answer as it comes.
    fn answer(&mut self, text: &str) -> Result<()> {
        let wrap = |error: tokenizers::Error| Error::msg(error.to_string());
        let prompt = self.tokenizer.encode(format!("{text}<|im_start|>assistant\n"), false).map_err(wrap)?;
        let begin = Instant::now();
        let mut scores = self.model.forward(prompt.get_ids(), &mut self.cache)?;
        let reading = begin.elapsed().as_secs_f64();
        let (begin, mut count) = (Instant::now(), 0);
        let mut decoder = self.tokenizer.decode_stream(true);
        while count < self.longest {
            let token = self.sampler.next(&scores)?;
            if Some(token) == self.model.config().end {
                break;
            }
            count += 1;
            if let Some(text) = decoder.step(token).map_err(wrap)? {
                print!("{text}");
                std::io::stdout().flush()?;
            }
            scores = self.model.forward(&[token], &mut self.cache)?;
        }
        let (read, writing) = (prompt.len(), begin.elapsed().as_secs_f64());
        let (of_prompt, of_answer) = (read as f64 / reading, count as f64 / writing);
        println!("\n[{read} tokens read, {of_prompt:.0} a second; {count} written, {of_answer:.0} a second]");
        Ok(())
    }
}
