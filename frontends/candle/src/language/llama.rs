//! Models of Llama's architecture, and Qwen2's: RMS norms, rotary embedding, grouped heads, a gated layer.

use super::projection::{Correction, Projection};
use super::rotary::Angles;
use super::{Cache, Gguf, QuantizedWeight};
use crate::adapter::AdapterError;
use crate::{AttentionOptions, LoraAdapter, LoraConfig, attention, rms_norm, rope};
use candle_core::{Result, Tensor, Var};
use std::sync::Arc;

/// The sizes of a model, from its file.
///
/// ```no_run
/// let config = openmps_candle::LlamaConfig::read(&openmps_candle::Gguf::open("model.gguf")?)?;
/// println!("{} layers", config.layers);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LlamaConfig {
    /// Layers.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_heads: usize,
    /// Elements of a token's state.
    pub size: usize,
    /// The most tokens of a text.
    pub context: usize,
    /// Added to the mean square in norms.
    pub epsilon: f64,
    /// The base of the rotary embedding's frequencies.
    pub rope_base: f64,
    /// Elements of a head that are turned.
    pub rope_size: usize,
    /// Whether the pairs that are turned are neighbours, or one element of each half. Hugging Face's are always the latter: where a file has
    /// neighbours, its converter has permuted the rows of queries and keys.
    pub rope_interleaved: bool,
    /// The token that ends an answer.
    pub end: Option<u32>,
}

impl LlamaConfig {
    /// Reads them; architectures other than `llama` and `qwen2` are refused.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// openmps_candle::LlamaConfig::read(&file)?;
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn read(file: &Gguf) -> Result<LlamaConfig> {
        let architecture = file.text("general.architecture")?;
        if !matches!(architecture, "llama" | "qwen2") {
            candle_core::bail!("a model of architecture {architecture}, expected llama or qwen2");
        }
        let number = |name: &str| file.number(&format!("{architecture}.{name}"));
        let float = |name: &str| file.float(&format!("{architecture}.{name}"));
        let optional = |name: &str| file.optional(&format!("{architecture}.{name}"), Gguf::number);
        let (heads, size) = (number("attention.head_count")?, number("embedding_length")?);
        if heads == 0 || size % heads != 0 {
            candle_core::bail!("{heads} heads of a state of {size} elements");
        }
        let config = LlamaConfig {
            layers: number("block_count")?,
            heads,
            key_heads: optional("attention.head_count_kv")?.unwrap_or(heads),
            size,
            context: number("context_length")?,
            epsilon: float("attention.layer_norm_rms_epsilon")?,
            rope_base: file.optional(&format!("{architecture}.rope.freq_base"), Gguf::float)?.unwrap_or(10_000.0),
            rope_size: optional("rope.dimension_count")?.unwrap_or(size / heads),
            rope_interleaved: architecture == "llama",
            end: super::tokens::token(file, "tokenizer.ggml.eos_token_id").ok(),
        };
        crate::norm::check_epsilon(config.epsilon)?;
        if !(config.rope_base > 0.0 && config.rope_base.is_finite()) {
            let base = config.rope_base;
            candle_core::bail!("{architecture}.rope.freq_base is {base}, expected a finite number above 0");
        }
        if config.key_heads == 0 || heads % config.key_heads != 0 {
            candle_core::bail!("{heads} heads of queries, {} of keys", config.key_heads);
        }
        if config.rope_size != config.size / config.heads {
            candle_core::bail!("{} of a head's {} elements are turned", config.rope_size, config.size / config.heads);
        }
        Ok(config)
    }
}

#[derive(Clone, Debug)]
struct Layer {
    attention_norm: Tensor,
    feed_norm: Tensor,
    /// In the order of [`Part::ALL`].
    projections: Vec<Projection>,
}

impl Layer {
    fn project(&self, part: Part, x: &Tensor, train: bool) -> Result<Tensor> {
        self.projections[part as usize].forward(x, train)
    }
}

/// A projection of a layer.
#[derive(Clone, Copy, Debug)]
enum Part {
    Query,
    Key,
    Value,
    Output,
    Gate,
    Up,
    Down,
}

