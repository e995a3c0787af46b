//! What the objects compute, against plain loops in float64: paddings of rows, offsets, batches, origins, aliases in graphs.

use openmps::{
    Access, Buffer, DataType, Device, Distribution, Graph, LayerNorm, Matrix, MatrixDescriptor, MatrixFindTopK,
    MatrixLogSoftMax, MatrixMultiplication, MatrixRandom, MatrixSoftMax, Origin, RmsNorm, TensorData, Vector, bf16,
    f16,
};

fn device() -> Device {
    Device::get(0).expect("there is a device")
}

/// The first device, and the emulated GPU where there is one.
fn devices() -> Vec<Device> {
    let devices = vec![device()];
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    let devices = {
        let emulated = Device::over(0, openmps::runtime::metal::emulated::Emulated::of_environment());
        devices.into_iter().chain([emulated]).collect()
    };
    devices
}

/// Numbers between -2 and 2 that no two places share.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| (((i * 37 + seed * 101) % 997) as f32 / 997.0 - 0.5) * 4.0).collect()
}

fn commit(encode: impl FnOnce(&openmps::CommandBuffer) -> openmps::Result<()>) {
    let command_buffer = device().queue().command_buffer();
    encode(&command_buffer).expect("a legal call");
    command_buffer.commit().expect("a full buffer");
    command_buffer.wait_until_completed().expect("no error");
}

/// A padded batch at an offset.
fn padded(rows: usize, columns: usize, matrices: usize, values: &[f32]) -> Matrix {
    let row_bytes = MatrixDescriptor::row_bytes_for_columns(columns + 1, DataType::F32);
    let builder = MatrixDescriptor::builder(rows, columns, DataType::F32).row_bytes(row_bytes);
    let descriptor = builder.matrices(matrices).matrix_bytes(rows * row_bytes + 32).build().expect("a layout");
    let buffer = Buffer::new(&device(), 12 + matrices * descriptor.matrix_bytes()).expect("memory");
    // What lies between the rows must not be read.
    buffer.write(0, &vec![f32::NAN; buffer.len() / 4]).expect("memory");
    let matrix = Matrix::with_offset(&buffer, 12, &descriptor).expect("it fits");
    matrix.write(values).expect("as many values");
    matrix
}

/// On the host and on a GPU that knows memory by buffers: places that begin anywhere on a page, the same memory twice, and gone again.
#[test]
fn memory_of_the_process_is_used_where_it_lies() {
    for device in devices() {
        let (rows, inner, columns) = (5, 6, 7);
        let (values, weights) = (numbers(rows * inner + 3, 1), numbers(inner * columns, 2));
        let want = |i: usize, j: usize| -> f32 {
            (0..inner).map(|p| values[3 + i * inner + p] * weights[p * columns + j]).sum()
        };
        let [left, again] = [0, 1].map(|_| {
            let (address, bytes) = (values[3..].as_ptr() as usize, 4 * rows * inner);
            // SAFETY: nobody writes the values, which outlive the buffers.
            unsafe { Buffer::no_copy(&device, address, bytes, Access::Read, ()) }.expect("memory of the process")
        });
        let mut result = vec![f32::NAN; rows * columns + 1];
        let (address, bytes) = (result[1..].as_mut_ptr() as usize, 4 * rows * columns);
        // SAFETY: nobody else uses the result before the buffer is freed.
        let out =
            unsafe { Buffer::no_copy(&device, address, bytes, Access::Write, ()) }.expect("memory of the process");
        let matrix = |buffer: &Buffer, rows, columns| {
            let descriptor = MatrixDescriptor::dense(rows, columns, DataType::F32).expect("a layout");
            Matrix::new(buffer, &descriptor).expect("it fits")
        };
        let right = Matrix::from_slice(&device, inner, columns, &weights).expect("memory");
        let kernel = MatrixMultiplication::new(&device, false, false, rows, columns, inner, 1.0, 0.0).expect("sizes");
        for left in [again, left] {
            let command_buffer = device.queue().command_buffer();
            let operands = (matrix(&left, rows, inner), matrix(&out, rows, columns));
            kernel.encode(&command_buffer, &operands.0, &right, &operands.1).expect("a legal call");
            command_buffer.commit().expect("a full buffer");
            command_buffer.wait_until_completed().expect("no error");
            // Without the first, the second is known still.
            left.free();
        }
        out.free();
        for (place, got) in result[1..].iter().enumerate() {
            let expected = want(place / columns, place % columns);
            assert!((got - expected).abs() < 1e-5, "{place}: {got} against {expected} on {device:?}");
        }
        assert!(result[0].is_nan());
    }
}

