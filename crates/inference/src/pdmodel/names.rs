//! What operations of the legacy format are called today: name, slots in the order of today's signature, attributes.
//!
//! A slot `A|B` is the first of the two that is filled, `A*` a list of values, `=A` what the output's variable held before.

use openmps::operators::operators::elementwise::Elementwise;

/// One operation of the legacy format.
#[derive(Clone, Copy)]
pub(super) struct Row {
    legacy: &'static str,
    /// Today's name.
    pub name: &'static str,
    /// Input slots.
    pub inputs: &'static [&'static str],
    /// Output slots.
    pub outputs: &'static [&'static str],
    /// Attributes: then and now.
    pub attributes: &'static [(&'static str, &'static str)],
}

/// The row of an operation: of the table, or of a formula of one or two tensors that had today's name already.
pub(super) fn find(legacy: &str) -> Option<Row> {
    ROWS.iter().find(|row| row.legacy == legacy).copied().or_else(|| formula(legacy))
}

fn formula(legacy: &str) -> Option<Row> {
    let row = Elementwise::all().find(|of| of.is_plain() && of.row().name == legacy)?.row();
    let inputs = match row.operands.len() {
        1 => X,
        2 => XY,
        _ => return None,
    };
    Some(Row { legacy: row.name, name: row.name, inputs, outputs: OUT, attributes: &[] })
}

const X: &[&str] = &["X"];
const XY: &[&str] = &["X", "Y"];
const OUT: &[&str] = &["Out"];
const OUTPUT: &[&str] = &["Output"];
const REDUCE: &[(&str, &str)] = &[("dim", "axis"), ("keep_dim", "keepdim"), ("out_dtype", "dtype")];
const INTERPOLATION: &[&str] = &["X", "OutSize", "SizeTensor*", "Scale"];
const STATISTICS: &[&str] = &["Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"];

macro_rules! rows {
    ($($legacy:literal => $name:literal, $inputs:expr => $outputs:expr $(, $attributes:expr)?;)*) => {
        const ROWS: &[Row] = &[$(Row {
            legacy: $legacy, name: $name, inputs: &$inputs, outputs: &$outputs, attributes: rows!(@ $($attributes)?),
        }),*];
    };
    (@) => { &[] };
    (@ $attributes:expr) => { $attributes };
}

