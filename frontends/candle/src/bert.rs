//! BERT encoders for sentence embeddings (MiniLM and its like) from openmps's operators, with LoRA where it is asked for.

use crate::adapter::AdapterError;
use crate::{
    AttentionOptions, LoraAdapter, LoraConfig, LoraLinear, attention, layer_norm, linear, linear_add, linear_gelu,
};
use candle_core::{D, DType, Error, Module, ModuleT, Result, Tensor, Var};
use openmps::{bf16, f16};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// The sizes of a model: `config.json`.
///
/// ```
/// let text = r#"{"num_hidden_layers": 6, "num_attention_heads": 12, "layer_norm_eps": 1e-12}"#;
/// let config: openmps_candle::BertConfig = serde_json::from_str(text).expect("the layout of Hugging Face");
/// assert_eq!(config.num_hidden_layers, 6);
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BertConfig {
    /// Layers of the encoder.
    pub num_hidden_layers: usize,
    /// Heads of attention.
    pub num_attention_heads: usize,
    /// Added to the variance in layer norms.
    pub layer_norm_eps: f64,
}

/// A weight and a bias for each column.
#[derive(Clone, Debug)]
struct Norm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.weight, Some(&self.bias), self.epsilon)
    }
}

#[derive(Clone, Debug)]
struct Dense {
    weight: Tensor,
    bias: Tensor,
}

impl Module for Dense {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        linear(x, &self.weight, Some(&self.bias))
    }
}

impl Dense {
    /// The result added to a residual.
    fn onto(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        linear_add(x, &self.weight, &self.bias, residual)
    }
}

/// The projections to queries, keys and values: one product of all, or three where some have corrections.
#[derive(Clone, Debug)]
enum Projections {
    Fused(Dense),
    Apart([Projection; 3]),
}

#[derive(Clone, Debug)]
enum Projection {
    Plain(Dense),
    Lora(LoraLinear),
}

#[derive(Clone, Debug)]
struct Layer {
    name: String,
    projections: Projections,
    attention_output: Dense,
    attention_norm: Norm,
    intermediate: Dense,
    output: Dense,
    output_norm: Norm,
}

/// A BERT encoder.
///
/// ```no_run
/// use candle_core::{Device, Tensor};
/// use openmps_candle::Bert;
/// let weights = candle_core::safetensors::load("model.safetensors", &Device::Cpu)?;
/// let config = serde_json::from_str(&std::fs::read_to_string("config.json")?)?;
/// let bert = Bert::new(&weights, &config)?;
/// let (ids, mask) = (Tensor::new(&[[101u32, 7592, 102]], &Device::Cpu)?, Tensor::new(&[[1.0f32; 3]], &Device::Cpu)?);
/// println!("{}", bert.embed(&ids, &mask)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bert {
    words: Tensor,
    positions: Tensor,
    first_type: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
}

/// The model's weights by name.
struct Weights<'a> {
    tensors: &'a HashMap<String, Tensor>,
    epsilon: f64,
}

impl Weights<'_> {
    fn get(&self, name: &str) -> Result<Tensor> {
        let found = self.tensors.get(name).or_else(|| self.tensors.get(&format!("{PREFIX}{name}")));
        found.cloned().ok_or_else(|| Error::msg(format!("the model has no tensor {name}")))
    }

    fn dense(&self, name: &str) -> Result<Dense> {
        Ok(Dense { weight: self.get(&format!("{name}.weight"))?, bias: self.get(&format!("{name}.bias"))? })
    }

    fn norm(&self, name: &str) -> Result<Norm> {
        let Dense { weight, bias } = self.dense(name)?;
        Ok(Norm { weight, bias, epsilon: self.epsilon })
    }

    fn layer(&self, number: usize) -> Result<Layer> {
        let name = format!("encoder.layer.{number}");
        let projections = ["query", "key", "value"].map(|part| self.dense(&format!("{name}.attention.self.{part}")));
        let [query, key, value] = projections;
        let parts = [query?, key?, value?];
        let weight = Tensor::cat(&parts.each_ref().map(|part| &part.weight), 0)?;
        let bias = Tensor::cat(&parts.each_ref().map(|part| &part.bias), 0)?;
        Ok(Layer {
            projections: Projections::Fused(Dense { weight, bias }),
            attention_output: self.dense(&format!("{name}.attention.output.dense"))?,
            attention_norm: self.norm(&format!("{name}.attention.output.LayerNorm"))?,
            intermediate: self.dense(&format!("{name}.intermediate.dense"))?,
            output: self.dense(&format!("{name}.output.dense"))?,
            output_norm: self.norm(&format!("{name}.output.LayerNorm"))?,
            name,
        })
    }
}

