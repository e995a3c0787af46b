//! A small BERT: masks of every type, adapters in both spellings, and what is refused.

use candle_core::{DType, Device, Result, Tensor};
use openmps_candle::{Bert, BertConfig, LoraAdapter, LoraConfig};
use std::collections::HashMap;

const SIZE: usize = 8;

fn numbers(dims: &[usize], seed: usize) -> Result<Tensor> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
    Tensor::from_vec((0..dims.iter().product()).map(value).collect::<Vec<f32>>(), dims, &Device::Cpu)
}

fn config(heads: usize) -> BertConfig {
    BertConfig { num_hidden_layers: 2, num_attention_heads: heads, layer_norm_eps: 1e-5 }
}

/// Weights of two layers, in this type.
fn weights(dtype: DType) -> Result<HashMap<String, Tensor>> {
    let mut tensors = HashMap::new();
    let mut put = |name: String, dims: &[usize]| -> Result<()> {
        let tensor = numbers(dims, tensors.len() + 1)?.to_dtype(dtype)?;
        tensors.insert(name, tensor);
        Ok(())
    };
    for (name, rows) in [("word", 11), ("position", 6), ("token_type", 2)] {
        put(format!("embeddings.{name}_embeddings.weight"), &[rows, SIZE])?;
    }
    let mut layers = vec![("embeddings.LayerNorm".to_owned(), SIZE, None)];
    for layer in 0..2 {
        let of = |name: &str| format!("encoder.layer.{layer}.{name}");
        for part in ["self.query", "self.key", "self.value", "output.dense"] {
            layers.push((of(&format!("attention.{part}")), SIZE, Some(SIZE)));
        }
        layers.push((of("attention.output.LayerNorm"), SIZE, None));
        layers.push((of("intermediate.dense"), 2 * SIZE, Some(SIZE)));
        layers.push((of("output.dense"), SIZE, Some(2 * SIZE)));
        layers.push((of("output.LayerNorm"), SIZE, None));
    }
    for (name, outputs, inputs) in layers {
        put(format!("{name}.bias"), &[outputs])?;
        let dims: Vec<usize> = std::iter::once(outputs).chain(inputs).collect();
        put(format!("{name}.weight"), &dims)?;
    }
    Ok(tensors)
}

fn ids() -> Result<Tensor> {
    Tensor::new(&[[1u32, 2, 3, 4, 5], [6, 7, 8, 0, 0]], &Device::Cpu)
}

/// The second text has two tokens of padding.
fn mask(dtype: DType) -> Result<Tensor> {
    Tensor::new(&[[1.0f32; 5], [1.0, 1.0, 1.0, 0.0, 0.0]], &Device::Cpu)?.to_dtype(dtype)
}

/// The numbers of the second text's tokens.
fn of_second_text(states: &Tensor) -> Result<Vec<f32>> {
    states.narrow(0, 1, 1)?.narrow(1, 0, 3)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

#[test]
fn a_mask_of_any_type_hides_padding() -> Result<()> {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F16, 0.02), (DType::BF16, 0.15)] {
        let bert = Bert::new(&weights(dtype)?, &config(2))?;
        let alone = ids()?.narrow(0, 1, 1)?.narrow(1, 0, 3)?;
        let expected = bert.forward(&alone, &Tensor::ones((1, 3), dtype, &Device::Cpu)?, false)?;
        let expected = expected.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let embedding = |ids: &Tensor, mask: &Tensor| bert.embed(ids, mask)?.to_dtype(DType::F32)?.to_vec2::<f32>();
        let embedded = embedding(&alone, &Tensor::ones((1, 3), dtype, &Device::Cpu)?)?;
        for of_mask in [dtype, DType::F32, DType::U8, DType::U32, DType::I64, DType::BF16, DType::F64] {
            let near = |got: &[f32], expected: &[f32]| {
                let is_near = got.iter().zip(expected).all(|(got, want)| (got - want).abs() <= tolerance);
                assert!(is_near, "{dtype:?} with a mask of {of_mask:?}: {got:?} for {expected:?}");
            };
            let mask = mask(of_mask)?;
            near(&of_second_text(&bert.forward(&ids()?, &mask, false)?)?, &expected);
            near(&embedding(&ids()?, &mask)?[1], &embedded[0]);
        }
    }
    Ok(())
}

fn adapter(names: &[&str]) -> Result<LoraAdapter> {
    let mut adapter =
        LoraAdapter::new(LoraConfig::new(2, 4.0, 0.0, &["query", "value"])).map_err(candle_core::Error::wrap)?;
    for (seed, name) in names.iter().enumerate() {
        let (a, b) = (numbers(&[2, SIZE], seed)?, numbers(&[SIZE, 2], seed + 50)?);
        adapter.insert(name, a, b).map_err(candle_core::Error::wrap)?;
    }
    Ok(adapter)
}

#[test]
fn an_adapter_may_have_the_prefix_of_the_weights() -> Result<()> {
    let bert = Bert::new(&weights(DType::F32)?, &config(2))?;
    let states = |adapter: LoraAdapter| -> Result<Vec<f32>> {
        let bert = bert.clone().with_adapter(&adapter)?;
        assert_eq!(bert.corrections().len(), 2);
        bert.forward(&ids()?, &mask(DType::F32)?, false)?.flatten_all()?.to_vec1()
    };
    let names = ["encoder.layer.0.attention.self.query", "encoder.layer.1.attention.self.value"];
    let plain = states(adapter(&names)?)?;
    let prefixed = names.map(|name| format!("bert.{name}"));
    assert_eq!(states(adapter(&prefixed.each_ref().map(String::as_str))?)?, plain);
    assert_ne!(bert.forward(&ids()?, &mask(DType::F32)?, false)?.flatten_all()?.to_vec1::<f32>()?, plain);
    Ok(())
}

#[test]
fn an_adapters_layer_that_has_no_place_is_refused() -> Result<()> {
    let bert = Bert::new(&weights(DType::F32)?, &config(2))?;
    let known = "encoder.layer.0.attention.self.query";
    for unknown in [
        "encoder.layer.2.attention.self.query",
        "encoder.layer.0.attention.output.dense",
        "roberta.encoder.layer.0.attention.self.query",
        "bert.encoder.layer.0.attention.self.query",
        "bert.encoder.layer.0.output.dense",
    ] {
        let error = bert.clone().with_adapter(&adapter(&[known, unknown])?).expect_err(unknown).to_string();
        assert!(error.contains(&format!("the model has no weight {unknown}")), "{error}");
    }
    Ok(())
}

#[test]
fn heads_divide_the_size() -> Result<()> {
    for heads in [0, 3, 16] {
        let error = Bert::new(&weights(DType::F32)?, &config(heads)).expect_err("no such heads").to_string();
        assert!(error.contains(&format!("num_attention_heads is {heads}, expected a divisor of 8")), "{error}");
    }
    Ok(())
}
