//! LoRA layers and adapters: dropout, merging, PEFT's files there and back, and what is refused.

use candle_core::{DType, Device, ModuleT, Result, Tensor};
use openmps_candle::{AdapterError, LoraAdapter, LoraConfig, LoraLinear, lora_linear};
use std::collections::HashMap;

fn numbers(rows: usize, columns: usize, seed: usize) -> Result<Tensor> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0;
    Tensor::from_vec((0..rows * columns).map(value).collect::<Vec<f32>>(), (rows, columns), &Device::Cpu)
}

fn distance(a: &Tensor, b: &Tensor) -> Result<f32> {
    (a - b)?.abs()?.max_all()?.to_scalar()
}

#[test]
fn merged_and_unmerged_layers_agree() -> Result<()> {
    let (weight, bias) = (numbers(24, 16, 1)?, numbers(1, 24, 2)?.squeeze(0)?);
    let matrices = (numbers(4, 16, 3)?, numbers(24, 4, 4)?);
    let layer = LoraLinear::from_parts(weight, Some(bias), matrices, 0.25, 0.0, 0)?;
    let x = numbers(10, 16, 5)?;
    use candle_core::Module;
    assert!(distance(&layer.forward(&x)?, &layer.merged()?.forward(&x)?)? < 1e-5);
    let (a, b) = layer.matrices();
    let plain = (x.matmul(&layer.weight().t()?)? + (x.matmul(&a.t()?)?.matmul(&b.t()?)? * 0.25)?)?;
    let unbiased = lora_linear(&x, layer.weight(), None, (a, b), 0.25)?;
    assert!(distance(&unbiased, &plain)? < 1e-5);
    Ok(())
}

#[test]
fn dropout_is_right_on_average_and_new_in_every_call() -> Result<()> {
    let matrices =
        (Tensor::ones((1, 1000), DType::F32, &Device::Cpu)?, Tensor::ones((1, 1), DType::F32, &Device::Cpu)?);
    let weight = Tensor::zeros((1, 1000), DType::F32, &Device::Cpu)?;
    let layer = LoraLinear::from_parts(weight, None, matrices, 1.0, 0.25, 5)?;
    let x = Tensor::ones((50, 1000), DType::F32, &Device::Cpu)?;
    let (first, second) = (layer.forward_t(&x, true)?, layer.forward_t(&x, true)?);
    assert!(distance(&first, &second)? > 1.0);
    let mean = first.mean_all()?.to_scalar::<f32>()?;
    assert!((mean - 1000.0).abs() < 10.0, "{mean}");
    assert_eq!(layer.forward(&x)?.mean_all()?.to_scalar::<f32>()?, 1000.0, "none without training");
    Ok(())
}

#[test]
fn a_new_layer_changes_nothing_and_repeats_with_its_seed() -> Result<()> {
    let weight = numbers(12, 8, 1)?;
    let make = |seed| LoraLinear::new(weight.clone(), None, 4, 8.0, 0.1, seed);
    let x = numbers(3, 8, 2)?;
    assert!(distance(&make(1)?.forward(&x)?, &x.matmul(&weight.t()?)?)? < 1e-6);
    assert_eq!(distance(make(1)?.matrices().0, make(1)?.matrices().0)?, 0.0);
    assert!(distance(make(1)?.matrices().0, make(2)?.matrices().0)? > 0.0);
    assert!(make(1)?.matrices().0.is_variable() && make(1)?.matrices().1.is_variable());
    Ok(())
}

fn adapter() -> std::result::Result<LoraAdapter, AdapterError> {
    let mut adapter = LoraAdapter::new(LoraConfig::new(2, 6.0, 0.1, &["query", "value"]))?;
    adapter.insert("layer.0.query", numbers(2, 8, 1)?, numbers(6, 2, 2)?)?;
    adapter.insert("layer.0.value", numbers(2, 8, 3)?, numbers(6, 2, 4)?)?;
    Ok(adapter)
}

#[test]
fn files_go_there_and_back() -> std::result::Result<(), AdapterError> {
    let (adapter, folder) = (adapter()?, tempfile::tempdir().expect("a folder"));
    adapter.save(folder.path())?;
    let names = candle_core::safetensors::load(folder.path().join("adapter_model.safetensors"), &Device::Cpu)?;
    assert!(names.contains_key("base_model.model.layer.0.query.lora_A.weight"), "PEFT's names");
    let back = LoraAdapter::load(folder.path(), &Device::Cpu)?;
    assert_eq!(back.config(), adapter.config());
    assert_eq!(back.layers().collect::<Vec<_>>(), ["layer.0.query", "layer.0.value"]);
    for layer in adapter.layers() {
        let ((a, b), (c, d)) = (adapter.layer(layer).expect("it"), back.layer(layer).expect("it"));
        assert_eq!((distance(a, c)?, distance(b, d)?), (0.0, 0.0));
    }
    Ok(())
}