impl Bert {
    /// A model of weights in the names of Hugging Face, with or without `bert.` before them.
    ///
    /// ```
    /// use openmps_candle::{Bert, BertConfig};
    /// let config = BertConfig { num_hidden_layers: 1, num_attention_heads: 2, layer_norm_eps: 1e-12 };
    /// assert!(Bert::new(&Default::default(), &config).unwrap_err().to_string().contains("word_embeddings"));
    /// ```
    pub fn new(tensors: &HashMap<String, Tensor>, config: &BertConfig) -> Result<Bert> {
        let weights = Weights { tensors, epsilon: config.layer_norm_eps };
        let words = weights.get("embeddings.word_embeddings.weight")?;
        let (heads, (_, size)) = (config.num_attention_heads, words.dims2()?);
        if heads == 0 || size % heads != 0 {
            candle_core::bail!(
                "num_attention_heads is {heads}, expected a divisor of {size}, the size of a token's state"
            );
        }
        Ok(Bert {
            words,
            positions: weights.get("embeddings.position_embeddings.weight")?,
            first_type: weights.get("embeddings.token_type_embeddings.weight")?.narrow(0, 0, 1)?,
            norm: weights.norm("embeddings.LayerNorm")?,
            layers: (0..config.num_hidden_layers).map(|number| weights.layer(number)).collect::<Result<_>>()?,
            heads,
        })
    }

    /// The hidden states [batch, tokens, size] of token ids [batch, tokens] (uint32); the mask, of the same shape and any type, is 1 at tokens and
    /// 0 at padding.
    ///
    /// ```no_run
    /// # use candle_core::{Device, Tensor};
    /// # fn f(bert: &openmps_candle::Bert) -> candle_core::Result<()> {
    /// let (ids, mask) = (Tensor::new(&[[101u32, 102]], &Device::Cpu)?, Tensor::new(&[[1.0f32; 2]], &Device::Cpu)?);
    /// assert_eq!(bert.forward(&ids, &mask, false)?.dims3()?.1, 2);
    /// # Ok(()) }
    /// ```
    pub fn forward(&self, ids: &Tensor, mask: &Tensor, train: bool) -> Result<Tensor> {
        let (batch, tokens) = ids.dims2()?;
        let words = self.words.index_select(&ids.flatten_all()?, 0)?.reshape((batch, tokens, ()))?;
        let places = self.positions.narrow(0, 0, tokens)?.broadcast_add(&self.first_type)?;
        let mut x = self.norm.forward(&words.broadcast_add(&places)?)?;
        // Integers have no number that is low enough.
        let mask = mask.to_dtype(x.dtype())?;
        // Padding is pushed out of every softmax, by a number that is finite in the mask's type: 0 times another one is none.
        let lowest = match mask.dtype() {
            DType::F16 => f16::MIN.to_f64(),
            DType::BF16 => bf16::MIN.to_f64(),
            _ => f64::from(f32::MIN),
        };
        let penalty = ((mask.ones_like()? - mask)? * lowest)?.reshape((batch, 1, 1, tokens))?;
        for layer in &self.layers {
            x = layer.forward(&x, &penalty, self.heads, train)?;
        }
        Ok(x)
    }

    /// Sentence embeddings [batch, size]: the mean of the tokens' states, of length 1.
    ///
    /// ```no_run
    /// # use candle_core::{Device, Tensor};
    /// # fn f(bert: &openmps_candle::Bert) -> candle_core::Result<()> {
    /// let (ids, mask) = (Tensor::new(&[[101u32, 102]], &Device::Cpu)?, Tensor::new(&[[1.0f32; 2]], &Device::Cpu)?);
    /// assert_eq!(bert.embed(&ids, &mask)?.dims(), [1, 384]);
    /// # Ok(()) }
    /// ```
    pub fn embed(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        pool(&self.forward(ids, mask, false)?, mask)
    }