#[test]
fn products_of_every_orientation_padding_and_batch() {
    let (m, n, k, batches) = (5, 7, 9, 3);
    for (swap_left, swap_right) in [(false, false), (true, false), (false, true), (true, true)] {
        let (a, b, c) = (numbers(batches * m * k, 1), numbers(batches * k * n, 2), numbers(batches * m * n, 3));
        let ordered = |swapped, rows, columns| if swapped { (columns, rows) } else { (rows, columns) };
        let ((ar, ac), (br, bc)) = (ordered(swap_left, m, k), ordered(swap_right, k, n));
        let (left, right, result) =
            (padded(ar, ac, batches, &a), padded(br, bc, batches, &b), padded(m, n, batches, &c));
        let kernel = MatrixMultiplication::builder(m, n, k).transpose_left(swap_left).transpose_right(swap_right);
        let kernel = kernel.alpha(0.5).beta(-2.0).build(&device()).expect("a kernel");
        commit(|command_buffer| kernel.encode(command_buffer, &left, &right, &result));
        let got = result.read::<f32>().expect("float32");
        for (place, &got) in got.iter().enumerate() {
            let (batch, i, j) = (place / (m * n), place / n % m, place % n);
            let sum: f64 = (0..k)
                .map(|p| {
                    let (x, y) =
                        (if swap_left { p * m + i } else { i * k + p }, if swap_right { j * k + p } else { p * n + j });
                    f64::from(a[batch * m * k + x]) * f64::from(b[batch * k * n + y])
                })
                .sum();
            let expected = 0.5 * sum - 2.0 * f64::from(c[place]);
            assert!((f64::from(got) - expected).abs() < 1e-5, "{place}: {got} against {expected}");
        }
    }
}

#[test]
fn origins_and_batch_starts_leave_the_rest_alone() {
    let (left, right) = (padded(4, 4, 2, &numbers(32, 1)), padded(4, 4, 2, &numbers(32, 2)));
    let result = padded(4, 4, 2, &[7.0; 32]);
    let at = |row, column| Origin { row, column };
    let kernel = MatrixMultiplication::builder(2, 2, 3).origins([at(1, 1), at(0, 2), at(2, 1)]).batch(1, 1);
    commit(|command_buffer| kernel.build(&device())?.encode(command_buffer, &left, &right, &result));
    let (a, b, got) = (numbers(32, 1), numbers(32, 2), result.read::<f32>().expect("float32"));
    for (place, &got) in got.iter().enumerate() {
        let (batch, i, j) = (place / 16, place / 4 % 4, place % 4);
        let inside = batch == 1 && i >= 2 && (1..3).contains(&j);
        let sum =
            (0..3).map(|p| a[16 + (i.wrapping_sub(1)) % 4 * 4 + 1 + p] * b[16 + p * 4 + (j + 1) % 4]).sum::<f32>();
        let expected = if inside { sum } else { 7.0 };
        assert!((got - expected).abs() < 1e-5, "{place}: {got} against {expected}");
    }
}

