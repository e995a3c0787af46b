//! LoRA adapters in PEFT's layout: a folder with `adapter_config.json` and `adapter_model.safetensors`.

use crate::matmul;
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of the model's layers.
const PREFIX: &str = "base_model.model.";

/// Why an adapter cannot be read, written or applied.
///
/// ```
/// let error = openmps_candle::LoraAdapter::load("no/such/folder", &candle_core::Device::Cpu).unwrap_err();
/// assert!(matches!(error, openmps_candle::AdapterError::Io { .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
#[non_exhaustive]
pub enum AdapterError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Config { path: PathBuf, source: serde_json::Error },
    #[error("the adapter is of type {0}, expected LORA")]
    NotLora(String),
    #[error("{setting} of the adapter is {value}, which is not supported")]
    Unsupported { setting: &'static str, value: String },
    #[error("tensor {0} is not a lora_A or lora_B weight of PEFT")]
    UnknownTensor(String),
    #[error("layer {layer} has {found} and no {missing}")]
    Unpaired { layer: String, found: &'static str, missing: &'static str },
    #[error(
        "layer {layer}: lora_A is {a:?} and lora_B is {b:?}, expected [r, inputs] and [outputs, r] with r = {rank}"
    )]
    Shape { layer: String, a: Vec<usize>, b: Vec<usize>, rank: usize },
    #[error("layer {layer} has {inputs} inputs and {outputs} outputs: lora_A of {a:?} and lora_B of {b:?} do not fit")]
    Size { layer: String, a: Vec<usize>, b: Vec<usize>, inputs: usize, outputs: usize },
    #[error("the model has no weight {0}, which the adapter changes")]
    NoWeight(String),
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}

/// `adapter_config.json`. What is not read here is kept as it was.
///
/// ```
/// let config = openmps_candle::LoraConfig::new(8, 16.0, 0.05, &["query", "value"]);
/// assert_eq!(config.scaling(), 2.0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LoraConfig {
    /// "LORA".
    pub peft_type: String,
    /// The rank of the corrections.
    pub r: usize,
    /// The numerator of their scaling.
    pub lora_alpha: f64,
    /// The probability that a correction does not see an input in training.
    #[serde(default)]
    pub lora_dropout: f64,
    /// Whether the scaling is over the root of the rank.
    #[serde(default)]
    pub use_rslora: bool,
    /// Whether weights lie as [inputs, outputs]; not supported.
    #[serde(default)]
    pub fan_in_fan_out: bool,
    /// Which biases are trained; only "none" is supported.
    #[serde(default = "none")]
    pub bias: String,
    /// The layers that have a correction: ends of names, or an expression.
    #[serde(default)]
    pub target_modules: serde_json::Value,
    /// Everything else.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

fn none() -> String {
    "none".to_owned()
}

impl LoraConfig {
    /// The settings of a new adapter.
    ///
    /// ```
    /// assert_eq!(openmps_candle::LoraConfig::new(4, 4.0, 0.0, &["dense"]).peft_type, "LORA");
    /// ```
    pub fn new(rank: usize, alpha: f64, dropout: f64, target_modules: &[&str]) -> LoraConfig {
        LoraConfig {
            peft_type: "LORA".to_owned(),
            r: rank,
            lora_alpha: alpha,
            lora_dropout: dropout,
            use_rslora: false,
            fan_in_fan_out: false,
            bias: none(),
            target_modules: target_modules.into(),
            rest: serde_json::Map::new(),
        }
    }

    /// The factor of the corrections.
    ///
    /// ```
    /// let mut config = openmps_candle::LoraConfig::new(4, 8.0, 0.0, &[]);
    /// config.use_rslora = true;
    /// assert_eq!(config.scaling(), 4.0);
    /// ```
    pub fn scaling(&self) -> f64 {
        let rank = self.r as f64;
        self.lora_alpha / if self.use_rslora { rank.sqrt() } else { rank }
    }

    fn check(&self) -> Result<(), AdapterError> {
        if self.peft_type != "LORA" {
            return Err(AdapterError::NotLora(self.peft_type.clone()));
        }
        let unsupported = |setting, value: String| Err(AdapterError::Unsupported { setting, value });
        if self.r == 0 {
            return unsupported("r", "0".to_owned());
        }
        if self.fan_in_fan_out {
            return unsupported("fan_in_fan_out", "true".to_owned());
        }
        if self.bias != "none" {
            return unsupported("bias", self.bias.clone());
        }
        // Variants whose corrections are more than two matrices, or differ from layer to layer.
        for setting in ["use_dora", "rank_pattern", "alpha_pattern"] {
            let is_off = |value: &serde_json::Value| {
                value.is_null() || *value == false || value.as_object().is_some_and(serde_json::Map::is_empty)
            };
            if let Some(value) = self.rest.get(setting).filter(|value| !is_off(value)) {
                return unsupported(setting, value.to_string());
            }
        }
        Ok(())
    }
}