#[test]
fn unknown_settings_are_kept() -> std::result::Result<(), AdapterError> {
    let text = r#"{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "task_type": "FEATURE_EXTRACTION", "target_modules": ["query"],
        "base_model_name_or_path": "some/model", "use_dora": false, "rank_pattern": {}, "bias": "none", "fan_in_fan_out": false}"#;
    let config: LoraConfig = serde_json::from_str(text).expect("PEFT's layout");
    assert_eq!(config.rest["task_type"], "FEATURE_EXTRACTION");
    let folder = tempfile::tempdir().expect("a folder");
    LoraAdapter::new(config)?.save(folder.path())?;
    let again = std::fs::read_to_string(folder.path().join("adapter_config.json")).expect("written");
    assert!(again.contains("some/model"), "{again}");
    Ok(())
}

#[test]
fn merging_comes_back_and_is_all_or_nothing() -> std::result::Result<(), AdapterError> {
    let (adapter, weight) = (adapter()?, numbers(6, 8, 9)?);
    let mut weights: HashMap<String, Tensor> = [("layer.0.query.weight".to_owned(), weight.clone())].into();
    assert!(
        matches!(adapter.merge_into(&mut weights), Err(AdapterError::NoWeight(name)) if name == "layer.0.value.weight")
    );
    assert_eq!(distance(&weights["layer.0.query.weight"], &weight)?, 0.0);
    weights.insert("layer.0.value.weight".to_owned(), weight.clone());
    adapter.merge_into(&mut weights)?;
    let (a, b) = adapter.layer("layer.0.query").expect("it");
    let expected = (&weight + (b.matmul(a)? * 3.0)?)?;
    assert!(distance(&weights["layer.0.query.weight"], &expected)? < 1e-5);
    adapter.unmerge_from(&mut weights)?;
    assert!(distance(&weights["layer.0.query.weight"], &weight)? < 1e-5);
    Ok(())
}

#[test]
fn what_is_refused() -> std::result::Result<(), AdapterError> {
    let refused = |change: fn(&mut LoraConfig)| {
        let mut config = LoraConfig::new(2, 4.0, 0.0, &["query"]);
        change(&mut config);
        LoraAdapter::new(config).err()
    };
    assert!(matches!(refused(|c| c.peft_type = "IA3".to_owned()), Some(AdapterError::NotLora(name)) if name == "IA3"));
    assert!(matches!(refused(|c| c.r = 0), Some(AdapterError::Unsupported { setting: "r", .. })));
    assert!(matches!(refused(|c| c.bias = "all".to_owned()), Some(AdapterError::Unsupported { setting: "bias", .. })));
    assert!(matches!(refused(|c| c.fan_in_fan_out = true), Some(AdapterError::Unsupported { .. })));
    let dora = |c: &mut LoraConfig| drop(c.rest.insert("use_dora".to_owned(), true.into()));
    assert!(matches!(refused(dora), Some(AdapterError::Unsupported { setting: "use_dora", .. })));
    assert!(refused(|_| ()).is_none());
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("adapter_config.json"), "{").expect("written");
    assert!(matches!(LoraAdapter::load(folder.path(), &Device::Cpu), Err(AdapterError::Config { .. })));
    adapter()?.save(folder.path())?;
    let mut tensors = candle_core::safetensors::load(folder.path().join("adapter_model.safetensors"), &Device::Cpu)?;
    tensors.remove("base_model.model.layer.0.query.lora_B.weight");
    candle_core::safetensors::save(&tensors, folder.path().join("adapter_model.safetensors"))?;
    assert!(matches!(
        LoraAdapter::load(folder.path(), &Device::Cpu),
        Err(AdapterError::Unpaired { missing: "lora_B", .. })
    ));
    tensors.insert("something.else".to_owned(), numbers(1, 1, 1)?);
    candle_core::safetensors::save(&tensors, folder.path().join("adapter_model.safetensors"))?;
    assert!(matches!(LoraAdapter::load(folder.path(), &Device::Cpu), Err(AdapterError::UnknownTensor(_))));
    Ok(())
}