#[test]
fn integer_and_half_products() {
    let left = Matrix::from_slice(&device(), 1, 2, &[3i32, 4]).unwrap();
    let right = Matrix::from_slice(&device(), 2, 1, &[5i32, 6]).unwrap();
    let result = Matrix::from_slice(&device(), 1, 1, &[0i32]).unwrap();
    let kernel = MatrixMultiplication::builder(1, 1, 2).build(&device()).unwrap();
    commit(|command_buffer| kernel.encode(command_buffer, &left, &right, &result));
    assert_eq!(result.read::<i32>().unwrap(), [39]);
    let halves = [1.5, -2.0].map(f16::from_f32);
    let left = Matrix::from_slice(&device(), 1, 2, &halves).unwrap();
    let right = Matrix::from_slice(&device(), 2, 1, &halves).unwrap();
    let result = Matrix::from_slice(&device(), 1, 1, &[f16::ZERO]).unwrap();
    commit(|command_buffer| kernel.encode(command_buffer, &left, &right, &result));
    assert_eq!(result.read::<f16>().unwrap()[0].to_f32(), 6.25);
    let descriptor = MatrixDescriptor::dense(1, 2, DataType::BF16).unwrap();
    let bfloats = Matrix::zeros(&device(), &descriptor).unwrap();
    bfloats.write(&[1.0, 2.0].map(bf16::from_f32)).unwrap();
    assert_eq!(bfloats.read::<bf16>().unwrap()[1].to_f32(), 2.0);
}

/// Sums that the factors' own types could not hold.
#[test]
fn products_of_narrow_factors_are_wide() {
    for device in devices() {
        let product = |left: &Matrix, right: &Matrix, to: DataType| {
            let result = Matrix::zeros(&device, &MatrixDescriptor::dense(2, 2, to).unwrap()).unwrap();
            let command_buffer = device.queue().command_buffer();
            let kernel = MatrixMultiplication::builder(2, 2, 40).transpose_right(true).build(&device).unwrap();
            kernel.encode(&command_buffer, left, right, &result).unwrap();
            command_buffer.commit().unwrap();
            command_buffer.wait_until_completed().unwrap();
            result
        };
        let bytes = Matrix::from_slice(&device, 2, 40, &[100i8; 80]).unwrap();
        assert_eq!(product(&bytes, &bytes, DataType::I32).read::<i32>().unwrap(), [400_000; 4]);
        let halves = Matrix::from_slice(&device, 2, 40, &[f16::from_f32(300.0); 80]).unwrap();
        let bfloats = Matrix::from_slice(&device, 2, 40, &[bf16::from_f32(0.5); 80]).unwrap();
        assert_eq!(product(&halves, &halves, DataType::F32).read::<f32>().unwrap(), [3.6e6; 4]);
        assert_eq!(product(&halves, &bfloats, DataType::F32).read::<f32>().unwrap(), [6000.0; 4]);
    }
}

