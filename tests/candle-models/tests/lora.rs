//! LoRA on an unchanged Llama of candle-transformers with AdamW: which variables get a gradient, what it is by finite differences, and where
//! the loss goes.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_models::models::{Sizes, VOCABULARY, llama_config, loss, text};
use candle_models::{Kind, Weights};
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use candle_transformers::models::llama::{Cache, Llama};
use openmps_candle::hooks::candles_own;

/// Four layers, so 16 matrices on queries and values.
const SIZES: Sizes = Sizes { heads: 4, key_heads: 2, size: 128, feed: 256, layers: 4, tokens: 24 };

/// The loss on a text, of the model as its variables are now: what follows the last token, for texts that begin alike.
fn text_loss(weights: &Weights) -> Result<Tensor> {
    let config = llama_config(SIZES);
    let model = Llama::load(weights.builder(DType::F32), &config)?;
    let whole = text(SIZES.tokens + 1, 11)?;
    let mut losses = Vec::new();
    for length in [5, 11, 17, SIZES.tokens] {
        let mut cache = Cache::new(false, DType::F32, &config, &Device::Cpu)?;
        let scores = model.forward(&whole.narrow(1, 0, length)?, 0, &mut cache)?;
        losses.push(loss(&scores, &whole.narrow(1, length, 1)?.squeeze(1)?)?);
    }
    Tensor::stack(&losses, 0)?.mean_all()
}

/// Variables with a gradient, and the loss before and after 30 steps.
fn train(weights: &Weights) -> Result<(usize, f32, f32)> {
    let first = text_loss(weights)?;
    let variables: Vec<Var> = weights.variables().into_iter().map(|(_, variable)| variable).collect();
    let gradients = first.backward()?;
    let with = variables.iter().filter(|variable| gradients.get(variable).is_some()).count();
    let mut optimizer = AdamW::new(variables, ParamsAdamW { lr: 1e-2, ..ParamsAdamW::default() })?;
    for _ in 0..30 {
        optimizer.backward_step(&text_loss(weights)?)?;
    }
    Ok((with, first.to_scalar()?, text_loss(weights)?.to_scalar()?))
}

#[test]
fn sixteen_of_sixteen_variables_learn() -> Result<()> {
    let weights = Weights::new(Kind::Lora(4));
    let (of_candle, before, after) = candles_own(|| train(&weights))?;
    println!(
        "Candle's own operators: {of_candle} of 16 variables have a gradient, the loss goes from {before} to {after}"
    );
    assert_eq!((of_candle, before), (0, after), "the reason for openmps's operators is gone");
    let weights = Weights::new(Kind::Lora(4));
    let (ours, before, after) = train(&weights)?;
    println!("openmps's operators: {ours} of 16 variables have a gradient, the loss goes from {before} to {after}");
    assert_eq!((weights.variables().len(), ours), (16, 16));
    assert!(before > 0.5 * (VOCABULARY as f32).ln() && after < 0.1 * before, "from {before} to {after}");
    Ok(())
}

#[test]
fn gradients_are_those_of_finite_differences() -> Result<()> {
    let weights = Weights::new(Kind::Lora(4));
    text_loss(&weights)?;
    // Away from where b is zero, and with it a's gradient.
    for (number, (_, variable)) in weights.variables().iter().enumerate() {
        variable.set(&candle_models::random(variable.dims(), 0.1, number as u64)?)?;
    }
    let gradients = text_loss(&weights)?.backward()?;
    for (name, variable) in weights.variables() {
        let gradient = gradients.get(&variable).expect("a gradient").clone();
        let length = gradient.sqr()?.sum_all()?.sqrt()?.to_scalar::<f32>()?;
        let (start, along) = (variable.as_tensor().copy()?, (gradient / f64::from(length))?);
        let at = |step: f64| -> Result<f64> {
            variable.set(&(&start + (&along * step)?)?)?;
            Ok(f64::from(text_loss(&weights)?.to_scalar::<f32>()?))
        };
        // Of fourth order: what is left is float32's rounding of the loss.
        let step = 0.05;
        let slope = (8.0 * (at(step)? - at(-step)?) - (at(2.0 * step)? - at(-2.0 * step)?)) / (12.0 * step);
        variable.set(&start)?;
        println!("{name}: {slope:.5} by differences, {length:.5} by the gradient");
        assert!((slope / f64::from(length) - 1.0).abs() < 5e-3, "{name}: {slope}, not {length}");
    }
    Ok(())
}
