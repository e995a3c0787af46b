//! Every operator's gradients against finite differences in float64, on dense, transposed, offset and broadcast inputs.

use candle_core::{DType, Device, ModuleT, Result, Tensor, Var};
use openmps_candle::*;

/// How an input lies in memory: each is a view of a variable.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Dense,
    /// The last two dimensions were swapped.
    Transposed,
    /// The middle of a larger tensor.
    Offset,
    /// One dimension is repeated.
    Broadcast(usize),
}

const LAYOUTS: [Layout; 3] = [Layout::Dense, Layout::Transposed, Layout::Offset];

/// Numbers between -1 and 1 without order.
fn numbers(dims: &[usize], seed: usize) -> Result<Tensor> {
    let count = dims.iter().product();
    let value = |i: usize| ((i * 2_654_435_761 + seed * 40_503 + 12_345) % 100_003) as f64 / 50_001.5 - 1.0;
    Tensor::from_vec((0..count).map(value).collect::<Vec<f64>>(), dims, &Device::Cpu)
}

/// A variable and how the input of this shape is made from it.
fn variable(dims: &[usize], layout: Layout, seed: usize) -> Result<Var> {
    let mut dims = dims.to_vec();
    match layout {
        Layout::Dense => {}
        Layout::Transposed => {
            let rank = dims.len();
            if rank >= 2 {
                dims.swap(rank - 2, rank - 1);
            }
        }
        Layout::Offset => dims.iter_mut().for_each(|size| *size += 2),
        Layout::Broadcast(axis) => dims[axis] = 1,
    }
    Var::from_tensor(&numbers(&dims, seed)?)
}

fn input(variable: &Tensor, dims: &[usize], layout: Layout) -> Result<Tensor> {
    match layout {
        Layout::Dense => Ok(variable.clone()),
        Layout::Transposed if dims.len() >= 2 => variable.transpose(dims.len() - 2, dims.len() - 1),
        Layout::Transposed => Ok(variable.clone()),
        Layout::Offset => (0..dims.len()).try_fold(variable.clone(), |x, axis| x.narrow(axis, 1, dims[axis])),
        Layout::Broadcast(_) => variable.broadcast_as(dims),
    }
}

/// The loss: the result weighted without order.
fn loss(result: &Tensor) -> Result<Tensor> {
    (result * numbers(result.dims(), 99)?)?.sum_all()
}

/// Compares the gradients of all inputs with finite differences.
fn check(name: &str, shapes: &[&[usize]], layouts: &[Layout], f: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let variables = shapes.iter().zip(layouts).enumerate();
    let variables: Vec<Var> =
        variables.map(|(i, (dims, &layout))| variable(dims, layout, i + 1)).collect::<Result<_>>()?;
    let evaluate = |tensors: &[Tensor]| -> Result<Tensor> {
        let inputs = tensors.iter().zip(shapes).zip(layouts);
        let inputs: Vec<Tensor> = inputs.map(|((x, dims), &layout)| input(x, dims, layout)).collect::<Result<_>>()?;
        loss(&f(&inputs)?)
    };
    let tensors: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
    let gradients = evaluate(&tensors)?.backward()?;
    const STEP: f64 = 2e-4;
    for (number, variable) in variables.iter().enumerate() {
        let gradient =
            gradients.get(variable.as_tensor()).unwrap_or_else(|| panic!("{name}: input {number} has no gradient"));
        assert_eq!(gradient.dims(), variable.dims(), "{name}: input {number}");
        let gradient = gradient.flatten_all()?.to_vec1::<f64>()?;
        let values = variable.flatten_all()?.to_vec1::<f64>()?;
        let mut nonzero = false;
        for (place, &got) in gradient.iter().enumerate() {
            let at = |change: f64| -> Result<f64> {
                let mut values = values.clone();
                values[place] += change;
                let mut tensors: Vec<Tensor> = tensors.iter().map(Tensor::detach).collect();
                tensors[number] = Tensor::from_vec(values, variable.dims(), &Device::Cpu)?;
                evaluate(&tensors)?.to_scalar::<f64>()
            };
            // Of fourth order, so that the step may be long and rounding small beside it.
            let [near, far] = [STEP, 2.0 * STEP].map(|step| Ok::<f64, candle_core::Error>(at(step)? - at(-step)?));
            let expected = (8.0 * near? - far?) / (12.0 * STEP);
            nonzero |= expected.abs() > 1e-3;
            let error = (got - expected).abs();
            assert!(
                error < 1e-7 * expected.abs().max(1.0),
                "{name}, {layouts:?}: input {number}, element {place}: {got} against {expected}"
            );
        }
        // Softmax and norms of a row of equal elements do not depend on them.
        let repeated = layouts.iter().any(|layout| matches!(layout, Layout::Broadcast(_)));
        assert!(nonzero || repeated, "{name}: the gradient of input {number} is zero everywhere, which shows nothing");
    }
    Ok(())
}