#[test]
fn rows_of_padded_matrices() {
    let (rows, columns) = (3, 11);
    let values = numbers(2 * rows * columns, 5);
    let input = padded(rows, columns, 2, &values);
    let result = padded(rows, columns, 2, &vec![0.0; values.len()]);
    let weight = Vector::from_slice(&device(), &numbers(columns, 6)).unwrap();
    let bias = Vector::from_slice(&device(), &numbers(columns, 7)).unwrap();
    let (w, b) = (numbers(columns, 6), numbers(columns, 7));
    let check = |name: &str, expected: &dyn Fn(&[f64], usize) -> f64| {
        let got = result.read::<f32>().unwrap();
        for (row, got) in values.chunks_exact(columns).zip(got.chunks_exact(columns)) {
            let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
            for (j, &got) in got.iter().enumerate() {
                let expected = expected(&row, j);
                assert!((f64::from(got) - expected).abs() < 2e-6 * expected.abs().max(1.0), "{name}: {got} {expected}");
            }
        }
    };
    let sum_of_exponentials = |row: &[f64]| row.iter().map(|x| x.exp()).sum::<f64>();
    commit(|command_buffer| MatrixSoftMax::new(&device()).encode(command_buffer, &input, &result));
    check("softmax", &|row, j| row[j].exp() / sum_of_exponentials(row));
    commit(|command_buffer| MatrixLogSoftMax::new(&device()).encode(command_buffer, &input, &result));
    check("log softmax", &|row, j| row[j] - sum_of_exponentials(row).ln());
    let apart = result.read::<f32>().unwrap();
    let in_place = padded(rows, columns, 2, &values);
    commit(|command_buffer| MatrixLogSoftMax::new(&device()).encode(command_buffer, &in_place, &in_place.clone()));
    assert_eq!(in_place.read::<f32>().unwrap(), apart);
    commit(|command_buffer| RmsNorm::new(&device(), 1e-3)?.encode(command_buffer, &input, Some(&weight), &result));
    let mean = |row: &[f64], f: &dyn Fn(f64) -> f64| row.iter().map(|&x| f(x)).sum::<f64>() / row.len() as f64;
    check("rms norm", &|row, j| row[j] / (mean(row, &|x| x * x) + 1e-3).sqrt() * f64::from(w[j]));
    let norm = LayerNorm::new(&device(), 1e-3).unwrap();
    commit(|command_buffer| norm.encode(command_buffer, &input, Some(&weight), Some(&bias), &result));
    check("layer norm", &|row, j| {
        let centre = mean(row, &|x| x);
        let variance = mean(row, &|x| (x - centre) * (x - centre));
        (row[j] - centre) / (variance + 1e-3).sqrt() * f64::from(w[j]) + f64::from(b[j])
    });
    let values_out = padded(rows, 4, 2, &vec![0.0; 2 * rows * 4]);
    let descriptor = MatrixDescriptor::builder(rows, 4, DataType::I32).row_bytes(32).matrices(2).build().unwrap();
    let indices = Matrix::zeros(&device(), &descriptor).unwrap();
    commit(|command_buffer| MatrixFindTopK::new(&device(), 4).encode(command_buffer, &input, &indices, &values_out));
    let (found, places) = (values_out.read::<f32>().unwrap(), indices.read::<i32>().unwrap());
    for (row, (found, places)) in values.chunks_exact(columns).zip(found.chunks(4).zip(places.chunks(4))) {
        let mut sorted = row.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert_eq!(found, &sorted[..4]);
        assert!(places.iter().zip(found).all(|(&place, &value)| row[place as usize] == value));
    }
}

#[test]
fn random_streams_repeat_with_their_seed() {
    let make = || {
        let random = MatrixRandom::new(&device(), DataType::F32, 9, Distribution::Normal { mean: 1.0, deviation: 2.0 });
        let random = random.unwrap();
        let (first, second) = (padded(40, 50, 1, &[0.0; 2000]), padded(40, 50, 1, &[0.0; 2000]));
        commit(|command_buffer| {
            random.encode(command_buffer, &first)?;
            random.encode(command_buffer, &second)
        });
        (first.read::<f32>().unwrap(), second.read::<f32>().unwrap())
    };
    let ((a, b), (c, d)) = (make(), make());
    assert_eq!((&a, &b), (&c, &d));
    assert_ne!(a, b);
    let mean = a.iter().sum::<f32>() / 2000.0;
    assert!((mean - 1.0).abs() < 0.2, "{mean}");
}

#[test]
fn graphs_alias_drop_and_repeat() {
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[2, 6], DataType::F32).unwrap();
    let unused = graph.placeholder("unused", &[1], DataType::F32).unwrap();
    let _never = graph.softmax(unused, 0).unwrap();
    let flat = graph.reshape(x, &[12]).unwrap();
    let two = graph.constant(&[1], &[2.0f32]).unwrap();
    let doubled = graph.multiply(flat, two).unwrap();
    let back = graph.reshape(doubled, &[3, 4]).unwrap();
    let sum = graph.reduce(openmps::operators::operators::reduce::Reduction::Sum, back, &[1], false).unwrap();
    let executable = graph.compile(&device(), &[doubled, back, sum, x, two, doubled]).unwrap();
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let feed = TensorData::from_slice(&device(), &[2, 6], &values).unwrap();
    let results = executable.run(&device().queue(), &[("x", &feed)]).unwrap();
    let doubled: Vec<f32> = values.iter().map(|x| 2.0 * x).collect();
    let read = |i: usize| results[i].read::<f32>().unwrap();
    assert_eq!((read(0), read(1), read(5)), (doubled.clone(), doubled.clone(), doubled));
    assert_eq!((read(2), read(3), read(4)), (vec![12.0, 44.0, 76.0], values, vec![2.0]));
    assert_eq!(results[1].shape(), [3, 4]);
}

