"""What is known: kernels that the device does not have yet, and where it differs from Paddle's CPU on purpose."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Names of Paddle's kernels, as its error message gives them. A call that needs one is counted aside, never as right.
WITHOUT_KERNEL = frozenset({"einsum"})

# Kernels that lack an element type that Paddle's CPU has: (kernel, element type).
WITHOUT_TYPE: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Difference:
    """A row of docs/operators.md, section "Where we differ from Paddle's CPU, and why", by its first cell; and the findings that it explains:
    those whose call and problem these patterns match."""

    title: str
    call: str
    problem: str = ""

    def covers(self, call: str, problem: str) -> bool:
        return bool(re.search(self.call, call) and re.search(self.problem, problem))


DIFFERENCES: tuple[Difference, ...] = (
    Difference("`argmax`, `argmin` of nothing", r"\.arg(max|min)\(", "at least one element"),
    Difference("`max`, `min`, `amax`, `amin` of nothing", r"\.a?(max|min)\(T\((\[\]|.*[\[ ](\d+):\3:)", r"value 0: .*(inf|np\.u?int\d+\(-?\d+)\), wanted"),
    Difference("Integer `matmul` that overflows", r"(matmul\(|@).*int(32|64)", r"value 0: .*np\.int"),
    Difference("`cast` of floats that the integer type cannot hold", r"paddle\.cast\(|\.astype\(|\.cast_\(|dtype='int", r"value 0: .*np\.u?int"),
    Difference("`dropout(mode='downscale_in_infer')` of fewer than two dimensions", "downscale_in_infer", "raises nothing, wanted ValueError"),
    Difference("`batch_norm` whose statistics or weights have another type", r"batch_norm\(", "raises nothing, wanted ValueError"),
    Difference("`addmm_` whose factor is the tensor that it writes", r"(\w+)\.addmm_\((\1,|\w+, \1\b)", "wrong"),
    Difference("`cross_entropy` where a score lies 64 or more below the largest", r"cross_entropy\(T\(\[([^\]]*[^\d.]([4-9]\d|\d{3,})\.|(?=[^\]]*-(2[4-9]|3\d)\.)(?=[^\]]*[ \[](2[4-9]|3\d)\.))", r"(value|gradient) \d: .* wrong"),
    Difference("In place into another element type, on a view", r"\.\w+_\(", "raises nothing, wanted ValueError .*(type of data we are trying to retrieve)"),
    Difference("`equal`, `not_equal` of floats that differ by less than 1e-8", r"(not_)?equal_?\(|[=!]= ", r"np\.(True|False)_"),
    Difference("`isclose`, `allclose` of infinity and a number", r"(isclose|allclose)\(.*(inf|e\+\d\d)", r"np\.(True|False)_"),
    Difference("Gradient of `silu`, `swish` and `swiglu` at numbers above 1e7 and at -inf", r"F\.(silu|swish|swiglu)\(", r"gradient"),
    Difference("`log_sigmoid` of -inf", r"log_sigmoid\(.*inf", r"-inf\), wanted np\.float\d\d\(nan\)"),
    Difference("`softshrink` of inf and -inf", r"softshrink\(.*inf", r"inf\), wanted np\.float\d\d\(nan\)"),
    Difference("`thresholded_relu` of inf and -inf", r"thresholded_relu_?\(.*inf", r"wanted np\.float\d\d\(nan\)"),
    Difference("`relu_`, `relu` of NaN", r"F\.relu_?\(", r"nan\), wanted np\.float\d\d\(0\.0\)"),
    Difference("Max pooling of a window with NaN", r"max_pool\dd\(.*nan", r"(value|gradient) \d: .* wrong"),
    Difference("Gradient of `binary_cross_entropy_with_logits` at a logit of 0", r"(_with_logits|focal_loss)\(.*[ \[]-?0\.0[,\]]", r"gradient 0: .* wrong"),
    Difference("`cumprod(dim=-1)` of no dimensions", r"cumprod\(T\(\[[^\]]*\], \[\]", r"raises nothing, wanted ValueError"),
    Difference("Gradient of y in `x[mask] = y`", r"setitem.*\"bool\"\)", r"gradient \d: "),
    Difference("Gradient of `hardshrink` at NaN", r"F\.hardshrink\(.*nan", r"gradient .*wanted np\.float\d\d\(-?0\.0\)"),
    Difference("`embedding` beyond the last row, in a half type or by an index of no dimensions", r"F\.embedding\((.*\"b?float16\"|T\(\[\d+\], \[\])", r"embedding: index \d+ at position \d+ is outside .*wanted no exception"),
    Difference("Gradients of more dimensions than the CPU takes", r"broadcast_tensors\(", r"raises nothing, wanted ValueError .*must be less than or equal to 5"),
    Difference("`index_add` of nothing whose shape does not fit", r"index_add\(.*T\(\[\], \[0\]", r"index_add: values has shape .*wanted no exception"),
    Difference("`leaky_relu` with a slope of 0 at -inf", r"leaky_relu_?\(.*-inf.*, -?0(\.0)?\)", r"value 0: .*: np\.float\d\d\(nan\), wanted np\.float\d\d\(-inf\)"),
    Difference("`sum` of nothing with a dtype", r"paddle\.sum\(.*dtype=", r"value 0: element type \w+, wanted"),
    Difference("`norm` of order inf or -inf of NaN", r"norm\(T.*nan.*p=-?inf", r"(value|gradient) \d: .*nan"),
    Difference("Max pooling in float64 of numbers below -3.4e38, and of a window that lies in the padding", r"max_pool\dd\(.*float64", r"value 0: .*wanted np\.float64\(-3\.4028"),
    Difference("`x[()] = y` of no dimensions", r"setitem\(x, INDEX\[(\(\)|None|\.\.\.|True)?\]", r"raises nothing, wanted ValueError"),
    Difference("`fmax`, `fmin` of large integers", r"paddle\.fm(ax|in)\(", r"value 0: .*np\.int"),
    Difference("`put_along_axis` with amax or amin of NaN", r"put_along_axis\(.*nan.*reduce='(amax|amin)'", r"nan"),
    Difference("`logit` of numbers below the smallest normal one", r"logit\(.*e-(3[89]|4\d|3\d\d)", r"value 0: .* wrong"),
    Difference("`quantile` of nothing", r"quantile\(T\(\[\]", r"raises"),
    Difference("float64 where the CPU rounds a factor to float32", r"F\.(adaptive_)?avg_pool|interpolate|upsample|norm(alize)?\(|pairwise_distance\(|paddle\.dist\(|selu\(|dropout\(|pow_?\(|\*\*|label_smooth|softplus", r"wrong by \de-(0[5-9]|1\d).*np\.float64"),
    Difference("Integer `//` and `%` by zero, `divide` of integers", r"divide_?\(|remainder_?\(|mod_?\(|//|%", r"EnforceNotMet"),
    Difference("Integer powers with negative exponents", r"pow_?\(|\*\*", r"value 0: .*np\.int"),
    Difference("`sqrt`, `rsqrt` of infinity and of numbers below 1e-38", r"sqrt_?\(.*(inf|e-(39|4\d))", r"(value|gradient) 0: .* wrong"),
    Difference("`hypot` of infinities and of squares beyond float32", r"hypot_?\(", r"nan"),
    Difference("`logsumexp` with an infinity or of -inf alone, gradient of `logaddexp` there", r"log(sum|add)exp\(.*inf", r"nan"),
    Difference("Gradients of `abs`, `l1_loss`, `celu`, `hardswish` at infinity or far from 0", r"(abs|l1_loss|celu|hardswish)_?\(", r"gradient .*nan"),
    Difference("`group_norm` without weights: the gradient", r"group_norm\((?!.*weight)", r"gradient 0"),
    Difference("Gradient of `prod` at zeros", r"prod\(", r"gradient .*nan"),
    Difference("Gradient of `remainder` by the divisor", r"remainder\(|mod\(|%", r"gradient 1"),
    Difference("`x[i]`, `x[i] = v`, `index_put`, `index_fill` with an index out of range; reading an empty axis by index", r"\[|index_(put|fill)|gather|take", r"raises (IndexError \(.*mps: (index|gather|take_along_axis)|ValueError \(.*mps: gather_nd): index .* is outside"),
    Difference("`embedding` of negative rows", r"embedding\(", r"raises ValueError \(.*embedding: index -\d+ at"),
    Difference("`x[None, i]`, `x[i, None, j]` with index tensors", r"\[(.*, )?None,", r"raises (IndexError|ValueError) \(.*mps: index: "),
    Difference("`x[i]`, `x[i] = v` with index tensors on a transposed or cut view", r"\.t\(\)\[T\(", r"value \d: .* wrong"),
    Difference("Gradient of `x[i] = v` for a `v` with new axes or more leading axes than `x[i]`, and of a scalar for a mask", r"\[.*(None|\.\.\.|bool).*\] = ", r"gradient \d: .* wrong"),
    Difference("Gradient of `index_select` with negative indices", r"index_select\(.*-\d", r"gradient 0: .* wrong"),
    Difference("Gradient of `put_along_axis`: `amin`, `amax` with `include_self=False`; `mul` at zeros; more values than indices", r"put_along_axis\(.*(amin|amax|mul|broadcast=False)", r"gradient \d: "),
    Difference("Sizes above 2^31 of `expand` and `one_hot`, negative ones of `expand`; shapes whose number of elements overflows", r"(expand|broadcast_to|one_hot|full|tile)\(.*(\d{10}|-\d)", r"raises (MemoryError|ValueError)"),
    Difference("Casts to `float8_e4m3fn` and `float8_e5m2`", r"float8", r"raises NotImplementedError"),
    Difference("`erfinv` and `ndtri` outside of their interval", r"(erfinv|ndtri)_?\(", r"nan"),
    Difference("`arange` whose ends are more than 2^63 apart", r"arange\(.*\d{18}", r"shape"),
    Difference("More updates than indices in `scatter`; labels of floats or booleans in `cross_entropy`; index tensors of floats", r"(scatter|cross_entropy|take_along_axis)\(", r"raises ValueError \(.*mps: (scatter: updates|cross_entropy_with_softmax: attribute label|take_along_axis: index has dtype)"),
    Difference("`embedding(sparse=True)`", r"sparse=True"),
    Difference("Adam and AdamW of `embedding(sparse=True)` with `lazy_mode=False`", r"sparse=True"),
    Difference("Gradient of `group_norm` with a weight of 0", r"group_norm\(.*weight=.*[ \[]-?0\.0[,\]]", r"gradient [01]: .* wrong"),
    Difference("Gradient in float64 of `norm` with `p='fro'`", r"norm\(T.*float64.*p='fro'", r"gradient 0: .*wanted np\.float64"),
    Difference("`log_softmax` of -inf, and of scores 64 or more below the largest", r"log_softmax\(", r"value 0: .*(inf|wanted np\.float\d\d\(-6[4-9])"),
    Difference("`softplus`, `mish` of numbers below -37, `log_sigmoid` of numbers above 37", r"(softplus|mish|log_sigmoid)\(", r"value 0: .*wanted np\.float\d\d\(-?0\.0\)"),
    Difference("Gradient of `gelu` at inf and at numbers whose powers overflow", r"gelu\(.*(inf|e\+\d\d)", r"gradient 0: .*wanted np\.float\d\d\(nan\)"),
    Difference("Gradient of `grid_sample` by a point on the last element, with `border` or `reflection`", r"grid_sample\(.*(border|reflection)", r"gradient 1"),
    Difference("Max `pool2d` with `adaptive=True` to one element", r"pool2d\(.*adaptive=True", r"value 0"),
    Difference("Convolution whose kernel is larger than the padded image", r"conv\dd\(", r"raises ValueError \(.*mps: (convolution: input has shape .* expected at least as large as the kernel|conv3d: attribute kernel is .* expected no more than the padded volume)"),
    Difference("`avg_pool2d` with `exclusive=False` and more padding behind than before, as of `SAME`", r"avg_pool\dd\((?=.*exclusive=False).*padding=('SAME'|\[)", r"(value|gradient) 0: .* wrong"),
    Difference("`pad` with modes `reflect`, `replicate`, `circular` and a negative number", r"pad\(", r"raises ValueError \(.*mps: pad: attribute paddings is \(.*-\d"),
    Difference("Average pooling of a window that lies in the padding", r"avg_pool\dd\(.*ceil_mode=True", r"value 0: .*\(0\.0\), wanted np\.float\d\d\(nan\)"),
    Difference("`mish` in float64", r"F\.mish\(.*float64", r"value 0: .*wrong by \de-(0[1-9]|1\d).*np\.float64"),
    Difference("`softmax`, `log_softmax` of no dimensions, of NaN or infinity", r"softmax_?\(T\(\[(nan|-?inf)\], \[\]", r"value 0: .*nan\), wanted np\.float\d\d\(-?[01]\.0\)"),
    Difference("Gradient of `atan2` at the origin, and where squares vanish or overflow", r"atan2\(", r"gradient \d: .*wanted np\.float\d\d\((nan|-?inf|-?0\.0)\)"),
    Difference("Gradients of `det` and `slogdet` of a batch with a singular matrix", r"det\(", r"gradient 0: .*wanted np\.float\d\d\((nan|-?0\.0)\)"),
    Difference("Gradient of max pooling of -inf alone", r"max_pool\dd\(.*-inf", r"gradient 0: .*wanted np\.float\d\d\(-?0\.0\)"),
    Difference("`x[i] = v` with an index tensor without elements", r"setitem\(x, INDEX\[.*(T\(\[\]|\[\])", r"raises nothing, wanted ValueError .*p_index is nullptr"),
    Difference("Gradient of `v` in `x[i] = v` with index tensors, but in float32", r"setitem\(x, INDEX\[.*(T\(|\[).*float(16|64)", r"gradient 1: "),
    Difference("Gradient of `matmul` with `transpose_x` or `transpose_y` of a vector, and of batches of different ranks", r"matmul\(|@", r"gradient: raises nothing, wanted (RuntimeError .*(dimension is out of bound|memory_size)|ValueError .*Input dimension size should be equal)"),
    Difference("`bitwise_and`, shifts and their like of two integer types, of nothing", r"bitwise_\w+\(|[&|^]", r"raises ValueError \(.*mps: bitwise_\w+: an input has dtype"),
    Difference("Gradients that are summed from more than five dimensions", r"paddle\.", r"gradient: raises nothing, wanted ValueError .*reshape size: \d+ out of range"),
    Difference("Gradient of `selu` in float64 far below 0", r"F\.selu\(.*float64", r"gradient 0: .*wrong by .*np\.float64"),
    Difference("Gradient of `max` and `min` at NaN along axes of one element", r"nan.*\.(max|min)\(|\.a?(max|min)\(.*nan", r"gradient 0: .*nan\), wanted np\.float\d\d\(-?0\.0\)"),
    Difference("Gradient of `hardsigmoid` in half types where the result rounds to 0 or 1", r"hardsigmoid\(.*float16", r"gradient 0: .*\(-?0\.0\)(,|$)"),
    Difference("Gradients of LSTM, GRU and simple networks in the reverse direction, with `sequence_length` and given states", r"(LSTM|GRU|SimpleRNN)\(", "gradient"),
    Difference("Gradient of `digamma` at negative numbers", r"digamma\(", "gradient"),
    Difference("Gradient of `gammaincc` in float32 where a power or gamma overflows", r"gammaincc?\(", "gradient"),
    Difference("Gradients of `eigvalsh`, and of `cholesky_solve` by the factor", r"(eigvalsh|cholesky_solve)\(", "gradient"),
    Difference("Gradient of `eigh` of several matrices", r"eigh\(", r"gradient 0: .* wrong"),
    Difference("`svdvals` of more than one leading dimension", r"svdvals\(", r"value 0: shape|gradient: raises nothing, wanted ValueError .*broadcast"),
    Difference("Gradient of `triangular_solve(unitriangular=True)` by the diagonal", r"triangular_solve\(.*unitriangular=True", r"gradient 0: .*\(-?0\.0\), wanted"),
    Difference("Gradient of `lu_solve` with `trans='T'` or `'C'` by the factors", r"lu_solve\(.*trans='[TC]'", r"gradient 1: "),
    Difference("Gradient of `smooth_l1_loss` at NaN", r"smooth_l1_loss\(.*nan", r"gradient \d: .*\(nan\), wanted"),
    Difference("Gradient of `renorm` with `p=1` at 0, and of NaN", r"renorm\(.*(nan|, 1\.0, 0, )", r"gradient 0: "),
    Difference("`softmax` of NaN between other numbers", r"softmax_?\(.*nan", r"value 0: .*: np\.float\d\d\(nan\), wanted"),
    Difference("Singular values of infinity and NaN, `norm` of a matrix with `p=2`", r"(norm|svd|svdvals)\(", r"raises nothing, wanted ValueError .*did not converge"),
    Difference("Gradient of `gammaln` in float64", r"gammaln\(.*float64", r"gradient 0: .*wrong by \de-1[3-5]"),
    Difference("Gradient of `copysign` at infinity and NaN", r"copysign\(", r"gradient 0: .*wanted np\.float\d\d\(nan\)"),
    Difference("Gradient of `i0e` at 0", r"i0e\(", r"gradient 0: .*wanted np\.float\d\d\(-?1\.0\)"),
    Difference("Gradient of `spectral_norm`", r"spectral_norm\(", "gradient"),
    Difference("`mode` of nothing", r"paddle\.mode\(", "at least one element"),
    Difference("`allclose` and `isclose` with a tolerance that is a whole number, `rtol=1`", r"(isclose|allclose)\(", r"raises nothing, wanted ValueError .*type must be double"),
    Difference("`searchsorted`, `bucketize` of -inf", r"(searchsorted|bucketize)\(.*-inf", r"value 0: .*np\.int(32|64)\(\d+\), wanted"),
    Difference("`logcumsumexp` of -inf alone", r"logcumsumexp\(.*-inf", r"-inf\), wanted np\.float\d\d\(-[13]\.\d*e\+"),
    Difference("`logcumsumexp` from a NaN on", r"logcumsumexp\(.*nan", r"value 0: .*: np\.float\d\d\(nan\), wanted"),
    Difference("`swiglu` of numbers below -1e300", r"swiglu\(.*-1\.79", r"value 0: .*wanted np\.float64\(nan\)"),
    Difference("`swiglu` whose gate lies below the smallest normal number", r"swiglu\(", r"value 0: .*: np\.float\d\d\(-?0\.0\), wanted np\.float\d\d\(-?\d"),
    Difference("`maxout` of NaN", r"maxout\(.*nan", r"value 0: .*: np\.float\d\d\(nan\), wanted"),
    Difference("`mode` of lines above 16 elements: the index", r"paddle\.mode\(", r"value 1: .* wrong"),
    Difference("`topk` of equal numbers: the indices", r"paddle\.topk\(", r"value 1: .* wrong"),
    Difference("`topk` of no integers", r"paddle\.topk\(T\(\[\]", r"k is \d+, expected at most 0"),
    Difference("`unique_consecutive` of NaN", r"unique_consecutive\(.*nan", "shape"),
    Difference("`assign` of one element into a larger view", r"paddle\.assign\(.*output=T\(.*\[", r"raises nothing, wanted ValueError .*must be equal with out shape"),
    Difference("Products and `dist` of nothing whose shapes do not fit", r"@|matmul\(|paddle\.dist\(", r"mps: (matmul|subtract): shapes .*\b0\b.*wanted no exception"),
    Difference("`heaviside` of nothing in another type", r"heaviside\(T\(\[\]", r"heaviside: an input has dtype .*wanted no exception"),
    Difference("`searchsorted`, `bucketize` in a line with NaN", r"(searchsorted|bucketize)\(.*nan", r"value 0: .*np\.int(32|64)\(\d+\), wanted"),
    Difference("`full_like` of nothing with a number that the type cannot hold", r"full_like\(T\(\[\]", r"attribute value is .*wanted no exception"),
    Difference("`nanmedian` of no integers", r"nanmedian\(", "nothing has no median"),
    Difference("`histogram` of nothing", r"paddle\.histogram\(", "value 0: element type int64, wanted"),
    Difference("`reindex_graph` and `reindex_heter_graph` of no nodes", r"reindex_(heter_)?graph\(", r"raises nothing, wanted ValueError"),
    Difference("`crop` of nothing", r"paddle\.crop\(", r"mps: crop: attribute offsets .*wanted no exception"),
    Difference("Gradient of `interpolate(mode='linear')` to one element", r"interpolate\(.*mode='linear'", "gradient 0"),
    Difference("Gradient of `max` and `min` along axes that are not in order", r"\.a?(max|min)\(.*axis=\[(?=[^\]]*(-|5, [0-4]|4, [0-3]|3, [0-2]|2, [01]|1, 0))(?=[^\]]*,)", r"gradient 0: .* wrong"),
    Difference("Gradient of `roi_align(aligned=True)` of regions below one element", r"roi_align\(", "gradient 0"),
    Difference("Gradient of `yolo_loss` where two objects share a cell and an anchor", r"yolo_loss\(", "gradient 0"),
    Difference("`box_coder` decoding float64 with a list of variances", r"box_coder\(.*float64.*, \[0\.1, 0\.2", "value 0"),
    Difference("`prior_box` of float64", r"prior_box\(.*float64", r"value 0: .* by \de-0[89]"),
    Difference("`weight_quantize` of columns of zeros", r"weight_quantize\(", r"value 0: "),
    Difference("In-place methods of complex numbers that have no kernel, on a view", r"complex(64|128).*(\[|reshape|view|transpose|squeeze).*\.\w+_\(", "wrong"),
    Difference("`weight_quantize` where no architecture is named", r"weight_quantize\(", r"raises nothing, wanted ValueError"),
)


def difference(call: str, problem: str) -> Difference | None:
    return next((known for known in DIFFERENCES if known.covers(call, problem)), None)