impl Part {
    const ALL: [Part; 7] = [Part::Query, Part::Key, Part::Value, Part::Output, Part::Gate, Part::Up, Part::Down];

    /// Its names in the file, and in PEFT's layout.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Part::Query => ("attn_q", "self_attn.q_proj"),
            Part::Key => ("attn_k", "self_attn.k_proj"),
            Part::Value => ("attn_v", "self_attn.v_proj"),
            Part::Output => ("attn_output", "self_attn.o_proj"),
            Part::Gate => ("ffn_gate", "mlp.gate_proj"),
            Part::Up => ("ffn_up", "mlp.up_proj"),
            Part::Down => ("ffn_down", "mlp.down_proj"),
        }
    }

    /// Heads of what is turned.
    fn heads(self, config: &LlamaConfig) -> Option<usize> {
        match self {
            Part::Query => Some(config.heads),
            Part::Key => Some(config.key_heads),
            _ => None,
        }
    }
}

/// A language model with its weights in blocks, as its file has them.
///
/// ```no_run
/// use openmps_candle::{Cache, Gguf, Llama, Sampler, Sampling, tokenizer};
/// let file = Gguf::open("model.gguf")?;
/// let (model, tokenizer) = (Llama::load(&file, |_, _| ())?, tokenizer(&file)?);
/// let mut cache = model.cache();
/// let scores = model.forward(&[1, 2, 3], &mut cache)?;
/// let next = Sampler::new(Sampling::default(), 0).next(&scores)?;
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Llama {
    config: LlamaConfig,
    embedding: QuantizedWeight,
    layers: Vec<Layer>,
    norm: Tensor,
    output: QuantizedWeight,
    /// Angles of the rotary embedding, computed for the tokens that are read.
    angles: Arc<Angles>,
}

impl Llama {
    /// Takes the model out of its file; `progress` is told how many of the layers are there. A file is refused that says something of the rotary
    /// embedding's angles which is not known here.
    ///
    /// ```no_run
    /// # let file = openmps_candle::Gguf::open("model.gguf")?;
    /// let model = openmps_candle::Llama::load(&file, |done, of| println!("{done} of {of}"))?;
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn load(file: &Gguf, mut progress: impl FnMut(usize, usize)) -> Result<Llama> {
        let config = LlamaConfig::read(file)?;
        let angles = Arc::new(Angles::of(file, &config)?);
        let embedding = file.weight("token_embd.weight")?;
        let tied = if file.has("output.weight") { file.weight("output.weight")? } else { embedding.clone() };
        let mut layers = Vec::new();
        for number in 0..config.layers {
            progress(number, config.layers);
            layers.push(layer(file, &config, number)?);
        }
        progress(config.layers, config.layers);
        let norm = file.tensor("output_norm.weight")?;
        Ok(Llama { config, embedding, layers, norm, output: tied, angles })
    }

    /// The sizes.
    ///
    /// ```no_run
    /// # fn f(model: &openmps_candle::Llama) { println!("{}", model.config().layers); }
    /// ```
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// An empty cache for this model.
    ///
    /// ```no_run
    /// # fn f(model: &openmps_candle::Llama) { assert_eq!(model.cache().tokens(), 0); }
    /// ```
    pub fn cache(&self) -> Cache {
        Cache::new(self.config.layers)
    }

    /// The scores `[vocabulary]` of the token after these, which follow those that the cache has seen. No gradients flow from them: those of
    /// [`Llama::scores`] do.
    ///
    /// ```no_run
    /// # fn f(model: &openmps_candle::Llama) -> candle_core::Result<()> {
    /// let mut cache = model.cache();
    /// model.forward(&[1, 2, 3], &mut cache)?;
    /// model.forward(&[4], &mut cache)?;
    /// # Ok(()) }
    /// ```
    pub fn forward(&self, tokens: &[u32], cache: &mut Cache) -> Result<Tensor> {
        let first = cache.tokens();
        if tokens.is_empty() || first + tokens.len() > self.config.context {
            let context = self.config.context;
            candle_core::bail!("{} tokens after {first}, in a model of {context}", tokens.len());
        }
        let angles = self.angles.at(first..first + tokens.len())?;
        let mut x = self.embedding.embed(tokens)?.unsqueeze(0)?;
        for (number, layer) in self.layers.iter().enumerate() {
            x = self.layer(layer, &x, &angles, Some((number, &mut *cache)))?;
        }
        cache.advance(tokens.len());
        let last = x.narrow(1, tokens.len() - 1, 1)?;
        self.output.forward(&rms_norm(&last, &self.norm, self.config.epsilon)?)?.flatten_all()
    }