/// The corrections of a model's layers: by name, the matrices a [r, inputs] and b [outputs, r].
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use openmps_candle::{LoraAdapter, LoraConfig};
/// let zeros = |rows, columns| Tensor::zeros((rows, columns), DType::F32, &Device::Cpu);
/// let mut adapter = LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query"]))?;
/// adapter.insert("layer.0.query", zeros(2, 8)?, zeros(6, 2)?)?;
/// assert!(adapter.layer("layer.0.query").is_some());
/// # Ok::<(), openmps_candle::AdapterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoraAdapter {
    config: LoraConfig,
    layers: BTreeMap<String, (Tensor, Tensor)>,
}

impl LoraAdapter {
    /// An adapter without layers. Refuses what it cannot apply: DoRA, trained biases, ranks that differ from layer to layer.
    ///
    /// ```
    /// use openmps_candle::{LoraAdapter, LoraConfig};
    /// assert!(LoraAdapter::new(LoraConfig::new(0, 4.0, 0.0, &["query"])).is_err());
    /// ```
    pub fn new(config: LoraConfig) -> Result<LoraAdapter, AdapterError> {
        config.check()?;
        Ok(LoraAdapter { config, layers: BTreeMap::new() })
    }

    /// The settings.
    ///
    /// ```
    /// use openmps_candle::{LoraAdapter, LoraConfig};
    /// assert_eq!(LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query"]))?.config().r, 2);
    /// # Ok::<(), openmps_candle::AdapterError>(())
    /// ```
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// Adds a layer's matrices.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use openmps_candle::{AdapterError, LoraAdapter, LoraConfig};
    /// let wrong = Tensor::zeros((3, 8), DType::F32, &Device::Cpu)?;
    /// let mut adapter = LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query"]))?;
    /// assert!(matches!(adapter.insert("query", wrong.clone(), wrong), Err(AdapterError::Shape { .. })));
    /// # Ok::<(), AdapterError>(())
    /// ```
    pub fn insert(&mut self, layer: &str, a: Tensor, b: Tensor) -> Result<(), AdapterError> {
        let rank = self.config.r;
        if a.rank() != 2 || b.rank() != 2 || a.dims()[0] != rank || b.dims()[1] != rank {
            let (a, b) = (a.dims().to_vec(), b.dims().to_vec());
            return Err(AdapterError::Shape { layer: layer.to_owned(), a, b, rank });
        }
        self.layers.insert(layer.to_owned(), (a, b));
        Ok(())
    }

    /// The matrices of a layer.
    ///
    /// ```
    /// use openmps_candle::{LoraAdapter, LoraConfig};
    /// assert!(LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query"]))?.layer("key").is_none());
    /// # Ok::<(), openmps_candle::AdapterError>(())
    /// ```
    pub fn layer(&self, name: &str) -> Option<(&Tensor, &Tensor)> {
        self.layers.get(name).map(|(a, b)| (a, b))
    }

    /// The names of the layers that have a correction.
    ///
    /// ```
    /// use openmps_candle::{LoraAdapter, LoraConfig};
    /// assert_eq!(LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query"]))?.layers().count(), 0);
    /// # Ok::<(), openmps_candle::AdapterError>(())
    /// ```
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// Reads a folder that PEFT's `save_pretrained` or [`LoraAdapter::save`] wrote.
    ///
    /// ```
    /// assert!(openmps_candle::LoraAdapter::load("no/such/folder", &candle_core::Device::Cpu).is_err());
    /// ```
    pub fn load(folder: impl AsRef<Path>, device: &Device) -> Result<LoraAdapter, AdapterError> {
        let path = folder.as_ref().join(CONFIG);
        let text = std::fs::read_to_string(&path).map_err(|source| AdapterError::Io { path: path.clone(), source })?;
        let config = serde_json::from_str(&text).map_err(|source| AdapterError::Config { path, source })?;
        let mut adapter = LoraAdapter::new(config)?;
        let (mut first, mut second) = (BTreeMap::new(), BTreeMap::new());
        for (name, tensor) in candle_core::safetensors::load(folder.as_ref().join(WEIGHTS), device)? {
            let plain = name.strip_prefix(PREFIX).unwrap_or(&name);
            if let Some(layer) = plain.strip_suffix(".lora_A.weight") {
                first.insert(layer.to_owned(), tensor);
            } else if let Some(layer) = plain.strip_suffix(".lora_B.weight") {
                second.insert(layer.to_owned(), tensor);
            } else {
                return Err(AdapterError::UnknownTensor(name));
            }
        }
        for (layer, a) in first {
            let Some(b) = second.remove(&layer) else {
                return Err(AdapterError::Unpaired { layer, found: "lora_A", missing: "lora_B" });
            };
            adapter.insert(&layer, a, b)?;
        }
        match second.into_keys().next() {
            Some(layer) => Err(AdapterError::Unpaired { layer, found: "lora_B", missing: "lora_A" }),
            None => Ok(adapter),
        }
    }