#[test]
fn the_cache_of_graphs_is_bounded() {
    let limit = openmps::graph::cache_statistics().limit;
    for size in 1..limit + 20 {
        let mut graph = Graph::new();
        let x = graph.placeholder("x", &[size], DataType::F32).unwrap();
        let y = graph.add(x, x).unwrap();
        graph.compile(&device(), &[y]).unwrap();
    }
    let statistics = openmps::graph::cache_statistics();
    assert!(statistics.entries <= limit && statistics.evictions > 0, "{statistics:?}");
}

#[test]
fn threads_share_buffers_without_harm() {
    let matrix = Matrix::from_slice(&device(), 64, 64, &numbers(4096, 1)).unwrap();
    let result = Matrix::from_slice(&device(), 64, 64, &[0.0f32; 4096]).unwrap();
    let expected = {
        let kernel = MatrixSoftMax::new(&device());
        commit(|command_buffer| kernel.encode(command_buffer, &matrix, &result));
        result.read::<f32>().unwrap()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let queue = device().new_queue();
                for _ in 0..50 {
                    let command_buffer = queue.command_buffer();
                    MatrixSoftMax::new(&device()).encode(&command_buffer, &matrix, &result).unwrap();
                    command_buffer.commit().unwrap();
                    command_buffer.wait_until_completed().unwrap();
                    assert_eq!(result.read::<f32>().unwrap(), expected);
                }
            });
        }
    });
}

#[test]
fn objects_go_to_other_threads() {
    fn check<T: Send + Sync>() {}
    check::<Device>();
    check::<openmps::CommandQueue>();
    check::<openmps::CommandBuffer>();
    check::<Buffer>();
    check::<Matrix>();
    check::<Vector>();
    check::<MatrixMultiplication>();
    check::<MatrixRandom>();
    check::<openmps::Kernel>();
    check::<Graph>();
    check::<openmps::graph::Executable>();
    check::<TensorData>();
    check::<openmps::Error>();
}

#[test]
fn chains_give_what_their_formulas_give_one_by_one() {
    use openmps::OptimizationLevel::{Level0, Level1};
    use openmps::operators::operators::elementwise::{Activation, Binary, Unary};
    use openmps::operators::operators::reduce::Reduction;
    let mut graph = Graph::new();
    let x = graph.placeholder("x", &[6, 50], DataType::F32).unwrap();
    let row = graph.placeholder("row", &[50], DataType::F32).unwrap();
    let product = graph.multiply(x, row).unwrap();
    let shifted = graph.add(product, x).unwrap();
    let kept = graph.activation(Activation::Relu, shifted, &[]).unwrap();
    // A result between the others, a value that two formulas read, another shape, a reduction, a formula of its result.
    let root = graph.unary(Unary::Sqrt, kept).unwrap();
    let difference = graph.binary(Binary::Subtract, root, kept).unwrap();
    let flat = graph.reshape(difference, &[300]).unwrap();
    let doubled = graph.add(flat, flat).unwrap();
    let squared = graph.multiply(difference, difference).unwrap();
    let mean = graph.reduce(Reduction::Mean, squared, &[1], true).unwrap();
    let rooted = graph.unary(Unary::Sqrt, mean).unwrap();
    let scaled = graph.divide(difference, rooted).unwrap();
    let results = [kept, doubled, mean, scaled];
    let (x, row) = (numbers(300, 3), numbers(50, 4));
    let (x, row) = (
        TensorData::from_slice(&device(), &[6, 50], &x).unwrap(),
        TensorData::from_slice(&device(), &[50], &row).unwrap(),
    );
    let [plain, fused] = [Level0, Level1].map(|level| {
        let executable = graph.compile_with(&device(), &results, level).unwrap();
        let found = executable.run(&device().queue(), &[("x", &x), ("row", &row)]).unwrap();
        found.iter().map(|data| data.read::<f32>().unwrap()).collect::<Vec<_>>()
    });
    for (plain, fused) in plain.iter().zip(&fused) {
        assert_eq!(plain.len(), fused.len());
        for (plain, fused) in plain.iter().zip(fused) {
            assert!((plain - fused).abs() <= 1e-6 * plain.abs().max(1.0), "{plain} {fused}");
        }
    }
}