    /// As [`Bert::embed`], with the corrections' dropout.
    ///
    /// ```no_run
    /// # fn f(bert: &openmps_candle::Bert, ids: &candle_core::Tensor, mask: &candle_core::Tensor) -> candle_core::Result<()> {
    /// let embeddings = bert.embed_in_training(ids, mask)?;
    /// # Ok(()) }
    /// ```
    pub fn embed_in_training(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        pool(&self.forward(ids, mask, true)?, mask)
    }

    /// The model with trainable corrections on the projections whose last name is in `targets` ("query", "key", "value").
    ///
    /// ```no_run
    /// # fn f(bert: openmps_candle::Bert) -> candle_core::Result<()> {
    /// let bert = bert.with_lora(8, 16.0, 0.05, &["query", "value"], 1)?;
    /// assert_eq!(bert.variables()?.len(), 24);
    /// # Ok(()) }
    /// ```
    pub fn with_lora(mut self, rank: usize, alpha: f64, dropout: f64, targets: &[&str], seed: u64) -> Result<Bert> {
        for (number, layer) in self.layers.iter_mut().enumerate() {
            layer.correct(|part, Dense { weight, bias }| {
                let seed = seed.wrapping_mul(1009).wrapping_add(3 * number as u64 + part as u64);
                let wanted = targets.contains(&PARTS[part]);
                wanted.then(|| LoraLinear::new(weight, Some(bias), rank, alpha, dropout, seed)).transpose()
            })?;
        }
        Ok(self)
    }

    /// The model with an adapter's corrections, unmerged, and copied, so that they may be trained further. Their names may have `bert.` before them. A
    /// layer that has no place for a correction is refused: only queries, keys and values have one.
    ///
    /// ```no_run
    /// # fn f(bert: openmps_candle::Bert, adapter: &openmps_candle::LoraAdapter) -> candle_core::Result<()> {
    /// let bert = bert.with_adapter(adapter)?;
    /// # Ok(()) }
    /// ```
    pub fn with_adapter(mut self, adapter: &LoraAdapter) -> Result<Bert> {
        let LoraConfig { lora_dropout, .. } = adapter.config();
        self.check_layers(adapter).map_err(Error::wrap)?;
        for layer in &mut self.layers {
            let name = layer.name.clone();
            layer.correct(|part, Dense { weight, bias }| {
                let name = projection(&name, part);
                let found = adapter.layer(&name).or_else(|| adapter.layer(&format!("{PREFIX}{name}")));
                let Some((a, b)) = found else { return Ok(None) };
                let variable = |tensor: &Tensor| Var::from_tensor(&tensor.detach()).map(Var::into_inner);
                let matrices = (variable(a)?, variable(b)?);
                LoraLinear::from_parts(weight, Some(bias), matrices, adapter.config().scaling(), *lora_dropout, 0)
                    .map(Some)
            })?;
        }
        Ok(self)
    }

    /// Refuses an adapter's layer that none of the projections is, or that another one of the same name is already.
    fn check_layers(&self, adapter: &LoraAdapter) -> std::result::Result<(), AdapterError> {
        let names: HashSet<String> =
            self.layers.iter().flat_map(|layer| [0, 1, 2].map(|part| projection(&layer.name, part))).collect();
        let is_unknown = |layer: &&str| match layer.strip_prefix(PREFIX) {
            Some(plain) => !names.contains(plain) || adapter.layer(plain).is_some(),
            None => !names.contains(*layer),
        };
        match adapter.layers().find(is_unknown) {
            Some(unknown) => Err(AdapterError::NoWeight(unknown.to_owned())),
            None => Ok(()),
        }
    }

    /// The corrections by name, as an adapter holds them.
    ///
    /// ```no_run
    /// # fn f(bert: &openmps_candle::Bert) {
    /// for (name, layer) in bert.corrections() {
    ///     println!("{name}: {:?}", layer.matrices().0.shape());
    /// }
    /// # }
    /// ```
    pub fn corrections(&self) -> Vec<(String, &LoraLinear)> {
        self.layers.iter().flat_map(Layer::corrections).collect()
    }