    /// Writes both files into a folder, which is made where it is missing.
    ///
    /// ```no_run
    /// use openmps_candle::{LoraAdapter, LoraConfig};
    /// LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query"]))?.save("out/adapter")?;
    /// # Ok::<(), openmps_candle::AdapterError>(())
    /// ```
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), AdapterError> {
        let folder = folder.as_ref();
        let io = |path: &Path| {
            let path = path.to_owned();
            |source| AdapterError::Io { path, source }
        };
        std::fs::create_dir_all(folder).map_err(io(folder))?;
        let path = folder.join(CONFIG);
        let text = serde_json::to_string_pretty(&self.config)
            .map_err(|source| AdapterError::Config { path: path.clone(), source })?;
        std::fs::write(&path, text).map_err(io(&path))?;
        let mut tensors = HashMap::new();
        for (layer, (a, b)) in &self.layers {
            tensors.insert(format!("{PREFIX}{layer}.lora_A.weight"), a.contiguous()?);
            tensors.insert(format!("{PREFIX}{layer}.lora_B.weight"), b.contiguous()?);
        }
        Ok(candle_core::safetensors::save(&tensors, folder.join(WEIGHTS))?)
    }

    /// Adds `scaling * b a` to the weights of all layers that have a correction.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use openmps_candle::{LoraAdapter, LoraConfig};
    /// let ones = |rows, columns| Tensor::ones((rows, columns), DType::F32, &Device::Cpu);
    /// let mut adapter = LoraAdapter::new(LoraConfig::new(1, 2.0, 0.0, &["query"]))?;
    /// adapter.insert("query", ones(1, 1)?, ones(1, 1)?)?;
    /// let mut weights = [("query.weight".to_owned(), ones(1, 1)?)].into();
    /// adapter.merge_into(&mut weights)?;
    /// assert_eq!(weights["query.weight"].to_vec2::<f32>()?, [[3.0]]);
    /// adapter.unmerge_from(&mut weights)?;
    /// assert_eq!(weights["query.weight"].to_vec2::<f32>()?, [[1.0]]);
    /// # Ok::<(), openmps_candle::AdapterError>(())
    /// ```
    pub fn merge_into(&self, weights: &mut HashMap<String, Tensor>) -> Result<(), AdapterError> {
        self.add_to(weights, self.config.scaling())
    }

    /// Takes the corrections out again; float32 weights come back within rounding.
    ///
    /// ```
    /// use openmps_candle::{AdapterError, LoraAdapter, LoraConfig};
    /// let adapter = LoraAdapter::new(LoraConfig::new(1, 2.0, 0.0, &["query"]))?;
    /// adapter.unmerge_from(&mut Default::default())?;
    /// # Ok::<(), AdapterError>(())
    /// ```
    pub fn unmerge_from(&self, weights: &mut HashMap<String, Tensor>) -> Result<(), AdapterError> {
        self.add_to(weights, -self.config.scaling())
    }

    fn add_to(&self, weights: &mut HashMap<String, Tensor>, factor: f64) -> Result<(), AdapterError> {
        // All or nothing: a missing weight must not leave a model half merged.
        let mut changed = Vec::new();
        for (layer, (a, b)) in &self.layers {
            let name = format!("{layer}.weight");
            let weight = weights.get(&name).ok_or_else(|| AdapterError::NoWeight(name.clone()))?;
            let (a, b) = (a.to_dtype(weight.dtype())?, b.to_dtype(weight.dtype())?);
            changed.push((name, (weight + (matmul(&b, &a)? * factor)?)?.detach()));
        }
        weights.extend(changed);
        Ok(())
    }
}
