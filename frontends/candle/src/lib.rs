//! Candle operators with gradients on openmps: matrix products, softmax, norms, rotary embedding, attention, LoRA.
//!
//! Every function takes tensors of any strides and offsets, computes the result with openmps's kernels and hands back a tensor that Candle's
//! backward pass knows: on the CPU, and with the feature `metal` on Candle's Metal device, in its own buffers and on its own command encoder. What they do not take (other devices, element types, tiny shapes: see [`path`]) goes Candle's own way.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! let x = Var::from_tensor(&Tensor::new(&[[1.0f32, 2.0, 3.0]], &Device::Cpu)?)?;
//! let y = openmps_candle::softmax(&x, 1)?;
//! let gradients = y.narrow(1, 2, 1)?.sum_all()?.backward()?;
//! assert_eq!(gradients.get(&x).unwrap().dims(), [1, 3]);
//! # Ok::<(), candle_core::Error>(())
//! ```

mod activation;
mod adapter;
mod attention;
mod bert;
mod composed;
#[cfg(any(feature = "metal", test))]
mod external;
mod forward;
pub mod hooks;
mod language;
mod linear;
mod lora;
mod matmul;
mod matrix;
#[cfg(feature = "metal")]
mod metal;
mod norm;
mod operand;
pub mod path;
mod reduce;
mod rope;
mod softmax;

pub use activation::gelu;
pub use adapter::{AdapterError, LoraAdapter, LoraConfig};
pub use attention::{AttentionOptions, attention, attention_of_lengths};
pub use bert::{Bert, BertConfig};
pub use language::{Cache, Gguf, Llama, LlamaConfig, QuantizedWeight, Sampler, Sampling, tokenizer};
pub use linear::{Linear, linear, linear_add, linear_gelu};
pub use lora::{LoraLinear, lora_linear};
pub use matmul::matmul;
pub use matrix::{multiply_matrices, with_matrix};
pub use norm::{layer_norm, rms_norm};
pub use rope::rope;
pub use softmax::{log_softmax, softmax};