    /// The matrices of the corrections, for an optimizer.
    ///
    /// ```no_run
    /// # fn f(bert: &openmps_candle::Bert) -> candle_core::Result<()> {
    /// let variables = bert.variables()?;
    /// # Ok(()) }
    /// ```
    pub fn variables(&self) -> Result<Vec<Var>> {
        let matrices = self.corrections().into_iter().flat_map(|(_, layer)| [layer.matrices().0, layer.matrices().1]);
        matrices.filter(|tensor| tensor.is_variable()).map(Var::from_tensor).collect()
    }
}

/// The projections of attention, in the order in which they are fused.
const PARTS: [&str; 3] = ["query", "key", "value"];

/// What may stand before the names of the model's weights.
const PREFIX: &str = "bert.";

/// The name of a layer's projection.
fn projection(layer: &str, part: usize) -> String {
    format!("{layer}.attention.self.{}", PARTS[part])
}

/// The mean over the tokens that the mask names, brought to length 1.
fn pool(states: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let mask = mask.to_dtype(states.dtype())?;
    // A product of [1, tokens] and [tokens, size] for each sentence.
    let sums = crate::matmul(&mask.unsqueeze(1)?, states)?.squeeze(1)?;
    let means = sums.broadcast_div(&mask.sum_keepdim(1)?)?;
    means.broadcast_div(&means.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?)
}

impl Projection {
    fn forward(&self, x: &Tensor, train: bool) -> Result<Tensor> {
        match self {
            Projection::Plain(dense) => dense.forward(x),
            Projection::Lora(layer) => layer.forward_t(x, train),
        }
    }
}

impl Layer {
    fn forward(&self, x: &Tensor, penalty: &Tensor, heads: usize, train: bool) -> Result<Tensor> {
        let (batch, tokens, size) = x.dims3()?;
        let by_head = |x: &Tensor| x.reshape((batch, tokens, heads, size / heads))?.transpose(1, 2);
        let [q, k, v] = match &self.projections {
            Projections::Fused(dense) => {
                let all = dense.forward(x)?.reshape((batch, tokens, 3, heads, size / heads))?;
                // Views: attention reads strides.
                let part = |number| all.narrow(2, number, 1)?.squeeze(2)?.transpose(1, 2);
                [part(0)?, part(1)?, part(2)?]
            }
            Projections::Apart(parts) => {
                let [q, k, v] = parts.each_ref().map(|part| by_head(&part.forward(x, train)?));
                [q?, k?, v?]
            }
        };
        let options = AttentionOptions { mask: Some(penalty.clone()), merge_heads: true, ..Default::default() };
        let seen = attention(&q, &k, &v, &options)?;
        let x = self.attention_norm.forward(&self.attention_output.onto(&seen, x)?)?;
        let hidden = linear_gelu(&x, &self.intermediate.weight, &self.intermediate.bias)?;
        self.output_norm.forward(&self.output.onto(&hidden, &x)?)
    }

    /// Gives projections the corrections that `make` returns for (number, layer).
    fn correct(&mut self, make: impl Fn(usize, Dense) -> Result<Option<LoraLinear>>) -> Result<()> {
        let Projections::Fused(all) = &self.projections else {
            candle_core::bail!("{} has corrections already", self.name)
        };
        let size = all.weight.dim(1)?;
        let part = |number: usize| -> Result<Projection> {
            let weight = all.weight.narrow(0, number * size, size)?.contiguous()?;
            let bias = all.bias.narrow(0, number * size, size)?.contiguous()?;
            let dense = Dense { weight, bias };
            Ok(make(number, dense.clone())?.map_or(Projection::Plain(dense), Projection::Lora))
        };
        self.projections = Projections::Apart([part(0)?, part(1)?, part(2)?]);
        Ok(())
    }

    fn corrections(&self) -> Vec<(String, &LoraLinear)> {
        let Projections::Apart(parts) = &self.projections else { return Vec::new() };
        let named = parts.iter().enumerate().filter_map(|(number, part)| match part {
            Projection::Lora(layer) => Some((projection(&self.name, number), layer)),
            Projection::Plain(_) => None,
        });
        named.collect()
    }
}