/// All inputs in each layout, then each input broadcast along each of its axes.
fn check_layouts(name: &str, shapes: &[&[usize]], f: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    for layout in LAYOUTS {
        check(name, shapes, &vec![layout; shapes.len()], f)?;
    }
    for (number, dims) in shapes.iter().enumerate() {
        for axis in 0..dims.len() {
            let mut layouts = vec![Layout::Dense; shapes.len()];
            layouts[number] = Layout::Broadcast(axis);
            check(name, shapes, &layouts, f)?;
        }
    }
    Ok(())
}

#[test]
fn products() -> Result<()> {
    let product = |x: &[Tensor]| matmul(&x[0], &x[1]);
    check_layouts("matmul", &[&[5, 6], &[6, 4]], &product)?;
    check_layouts("matmul, batches", &[&[2, 3, 4], &[2, 4, 5]], &product)?;
    // Broadcast inside of the operator rather than by a view.
    check("matmul, one right matrix", &[&[3, 2, 4], &[4, 5]], &[Layout::Offset, Layout::Transposed], &product)?;
    check("matmul, batches of 1", &[&[2, 1, 3, 4], &[3, 4, 5]], &[Layout::Dense; 2], &product)
}

#[test]
fn softmaxes() -> Result<()> {
    for dim in 0..3 {
        check_layouts("softmax", &[&[3, 4, 5]], &|x| softmax(&x[0], dim))?;
        check_layouts("log softmax", &[&[3, 4, 5]], &|x| log_softmax(&x[0], dim))?;
    }
    Ok(())
}

#[test]
fn norms() -> Result<()> {
    check_layouts("rms norm", &[&[2, 3, 6], &[6]], &|x| rms_norm(&x[0], &x[1], 1e-3))?;
    check_layouts("layer norm", &[&[2, 3, 6], &[6]], &|x| layer_norm(&x[0], &x[1], None, 1e-3))?;
    check_layouts("layer norm, bias", &[&[4, 6], &[6], &[6]], &|x| layer_norm(&x[0], &x[1], Some(&x[2]), 1e-3))
}

#[test]
fn rotations() -> Result<()> {
    for interleaved in [false, true] {
        check_layouts("rope", &[&[2, 3, 4, 6], &[4, 3], &[4, 3]], &|x| rope(&x[0], &x[1], &x[2], interleaved))?;
        let own = |x: &[Tensor]| rope(&x[0], &x[1], &x[2], interleaved);
        check("rope, own positions", &[&[2, 3, 4, 6], &[2, 4, 3], &[2, 4, 3]], &[Layout::Offset; 3], &own)?;
    }
    Ok(())
}

#[test]
fn attentions() -> Result<()> {
    let plain = AttentionOptions::default();
    let shapes: [&[usize]; 3] = [&[2, 2, 3, 4], &[2, 2, 5, 4], &[2, 2, 5, 3]];
    check_layouts("attention", &shapes, &|x| attention(&x[0], &x[1], &x[2], &plain))?;
    let causal = AttentionOptions { causal: true, scale: Some(0.7), merge_heads: true, ..Default::default() };
    let grouped: [&[usize]; 3] = [&[1, 4, 3, 4], &[1, 2, 5, 4], &[1, 2, 5, 4]];
    check_layouts("attention, causal, grouped", &grouped, &|x| attention(&x[0], &x[1], &x[2], &causal))?;
    // A query without keys, keys behind minus infinity, and a mask of one row for all.
    let mut values = numbers(&[2, 1, 1, 5], 7)?.flatten_all()?.to_vec1::<f64>()?;
    values[1] = f64::NEG_INFINITY;
    values[5..].fill(f64::NEG_INFINITY);
    let mask = Some(Tensor::from_vec(values, (2, 1, 1, 5), &Device::Cpu)?);
    let masked = AttentionOptions { mask, causal: true, ..Default::default() };
    check("attention, masked", &shapes, &[Layout::Offset; 3], &|x| attention(&x[0], &x[1], &x[2], &masked))?;
    let near = AttentionOptions { causal: true, window: Some(2), soft_cap: Some(0.8), ..Default::default() };
    check_layouts("attention, window, soft cap", &grouped, &|x| attention(&x[0], &x[1], &x[2], &near))?;
    let lengths: [&[usize]; 3] = [&[4, 4, 3], &[6, 2, 3], &[6, 2, 2]];
    let texts = [(1, 3), (3, 3)];
    check_layouts("attention of lengths", &lengths, &|x| attention_of_lengths(&x[0], &x[1], &x[2], &texts, &near))?;
    let short: [&[usize]; 3] = [&[1, 2, 5, 4], &[1, 2, 3, 4], &[1, 2, 3, 4]];
    check("attention, more queries than keys", &short, &[Layout::Transposed; 3], &|x| {
        attention(&x[0], &x[1], &x[2], &causal)
    })
}