    /// The scores [texts, tokens, vocabulary] after each token of texts of one length, without a cache: gradients flow to the corrections.
    ///
    /// ```no_run
    /// # fn f(model: &openmps_candle::Llama) -> candle_core::Result<()> {
    /// let scores = model.scores(&[&[1, 2, 3], &[4, 5, 6]])?;
    /// # Ok(()) }
    /// ```
    pub fn scores(&self, texts: &[&[u32]]) -> Result<Tensor> {
        let length = texts.first().map_or(0, |text| text.len());
        if length == 0 || length > self.config.context || texts.iter().any(|text| text.len() != length) {
            candle_core::bail!("texts of {:?} tokens", texts.iter().map(|text| text.len()).collect::<Vec<_>>());
        }
        let angles = self.angles.at(0..length)?;
        let mut x = self.embedding.embed(&texts.concat())?.reshape((texts.len(), length, self.config.size))?;
        for layer in &self.layers {
            x = self.layer(layer, &x, &angles, None)?;
        }
        self.output.forward(&rms_norm(&x, &self.norm, self.config.epsilon)?)
    }

    fn layer(
        &self,
        layer: &Layer,
        x: &Tensor,
        [cosines, sines]: &[Tensor; 2],
        cache: Option<(usize, &mut Cache)>,
    ) -> Result<Tensor> {
        let LlamaConfig { heads, key_heads, size, epsilon, .. } = self.config;
        let (texts, count, _) = x.dims3()?;
        // A text that goes on from a cache is read, not learned.
        let train = cache.is_none();
        let project = |part: Part, x: &Tensor| layer.project(part, x, train);
        let normed = rms_norm(x, &layer.attention_norm, epsilon)?;
        let heads_of = |part: Part, heads: usize| {
            let y = project(part, &normed)?;
            y.reshape((texts, count, heads, size / self.config.heads))?.transpose(1, 2)
        };
        let turn = |x: &Tensor| rope(x, cosines, sines, self.config.rope_interleaved);
        let (query, mut key, mut value) = (
            turn(&heads_of(Part::Query, heads)?)?,
            turn(&heads_of(Part::Key, key_heads)?)?,
            heads_of(Part::Value, key_heads)?,
        );
        let mut window = None;
        if let Some((number, cache)) = cache {
            window = cache.window();
            (key, value) = cache.extend(number, &key, &value)?;
        }
        let options = AttentionOptions { causal: true, window, merge_heads: true, ..AttentionOptions::default() };
        let seen = attention(&query, &key, &value, &options)?;
        let x = (x + project(Part::Output, &seen)?)?;
        let normed = rms_norm(&x, &layer.feed_norm, epsilon)?;
        let gate = project(Part::Gate, &normed)?.silu()?;
        let hidden = (gate * project(Part::Up, &normed)?)?;
        x + project(Part::Down, &hidden)?
    }

    /// The model with trainable corrections on the projections whose last name is in `targets` ("q_proj", "down_proj", ...).
    ///
    /// ```no_run
    /// # fn f(model: openmps_candle::Llama) -> candle_core::Result<()> {
    /// let model = model.with_lora(8, 16.0, &["q_proj", "v_proj"], 1)?;
    /// # Ok(()) }
    /// ```
    pub fn with_lora(mut self, rank: usize, alpha: f64, targets: &[&str], seed: u64) -> Result<Llama> {
        if rank == 0 {
            candle_core::bail!("the rank of LoRA is 0");
        }
        let projections = self.layers.iter_mut().flat_map(|layer| &mut layer.projections);
        for (number, projection) in projections.enumerate() {
            if targets.iter().any(|target| projection.name.ends_with(target)) {
                projection.correct(rank, alpha / rank as f64, seed.wrapping_mul(1009).wrapping_add(number as u64))?;
            }
        }
        Ok(self)
    }