/// The only result of one operator on tensors of float32.
fn computed(operator: impl openmps::operators::Operator, inputs: &[(&[usize], &[f32])]) -> (Vec<usize>, Vec<f32>) {
    let mut graph = Graph::new();
    let tensors: Vec<_> =
        inputs.iter().map(|(shape, values)| graph.constant(shape, values).expect("a constant")).collect();
    let result = graph.operator(operator, &tensors).expect("a legal call")[0];
    let executable = graph.compile(&device(), &[result]).expect("a graph");
    let results = executable.run(&device().queue(), &[]).expect("a run");
    (results[0].shape().to_vec(), results[0].read().expect("float32"))
}

#[test]
fn padding_may_take_away_more_than_there_is() {
    use openmps::operators::operators::pad::{Mode, Pad};
    let pad = |before, after| Pad {
        paddings: vec![(before, after)],
        mode: Mode::Constant,
        value: openmps::tile::Number::Float(7.0),
    };
    let x: (&[usize], &[f32]) = (&[3], &[1.0, 2.0, 3.0]);
    assert_eq!(computed(pad(3, -5), &[x]), (vec![1], vec![7.0]));
    assert_eq!(computed(pad(-5, 4), &[x]), (vec![2], vec![7.0; 2]));
    assert_eq!(computed(pad(100_000_000, -100_000_002), &[x]), (vec![1], vec![7.0]));
    assert_eq!(computed(pad(-1, 2), &[x]), (vec![4], vec![2.0, 3.0, 7.0, 7.0]));
}

/// A result without terms is zero, whatever memory it gets.
#[test]
fn sums_of_nothing() {
    use openmps::operators::operators::convolution_transpose::ConvolutionTranspose;
    for strides in [[1, 1], [2, 2], [3, 1]] {
        let of = || ConvolutionTranspose { strides, ..ConvolutionTranspose::default() };
        let ones = vec![1.0; 3 * 64];
        let (_, before) = computed(of(), &[(&[1, 3, 8, 8], &ones), (&[3, 2, 2, 2], &[1.0; 24])]);
        assert!(before.iter().all(|&value| value > 0.0 || strides == [3, 1]));
        let (shape, values) = computed(of(), &[(&[1, 0, 8, 8], &[]), (&[0, 2, 2, 2], &[])]);
        assert_eq!(values, vec![0.0; shape.iter().product()]);
    }
}

/// A factor of more dimensions than the scores gives the result more: that is not attention's.
#[test]
fn a_factor_of_five_dimensions_is_no_part_of_attention() {
    use openmps::OptimizationLevel::{Level0, Level1};
    let results = [Level0, Level1].map(|level| {
        let mut graph = Graph::new();
        let [q, k, v] = [1, 2, 3].map(|seed| graph.constant(&[1, 1, 2, 4], &numbers(8, seed)).expect("a constant"));
        let factor = graph.constant(&[1, 1, 1, 1, 1], &[0.5f32]).expect("a constant");
        let turned = graph.transpose(k, &[0, 1, 3, 2]).expect("axes");
        let scores = graph.matmul(q, turned).expect("matrices");
        let scores = graph.multiply(scores, factor).expect("a factor");
        let weights = graph.softmax(scores, -1).expect("an axis");
        let y = graph.matmul(weights, v).expect("matrices");
        let executable = graph.compile_with(&device(), &[y], level).expect("a graph");
        let result = executable.run(&device().queue(), &[]).expect("a run").remove(0);
        (result.shape().to_vec(), result.read::<f32>().expect("float32"))
    });
    assert_eq!(results[0].0, [1, 1, 1, 2, 4]);
    assert_eq!(results[0].0, results[1].0);
    for (a, b) in results[0].1.iter().zip(&results[1].1) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
}