#[test]
fn layers() -> Result<()> {
    // Large enough for this library's own way.
    assert!(path::THRESHOLDS.iter().all(|row| row.smallest <= 4 * 5 * 4));
    check_layouts("linear", &[&[2, 3, 5], &[4, 5]], &|x| linear(&x[0], &x[1], None))?;
    check_layouts("linear, bias", &[&[4, 5], &[4, 5], &[4]], &|x| linear(&x[0], &x[1], Some(&x[2])))?;
    let (weight, bias) = (numbers(&[4, 5], 13)?, numbers(&[4], 14)?);
    check_layouts("linear, residual", &[&[4, 5], &[4, 4]], &|x| linear_add(&x[0], &weight, &bias, &x[1]))?;
    check_layouts("linear, gelu", &[&[4, 5], &[4, 5], &[4]], &|x| linear_gelu(&x[0], &x[1], &x[2]))?;
    check_layouts("gelu", &[&[4, 5]], &|x| gelu(&x[0]))?;
    let (weight, bias) = (numbers(&[6, 5], 11)?, numbers(&[6], 12)?);
    let shapes: [&[usize]; 3] = [&[2, 3, 5], &[2, 5], &[6, 2]];
    check_layouts("lora", &shapes, &|x| lora_linear(&x[0], &weight, Some(&bias), (&x[1], &x[2]), 1.5))?;
    check_layouts("lora, strided weight", &shapes, &|x| {
        lora_linear(&x[0], &weight.t()?.contiguous()?.t()?, None, (&x[1], &x[2]), 0.5)
    })?;
    // A new layer of the same seed drops the same elements in every evaluation.
    let dropping = |x: &[Tensor]| {
        let matrices = (x[1].clone(), x[2].clone());
        LoraLinear::from_parts(weight.clone(), Some(bias.clone()), matrices, 1.5, 0.4, 3)?.forward_t(&x[0], true)
    };
    check_layouts("lora, dropout", &shapes, &dropping)
}

#[test]
fn half_precision_follows_float64() -> Result<()> {
    let of = |dtype: DType| -> Result<Vec<Vec<f64>>> {
        let make =
            |dims: &[usize], seed| Var::from_tensor(&numbers(dims, seed)?.to_dtype(DType::BF16)?.to_dtype(dtype)?);
        let (q, k) = (make(&[1, 2, 3, 8], 1)?, make(&[1, 1, 4, 8], 2)?);
        let (weight, angles) = (make(&[8], 3)?, make(&[3, 4], 4)?);
        let x = rope(&rms_norm(&q, &weight, 1e-3)?, &angles, &angles, false)?;
        let y = attention(&x, &k, &k, &AttentionOptions { causal: true, ..Default::default() })?;
        let y = layer_norm(
            &softmax(&matmul(&y, &k.t()?.broadcast_as((1, 2, 8, 4))?)?, 3)?,
            make(&[4], 5)?.as_tensor(),
            None,
            1e-3,
        )?;
        let gradients = (y.to_dtype(DType::F64)? * numbers(&[1, 2, 3, 4], 6)?)?.sum_all()?.backward()?;
        let list = [&q, &k, &weight, &angles].map(|variable| {
            gradients
                .get(variable.as_tensor())
                .expect("a gradient")
                .to_dtype(DType::F64)?
                .flatten_all()?
                .to_vec1::<f64>()
        });
        list.into_iter().collect()
    };
    let exact = of(DType::F64)?;
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F16, 0.05), (DType::BF16, 0.4)] {
        for (got, exact) in of(dtype)?.iter().zip(&exact) {
            let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let error = norm(&mut got.iter().zip(exact).map(|(a, b)| a - b)) / norm(&mut exact.iter().copied());
            assert!(error < tolerance, "{dtype:?}: relative error {error}");
        }
    }
    Ok(())
}