rows! {
    // Products and images.
    "conv2d" => "conv2d", ["Input", "Filter"] => *OUTPUT;
    "depthwise_conv2d" => "depthwise_conv2d", ["Input", "Filter"] => *OUTPUT;
    "conv2d_transpose" => "conv2d_transpose", ["Input", "Filter", "OutputSizeTensor|OutputSize"] => *OUTPUT;
    "depthwise_conv2d_transpose" => "conv2d_transpose", ["Input", "Filter", "OutputSizeTensor|OutputSize"] => *OUTPUT;
    "conv3d" => "conv3d", ["Input", "Filter"] => *OUTPUT;
    "conv3d_transpose" => "conv3d_transpose", ["Input", "Filter"] => *OUTPUT;
    "pool3d" => "pool3d", ["X"] => *OUT, &[("ksize", "kernel_size")];
    "pool2d" => "pool2d", ["X", "KernelSize"] => *OUT, &[("ksize", "kernel_size")];
    "max_pool2d_with_index" => "max_pool2d_with_index", *X => ["Out", "Mask"], &[("ksize", "kernel_size")];
    "nearest_interp_v2" => "nearest_interp", *INTERPOLATION => *OUT;
    "bilinear_interp_v2" => "bilinear_interp", *INTERPOLATION => *OUT;
    "nearest_interp" => "nearest_interp", *INTERPOLATION => *OUT;
    "bilinear_interp" => "bilinear_interp", *INTERPOLATION => *OUT;
    "pixel_shuffle" => "pixel_shuffle", *X => *OUT;
    "grid_sampler" => "grid_sample", ["X", "Grid"] => *OUTPUT;
    "pad3d" => "pad3d", ["X", "Paddings"] => *OUT;
    "pad" => "pad", *X => *OUT;
    "matmul_v2" => "matmul", *XY => *OUT, &[("trans_x", "transpose_x"), ("trans_y", "transpose_y")];
    "matmul" => "legacy_matmul", *XY => *OUT, &[("transpose_X", "transpose_x"), ("transpose_Y", "transpose_y")];
    "mul" => "legacy_mul", *XY => *OUT;
    "bmm" => "bmm", *XY => *OUT;
    "rnn" => "legacy_rnn", ["Input", "PreState*", "WeightList*", "SequenceLength"] => ["Out", "DropoutState", "State*", "Reserve"];
    // Norms.
    "batch_norm" => "batch_norm", ["X", "Mean", "Variance", "Scale", "Bias"] => *STATISTICS, &[("data_layout", "data_format")];
    "sync_batch_norm" => "batch_norm", ["X", "Mean", "Variance", "Scale", "Bias"] => *STATISTICS, &[("data_layout", "data_format")];
    "layer_norm" => "layer_norm", ["X", "Scale", "Bias"] => ["Y", "Mean", "Variance"];
    "instance_norm" => "instance_norm", ["X", "Scale", "Bias"] => ["Y"];
    "group_norm" => "group_norm", ["X", "Scale", "Bias"] => ["Y"], &[("data_layout", "data_format")];
    "p_norm" => "p_norm", *X => *OUT;
    "norm" => "norm", *X => ["Out", "Norm"];
    // Two tensors.
    "elementwise_add" => "add", *XY => *OUT;
    "elementwise_sub" => "subtract", *XY => *OUT;
    "elementwise_mul" => "multiply", *XY => *OUT;
    "elementwise_div" => "divide", *XY => *OUT;
    "elementwise_max" => "maximum", *XY => *OUT;
    "elementwise_min" => "minimum", *XY => *OUT;
    "elementwise_floordiv" => "floor_divide", *XY => *OUT;
    "elementwise_mod" => "remainder", *XY => *OUT;
    "logical_and" => "logical_and", *XY => *OUT;
    "logical_or" => "logical_or", *XY => *OUT;
    "logical_xor" => "logical_xor", *XY => *OUT;
    "logical_not" => "logical_not", *X => *OUT;
    "where" => "where", ["Condition", "X", "Y"] => *OUT;
    "sum" => "add_n", ["X*"] => *OUT;
    // One tensor.
    "scale" => "scale", ["X", "ScaleTensor"] => *OUT;
    "cast" => "cast", *X => *OUT, &[("out_dtype", "dtype")];
    "clip" => "clip", ["X", "Min", "Max"] => *OUT;
    "pow" => "pow", *X => *OUT, &[("factor", "y")];
    "dropout" => "dropout", *X => *OUT, &[("dropout_prob", "p"), ("dropout_implementation", "mode")];
    "assign" => "assign", *X => *OUT;
    "swish" => "swish", *X => *OUT;
    "mish" => "mish", *X => *OUT;
    "softplus" => "softplus", *X => *OUT;
    "hard_swish" => "hardswish", *X => *OUT;
    "hard_sigmoid" => "hardsigmoid", *X => *OUT;
    "leaky_relu" => "leaky_relu", *X => *OUT, &[("alpha", "negative_slope")];
    "elu" => "elu", *X => *OUT;
    "prelu" => "prelu", ["X", "Alpha"] => *OUT, &[("data_format", "data_format")];
    "softmax" => "softmax", *X => *OUT;
    "log_softmax" => "log_softmax", *X => *OUT;
    "isnan_v2" => "isnan", *X => *OUT;
    "isinf_v2" => "isinf", *X => *OUT;
    "isfinite_v2" => "isfinite", *X => *OUT;
    "brelu" => "hardtanh", *X => *OUT;
    "hard_shrink" => "hardshrink", *X => *OUT;
    "softshrink" => "softshrink", *X => *OUT, &[("lambda", "threshold")];
    "thresholded_relu" => "thresholded_relu", *X => *OUT;
    "celu" => "celu", *X => *OUT;
    "selu" => "selu", *X => *OUT;
    "stanh" => "stanh", *X => *OUT;
    // Reductions.
    "reduce_sum" => "sum", *X => *OUT, REDUCE;
    "reduce_mean" => "mean", *X => *OUT, REDUCE;
    "reduce_max" => "max", *X => *OUT, REDUCE;
    "reduce_min" => "min", *X => *OUT, REDUCE;
    "reduce_prod" => "prod", *X => *OUT, REDUCE;
    "reduce_all" => "all", *X => *OUT, REDUCE;
    "reduce_any" => "any", *X => *OUT, REDUCE;
    "arg_max" => "argmax", *X => *OUT;
    "arg_min" => "argmin", *X => *OUT;
    "top_k_v2" => "topk", ["X", "K"] => ["Out", "Indices"];
    "argsort" => "argsort", *X => ["Out", "Indices"];
    "cumsum" => "cumsum", *X => *OUT;
    // Moving elements.
    "reshape2" => "reshape", ["X", "Shape|ShapeTensor*"] => *OUT;
    "transpose2" => "transpose", *X => *OUT, &[("axis", "perm")];
    "squeeze2" => "squeeze", *X => *OUT, &[("axes", "axis")];
    "unsqueeze2" => "unsqueeze", ["X", "AxesTensor|AxesTensorList*"] => *OUT, &[("axes", "axis")];
    "flatten_contiguous_range" => "flatten", *X => *OUT;
    "flatten2" => "legacy_flatten", *X => *OUT;
    "concat" => "concat", ["X*", "AxisTensor"] => *OUT;
    "stack" => "stack", ["X*"] => ["Y"];
    "unstack" => "unstack_all", *X => ["Y*"];
    "split" => "split_all", ["X", "SectionsTensorList*", "AxisTensor"] => ["Out*"];
    "slice" => "slice", ["Input", "StartsTensor|StartsTensorList*", "EndsTensor|EndsTensorList*"] => *OUT;
    "strided_slice" => "strided_slice", ["Input", "StartsTensor|StartsTensorList*", "EndsTensor|EndsTensorList*", "StridesTensor|StridesTensorList*"] => *OUT;
    "set_value" => "legacy_set_value", ["Input", "ValueTensor", "StartsTensorList*", "EndsTensorList*", "StepsTensorList*"] => *OUT;
    "gather" => "gather", ["X", "Index", "Axis"] => *OUT;
    "gather_nd" => "gather_nd", ["X", "Index"] => *OUT;
    "index_select" => "index_select", ["X", "Index"] => *OUT, &[("dim", "axis")];
    "lookup_table_v2" => "embedding", ["Ids", "W"] => *OUT;
    "expand_v2" => "expand", ["X", "Shape|expand_shapes_tensor*"] => *OUT;
    "expand_as_v2" => "expand_as", *XY => *OUT;
    "tile" => "tile", ["X", "RepeatTimes|repeat_times_tensor*"] => *OUT, &[("repeat_times", "repeat_times")];
    "flip" => "flip", *X => *OUT;
    "roll" => "roll", *X => *OUT;
    "tril_triu" => "tril_triu", *X => *OUT;
    // Branches and lists of tensors.
    "select_input" => "select_input", ["Mask", "X*"] => *OUT;
    "write_to_array" => "array_write", ["=Out", "X", "I"] => *OUT;
    "read_from_array" => "array_read", ["X", "I"] => *OUT;
    "lod_array_length" => "array_length", *X => *OUT;
    "tensor_array_to_tensor" => "array_to_tensor", *X => ["Out", "OutIndex"];
    // Detectors.
    "yolo_box" => "yolo_box", ["X", "ImgSize"] => ["Boxes", "Scores"];
    "multiclass_nms3" => "multiclass_nms3", ["BBoxes", "Scores", "RoisNum"] => ["Out", "Index", "NmsRoisNum"];
    "where_index" => "nonzero", ["Condition"] => *OUT;
    "masked_select" => "masked_select", ["X", "Mask"] => ["Y"];
    // Making values.
    "shape" => "shape", ["Input"] => *OUT;
    "fill_constant" => "full", ["ShapeTensor|ShapeTensorList*", "ValueTensor"] => *OUT;
    "fill_any_like" => "full_like", *X => *OUT;
    "fill_constant_batch_size_like" => "full_batch_size_like", ["Input"] => *OUT;
    "assign_value" => "assign_value", [] => *OUT;
    "range" => "arange", ["Start", "End", "Step"] => *OUT;
    "one_hot_v2" => "one_hot", ["X", "depth_tensor"] => *OUT;
    "increment" => "increment", *X => *OUT, &[("step", "value")];
}