    /// The corrections' matrices, to be trained: those of [`Llama::with_lora`], and of [`Llama::with_adapter`] as well. Setting one changes the
    /// model.
    ///
    /// ```no_run
    /// # fn f(model: &openmps_candle::Llama) -> candle_core::Result<()> {
    /// println!("{} variables", model.variables()?.len());
    /// # Ok(()) }
    /// ```
    pub fn variables(&self) -> Result<Vec<Var>> {
        let corrections = self.projections().filter_map(|projection| projection.correction.as_ref());
        corrections.flat_map(|Correction { a, b, .. }| [a, b]).map(Var::from_tensor).collect()
    }

    fn projections(&self) -> impl Iterator<Item = &Projection> {
        self.layers.iter().flat_map(|layer| &layer.projections)
    }

    /// The corrections in PEFT's layout, for the model as Hugging Face has it.
    ///
    /// ```no_run
    /// # fn f(model: &openmps_candle::Llama) -> Result<(), openmps_candle::AdapterError> {
    /// model.adapter(openmps_candle::LoraConfig::new(8, 16.0, 0.0, &["q_proj"]))?.save("adapter")
    /// # }
    /// ```
    pub fn adapter(&self, config: LoraConfig) -> std::result::Result<LoraAdapter, AdapterError> {
        let mut adapter = LoraAdapter::new(config)?;
        for projection in self.projections() {
            if let Some(Correction { a, b, .. }) = &projection.correction {
                adapter.insert(&projection.name, a.detach(), projection.to_peft(&b.detach())?)?;
            }
        }
        Ok(adapter)
    }

    /// The model with an adapter's corrections, copied, so that they may be trained further. A layer that the model does not have is refused, and
    /// matrices of other sizes.
    ///
    /// ```no_run
    /// # fn f(model: openmps_candle::Llama, adapter: &openmps_candle::LoraAdapter) -> Result<(), openmps_candle::AdapterError> {
    /// let model = model.with_adapter(adapter)?;
    /// # Ok(()) }
    /// ```
    pub fn with_adapter(mut self, adapter: &LoraAdapter) -> std::result::Result<Llama, AdapterError> {
        let names: Vec<&str> = self.projections().map(|projection| projection.name.as_str()).collect();
        if let Some(unknown) = adapter.layers().find(|layer| !names.contains(layer)) {
            return Err(AdapterError::NoWeight(unknown.to_owned()));
        }
        let scaling = adapter.config().scaling();
        for projection in self.layers.iter_mut().flat_map(|layer| &mut layer.projections) {
            if let Some((a, b)) = adapter.layer(&projection.name) {
                projection.correction = Some(projection.of_peft(a, b, scaling)?);
            }
        }
        Ok(self)
    }
}

fn layer(file: &Gguf, config: &LlamaConfig, number: usize) -> Result<Layer> {
    let projection = |part: Part| {
        let (of_file, of_peft) = part.names();
        let name = format!("blk.{number}.{of_file}");
        let bias = format!("{name}.bias");
        Ok(Projection {
            name: format!("model.layers.{number}.{of_peft}"),
            weight: file.weight(&format!("{name}.weight"))?,
            bias: file.has(&bias).then(|| file.tensor(&bias)).transpose()?,
            permuted_heads: part.heads(config).filter(|_| config.rope_interleaved),
            correction: None,
        })
    };
    Ok(Layer {
        attention_norm: file.tensor(&format!("blk.{number}.attn_norm.weight"))?,
        feed_norm: file.tensor(&format!("blk.{number}.ffn_norm.weight"))?,
        projections: Part::ALL.into_iter().map(projection).collect::<Result<_>>()?,
    })
}
