//! Language models from GGUF files: weights in blocks, mapped and read as they are; a key-value cache, sampling, and low-rank corrections that
//! are trained over the frozen blocks.

mod cache;
mod gguf;
mod gguf_head;
mod llama;
mod projection;
mod rotary;
mod sampler;
mod sentence_piece;
mod tokens;
mod weight;

pub use cache::Cache;
pub use gguf::Gguf;
pub use llama::{Llama, LlamaConfig};
pub use sampler::{Sampler, Sampling};
pub use tokens::tokenizer;
pub use weight::QuantizedWeight;
