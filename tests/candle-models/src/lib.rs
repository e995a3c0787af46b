//! Random weights for models of candle-transformers, and the models in small sizes.

pub mod models;

use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a model's weights are.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    /// Numbers, rounded to this type first.
    Frozen(DType),
    /// Variables.
    Trained,
    /// Numbers, and on the projections of queries and values a correction of this rank: `weight + b a`, of which a and b are variables.
    Lora(usize),
}

/// Weights by name, the same for the same name.
#[derive(Clone)]
pub struct Weights {
    kind: Kind,
    variables: Arc<Mutex<BTreeMap<String, Var>>>,
}

impl Weights {
    pub fn new(kind: Kind) -> Weights {
        Weights { kind, variables: Arc::default() }
    }

    /// For a model that computes in this type.
    pub fn builder(&self, dtype: DType) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(self.clone()), dtype, Device::Cpu)
    }

    /// The variables that the models so far have been given, by name.
    pub fn variables(&self) -> Vec<(String, Var)> {
        self.variables.lock().unwrap().iter().map(|(name, variable)| (name.clone(), variable.clone())).collect()
    }

    fn variable(&self, name: &str, first: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        let mut variables = self.variables.lock().unwrap();
        if !variables.contains_key(name) {
            variables.insert(name.to_owned(), Var::from_tensor(&first()?)?);
        }
        Ok(variables[name].as_tensor().clone())
    }
}

/// Numbers between -scale and scale.
pub fn random(dims: &[usize], scale: f32, seed: u64) -> Result<Tensor> {
    let mut numbers = fastrand::Rng::with_seed(seed);
    let data: Vec<f32> = (0..dims.iter().product()).map(|_| scale * (numbers.f32() * 2.0 - 1.0)).collect();
    Tensor::from_vec(data, dims, &Device::Cpu)
}

/// A number of a text's bytes (FNV-1a).
fn seed(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

impl SimpleBackend for Weights {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, _: &Device) -> Result<Tensor> {
        let dims = shape.dims();
        let inner: usize = dims[1..].iter().product();
        let numbers = match dims.len() {
            // Weights of norms lie about 1, biases about 0.
            1 if name.ends_with("weight") => (random(dims, 0.3, seed(name))? + 1.0)?,
            1 => random(dims, 0.1, seed(name))?,
            // Rows keep the size of what they are given.
            _ => random(dims, 1.7 / (inner as f32).sqrt(), seed(name))?,
        };
        let corrected = name.ends_with("q_proj.weight") || name.ends_with("v_proj.weight");
        match self.kind {
            Kind::Frozen(rounded) => numbers.to_dtype(rounded)?.to_dtype(dtype),
            Kind::Trained => self.variable(name, || numbers.to_dtype(dtype)),
            Kind::Lora(rank) if corrected => {
                let a = self.variable(&format!("{name}.a"), || random(&[rank, dims[1]], 0.1, seed(name) + 1))?;
                let b = self.variable(&format!("{name}.b"), || Tensor::zeros((dims[0], rank), dtype, &Device::Cpu))?;
                numbers + (b.matmul(&a)? * 2.0)?
            }
            Kind::Lora(_) => numbers.to_dtype(dtype),
        }
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("{name} is asked for without its shape")
    }

    /// No older names, and nothing tied.
    fn contains_tensor(&self, name: &str) -> bool {
        !name.ends_with("gamma") && !name.ends_with("beta")
    }
}
