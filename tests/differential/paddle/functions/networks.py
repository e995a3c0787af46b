"""Functions of networks: products, convolutions, pooling, norms, losses, embeddings, attention, resizing."""

from ..draw import FLOATS, INTEGERS, Draw
from ..row import CLOSE, EXACT, NO, SINGLE, SUM, YES, Row
from .elementwise import each


def product(draw: Draw) -> dict[str, object]:
    """Two operands of a matrix product: vectors, matrices or batches that broadcast, either transposed."""
    m, k, n = (draw.random.choice((1, 2, 3, 5, 8, 17, 33)) for _ in range(3))
    whole = draw.type in INTEGERS  # the CPU never ends where a batch of integers is repeated
    if draw.chance(0.04):
        m = 0
    batch = () if whole else draw.shape(0, 2, empty=False)
    draw.overlaps = draw.overlaps and not whole
    flip_x, flip_y = draw.chance(0.3), draw.chance(0.3)
    x, y = ((k, m) if flip_x else (m, k)), ((n, k) if flip_y else (k, n))
    x, y = (*draw.partner(batch), *x), (*draw.partner(batch), *y)
    if draw.chance(0.12):
        x, flip_x = (k,), False
    if draw.chance(0.12):
        y, flip_y = (k,), False
    return {"x": draw.tensor(x), "y": draw.tensor(y), "a": flip_x, "b": flip_y}


def matrices(draw: Draw) -> dict[str, object]:
    b, m, k, n = (draw.random.choice((1, 2, 3, 5, 9)) for _ in range(4))
    return {
        "b1": draw.tensor((b, m, k)), "b2": draw.tensor((b, k, n)), "b3": draw.tensor((b, m, n)),
        "m1": draw.tensor((m, k)), "m2": draw.tensor((k, n)), "m3": draw.tensor(draw.partner((m, n), prefix=False)),
        "v1": draw.tensor((k,)), "v2": draw.tensor((k,)), "w": draw.tensor((n,)), "x": draw.tensor((*draw.shape(0, 2), k)), "square": draw.tensor((m, m)),
    }  # fmt: skip


def finite_matrices(draw: Draw) -> dict[str, object]:
    draw.special = False  # which products of infinities meet depends on the order of multiplications
    return matrices(draw)


def images(draw: Draw, dimensions: int = 2) -> dict[str, object]:
    """Images, kernels, and attributes that fit them more often than not."""
    draw.special = False  # whether padding meets an infinite weight is not defined
    groups = draw.pick(1, 1, 1, 2)
    inner, outer = groups * draw.random.randint(1, 3), groups * draw.random.randint(1, 4)
    sizes = tuple(draw.random.choice((4, 5, 7, 9)) for _ in range(dimensions))
    kernel = tuple(draw.random.choice((1, 2, 3, 3)) for _ in range(dimensions))
    if draw.chance(0.15):
        groups = inner
        outer = inner * draw.random.randint(1, 2)
    batch = draw.pick(1, 2, 3)
    return {
        "x": draw.tensor((batch, inner, *sizes)),
        "w": draw.tensor((outer, inner // groups, *kernel)),
        "wt": draw.tensor((inner, outer // groups, *kernel)),
        "bias": draw.tensor((outer,)),
        "stride": draw.random.randint(1, 2),
        "padding": draw.pick(0, 1, "'SAME'", "'VALID'", [1] * dimensions),
        "pt": draw.pick(0, 1),
        "dilation": draw.pick(1, 1, 2),
        "groups": groups,
    }


def pooled(draw: Draw) -> dict[str, object]:
    sizes = tuple(draw.random.choice((4, 5, 7, 8)) for _ in range(3))
    kernel = draw.random.randint(2, 3)
    shape = (draw.pick(1, 2), draw.pick(1, 3))
    return {
        "x": draw.tensor((*shape, *sizes[:2])), "line": draw.tensor((*shape, sizes[0])), "volume": draw.tensor((*shape, *sizes)), "k": kernel,
        "stride": draw.pick(1, 2, 3), "padding": draw.random.randint(0, kernel // 2), "ceil": draw.chance(0.3), "exclusive": draw.chance(0.5),
        "size": [draw.random.randint(1, 5), draw.random.randint(1, 5)], "o": draw.random.randint(1, 4),
    }  # fmt: skip


def normed(draw: Draw) -> dict[str, object]:
    """Images with statistics, weights and biases of their channels, and rows with those of their length."""
    draw.special = False  # an infinite bias ends up in the CPU's gradient of x
    groups, channels = draw.pick((1, 1), (1, 3), (2, 4), (3, 3))
    shape = (draw.pick(1, 2, 3), channels, *draw.shape(1, 2, empty=False))
    width = draw.pick(1, 2, 5, 16, 33)
    return {
        "x": draw.tensor(shape), "mean": draw.tensor((channels,)), "variance": draw.tensor((channels,), domain="positive"), "g": groups,
        "w": draw.tensor((channels,)), "b": draw.tensor((channels,)), "r": draw.tensor((*draw.shape(0, 3), width)),
        "rw": draw.tensor((width,)), "rb": draw.tensor((width,)), "width": width, "eps": draw.pick(1e-5, 1e-3),
    }  # fmt: skip


def labelled(draw: Draw) -> dict[str, object]:
    """Scores of classes and labels, some of which are to be left out."""
    draw.special = False  # of infinite scores each formula has its own losses
    n, c = draw.pick(1, 2, 5, 8), draw.pick(2, 3, 7, 33)
    labels = [draw.random.randrange(c) if draw.chance(0.85) else -100 for _ in range(n)]
    if draw.chance(0.05):
        labels[0] = draw.pick(c, -1, c + 50)
    kind = draw.pick("int32", "int64")
    soft = draw.tensor((n, c), domain="unit")
    return {
        "x": draw.tensor((n, c)), "label": f'T({labels}, [{n}], "int64")', "column": f'T({labels}, [{n}, 1], "{kind}")', "soft": soft, "s": draw.tensor((n, c)),
        "probability": draw.tensor((n, c), domain="unit"), "bits": draw.tensor((n, c), domain="unit"), "w": draw.tensor((c,), domain="unit"),
        "reduction": draw.word("mean", "sum", "none"), "sign": f'T({[draw.pick(-1, 1) for _ in range(n * c)]}, [{n}, {c}], "{draw.type}")', "delta": draw.pick(0.5, 1.0, 2.0),
        "axis": draw.pick(-1, 1),
    }  # fmt: skip


def embedded(draw: Draw) -> dict[str, object]:
    rows = draw.random.randint(1, 9)
    return {"i": draw.indices(draw.shape(0, 3), rows), "w": draw.tensor((rows, draw.pick(1, 3, 16))), "skip": draw.pick(None, None, 0, -1)}


def attended(draw: Draw) -> dict[str, object]:
    b, heads, d = draw.pick(1, 2), draw.pick(1, 2, 3), draw.pick(1, 4, 8, 16)
    queries, keys = draw.pick(1, 3, 8, 33, 40), draw.pick(1, 5, 8, 33)
    if draw.chance(0.5):
        keys = queries
    dense = draw.dense
    return {
        "q": dense((b, queries, heads, d), draw.type, "unit"), "k": dense((b, keys, heads, d), draw.type, "unit"), "v": dense((b, keys, heads, d), draw.type, "unit"),
        "mask": dense((b, 1, queries, keys), draw.type, "unit"), "truth": dense((b, heads, queries, keys), "bool", "any"),
        "same_k": dense((b, queries, heads, d), draw.type, "unit"), "same_v": dense((b, queries, heads, d), draw.type, "unit"),
    }  # fmt: skip


def resized(draw: Draw) -> dict[str, object]:
    draw.special = False  # a weight of 0 times infinity
    size = [draw.random.randint(1, 9), draw.random.randint(1, 9)]
    return {
        "x": draw.tensor((draw.pick(1, 2), draw.pick(1, 3), draw.random.randint(1, 7), draw.random.randint(1, 7))), "size": size, "layout": draw.word("NCHW", "NHWC"),
        "align": draw.chance(0.5), "mode": draw.pick(0, 1), "factor": draw.pick(0.5, 1.5, 2.0, 3.0),
        "line": draw.tensor((draw.pick(1, 2), draw.pick(1, 3), draw.random.randint(1, 7))), "length": [draw.random.randint(1, 9)],
        "volume": draw.tensor((1, draw.pick(1, 2), *(draw.random.randint(1, 4) for _ in range(3)))), "cube": [draw.random.randint(1, 5) for _ in range(3)],
    }  # fmt: skip


def grids(draw: Draw) -> dict[str, object]:
    draw.special = False  # a weight of 0 times infinity
    n = draw.pick(1, 2)
    return {
        "x": draw.tensor((n, 2, draw.random.randint(1, 5), draw.random.randint(1, 5))), "grid": draw.tensor((n, 3, 2, 2), domain="bounded"), "mode": draw.word("bilinear", "nearest"),
        "edge": draw.word("zeros", "border", "reflection"), "align": draw.chance(0.5), "theta": draw.tensor((n, 2, 3)), "n": n,
        "volume": draw.tensor((n, 2, 2, 3, 2)), "points": draw.tensor((n, 2, 2, 2, 3), domain="bounded"),
    }  # fmt: skip


def margins(draw: Draw) -> dict[str, object]:
    """Three rows of scores beside each other, and labels that all exist."""
    draw.special = False
    n, c = draw.pick(1, 2, 5), draw.pick(2, 3, 7)
    whole = [draw.random.randrange(c) for _ in range(n)]
    return {
        "x": draw.tensor((n, c)), "s": draw.tensor((n, c)), "t": draw.tensor((n, c)), "one": f'T({[draw.pick(-1, 1) for _ in range(n)]}, [{n}], "{draw.type}")',
        "whole": f'T({whole}, [{n}], "int64")', "column": f'T({whole}, [{n}, 1], "int64")', "probability": draw.tensor((n, c), domain="unit"), "reduction": draw.word("mean", "sum", "none"),
    }  # fmt: skip


def two(draw: Draw) -> dict[str, object]:
    shape = draw.shape(1, 4, empty=False)
    return {"x": draw.tensor(shape), "y": draw.tensor(shape), "reduction": draw.word("mean", "sum", "none"), "delta": draw.pick(0.5, 1.0, 2.0), "p": draw.tensor(shape, domain="unit"),
            "q": draw.tensor(shape, domain="unit"), "axis": draw.random.randint(-len(shape), len(shape) - 1)}  # fmt: skip


ROWS = [
    Row("paddle.matmul({x}, {y}, transpose_x={a}, transpose_y={b})", FLOATS, YES, SUM, product),
    Row("({x} @ {y})", FLOATS, YES, SUM, product),
    Row("paddle.matmul({x}, {y}, transpose_x={a}, transpose_y={b})", ("int32", "int64"), NO, EXACT, product),
    Row("paddle.bmm({b1}, {b2})", FLOATS, YES, SUM, matrices),
    Row("paddle.mm({m1}, {m2})", FLOATS, YES, SUM, matrices),
    Row("paddle.mv({m1}, {v1})", SINGLE, YES, SUM, matrices),
    Row("paddle.dot({v1}, {v2})", SINGLE, YES, SUM, matrices),
    Row("paddle.inner({m1}, {v1})", SINGLE, YES, SUM, matrices),
    Row("paddle.outer({v1}, {w})", FLOATS, YES, CLOSE, matrices),
    Row("paddle.addmm({m3}, {m1}, {m2}, beta={number}, alpha={number2})", SINGLE, YES, SUM, matrices),
    Row("paddle.baddbmm({b3}, {b1}, {b2}, beta={number}, alpha={number2})", SINGLE, YES, SUM, matrices),
    Row("paddle.linalg.multi_dot([{square}, {m1}, {m2}])", SINGLE, NO, SUM, matrices),
    Row("paddle.linalg.matrix_power({square}, {integer:0 4})", SINGLE, NO, SUM, finite_matrices),
    Row("paddle.tensordot({m1}, {m2}, axes=1)", SINGLE, YES, SUM, matrices),
    Row("paddle.einsum('bmk,bkn->bmn', {b1}, {b2})", SINGLE, YES, SUM, matrices),
    Row("paddle.einsum('mk,k->m', {m1}, {v1})", SINGLE, YES, SUM, matrices),
    Row("paddle.einsum('mk->km', {m1})", SINGLE, YES, EXACT, matrices),
    Row("F.linear({x}, {m2}, {w})", FLOATS, YES, SUM, matrices),
    Row("F.linear({x}, {m2})", FLOATS, YES, SUM, matrices),
    Row("paddle.cross({x}, {y})", SINGLE, YES, SUM, lambda draw: {"x": draw.tensor((2, 3)), "y": draw.tensor((2, 3))}),
    Row("paddle.cdist({m1}, {square})", SINGLE, YES, SUM, lambda draw: {"m1": draw.tensor((3, 4)), "square": draw.tensor((5, 4))}),
    Row("F.cosine_similarity({x}, {y}, axis={axis})", SINGLE, YES, SUM, two),
    Row("F.conv2d({x}, {w}, {bias}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups})", FLOATS, YES, SUM, images),
    Row("F.conv1d({x}, {w}, {bias}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups})", SINGLE, YES, SUM, lambda draw: images(draw, 1)),
    Row("F.conv3d({x}, {w}, {bias}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups})", SINGLE, YES, SUM, lambda draw: images(draw, 3)),
    Row("F.conv3d_transpose({x}, {wt}, {bias}, stride={stride}, padding={pt}, groups={groups})", SINGLE, YES, SUM, lambda draw: images(draw, 3)),
    Row("F.conv2d_transpose({x}, {wt}, {bias}, stride={stride}, padding={pt}, dilation={dilation}, groups={groups})", SINGLE, YES, SUM, images),
    Row("F.conv1d_transpose({x}, {wt}, {bias}, stride={stride}, padding={pt}, groups={groups})", SINGLE, YES, SUM, lambda draw: images(draw, 1)),
    Row("F.unfold({x}, {k}, strides={stride}, paddings={padding})", SINGLE, YES, EXACT, pooled),
    Row("F.max_pool2d({x}, {k}, stride={stride}, padding={padding}, ceil_mode={ceil})", FLOATS, YES, EXACT, pooled),
    Row("F.max_pool2d({x}, {k}, stride={stride}, padding={padding}, return_mask=True)", SINGLE, YES, EXACT, pooled),
    Row("F.avg_pool2d({x}, {k}, stride={stride}, padding={padding}, ceil_mode={ceil}, exclusive={exclusive})", FLOATS, YES, SUM, pooled),
    Row("F.max_pool1d({line}, {k}, stride={stride}, padding={padding})", SINGLE, YES, EXACT, pooled),
    Row("F.avg_pool1d({line}, {k}, stride={stride}, padding={padding}, exclusive={exclusive})", SINGLE, YES, SUM, pooled),
    Row("F.max_pool3d({volume}, {k}, stride={stride}, padding={padding}, return_mask={ceil})", SINGLE, YES, EXACT, pooled),
    Row("F.avg_pool3d({volume}, {k}, stride={stride}, padding={padding})", SINGLE, YES, SUM, pooled),
    Row("F.adaptive_avg_pool2d({x}, {size})", FLOATS, YES, SUM, pooled),
    Row("F.adaptive_max_pool2d({x}, {size})", SINGLE, YES, EXACT, pooled),
    Row("F.adaptive_avg_pool1d({line}, {o})", SINGLE, YES, SUM, pooled),
    Row("F.adaptive_max_pool1d({line}, {o})", SINGLE, YES, EXACT, pooled),
    Row("F.batch_norm({x}, {mean}, {variance}, {w}, {b}, training=False, epsilon={eps})", SINGLE, YES, SUM, normed),
    Row("F.batch_norm({x}, {mean}.detach(), {variance}.detach(), {w}, {b}, training=True, epsilon={eps})", SINGLE, YES, SUM, normed),
    Row("F.layer_norm({r}, {width}, {rw}, {rb}, epsilon={eps})", FLOATS, YES, SUM, normed),
    Row("F.layer_norm({r}, {width})", FLOATS, YES, SUM, normed),
    Row("F.instance_norm({x}, weight={w}, bias={b})", SINGLE, YES, SUM, normed),
    Row("F.group_norm({x}, {g}, weight={w}, bias={b}, epsilon={eps})", SINGLE, YES, SUM, normed),
    Row("F.rms_norm({r}, [{width}], {rw}, eps={eps})", SINGLE, YES, SUM, normed),
    Row("F.local_response_norm({x:4}, {integer:1 3})", SINGLE, YES, SUM),
    Row("F.cross_entropy({x}, {label}, reduction={reduction})", FLOATS, YES, SUM, labelled),
    Row("F.cross_entropy({x}, {column}, weight={w}, reduction={reduction}, ignore_index=-100)", SINGLE, YES, SUM, labelled),
    Row("F.cross_entropy({x}, {soft}, soft_label=True, axis={axis})", SINGLE, YES, SUM, labelled),
    Row("F.cross_entropy({x}, {label}, label_smoothing=0.1)", SINGLE, NO, SUM, labelled),
    Row("F.softmax_with_cross_entropy({x}, {column}, return_softmax=True)", SINGLE, YES, SUM, labelled),
    Row("F.nll_loss({x}, {label}, weight={w}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.binary_cross_entropy({probability}, {bits}, reduction={reduction})", FLOATS, YES, SUM, labelled),
    Row("F.binary_cross_entropy_with_logits({x}, {bits}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.kl_div({x}, {soft}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.hinge_embedding_loss({x}, {sign}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.soft_margin_loss({x}, {sign}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.margin_ranking_loss({x}, {s}, {sign}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.sigmoid_focal_loss({x}, {bits}, reduction='sum')", SINGLE, YES, SUM, labelled),
    Row("F.log_loss({x}, {y})", SINGLE, YES, SUM, lambda draw: {"x": draw.tensor((5, 1), domain="unit"), "y": draw.tensor((5, 1), domain="unit")}),
    Row("F.label_smooth({x:2}, epsilon=0.2)", SINGLE, YES, CLOSE),
    Row("F.mse_loss({x}, {y}, reduction={reduction})", FLOATS, YES, SUM, two),
    Row("F.l1_loss({x}, {y}, reduction={reduction})", FLOATS, YES, SUM, two),
    Row("F.smooth_l1_loss({x}, {y}, reduction={reduction}, delta={delta})", SINGLE, YES, SUM, two),
    Row("F.square_error_cost({x}, {y})", SINGLE, YES, SUM, two),
    Row("F.poisson_nll_loss({x}, {p}, reduction={reduction})", SINGLE, YES, SUM, two),
    Row("F.cosine_embedding_loss({x}, {s}, {one}, margin=0.1, reduction={reduction})", SINGLE, YES, SUM, margins),
    Row("F.triplet_margin_loss({x}, {s}, {t}, reduction={reduction})", SINGLE, YES, SUM, margins),
    Row("F.multi_label_soft_margin_loss({x}, {bits}, reduction={reduction})", SINGLE, YES, SUM, labelled),
    Row("F.multi_margin_loss({x}, {whole}, reduction={reduction})", SINGLE, YES, SUM, margins),
    Row("F.dice_loss({probability}, {column})", ("float32",), YES, SUM, margins),
    Row("F.pairwise_distance({x}, {y}, p={integer:1 3})", SINGLE, YES, SUM, lambda draw: {"x": draw.tensor((3, 4)), "y": draw.tensor((3, 4))}),
    Row("F.gaussian_nll_loss({x}, {y}, {p}, reduction={reduction})", SINGLE, YES, SUM, two),
    Row("F.embedding({i}, {w}, padding_idx={skip})", FLOATS, YES, SUM, embedded),
    Row("F.scaled_dot_product_attention({q}, {k}, {v})", SINGLE, YES, SUM, attended),
    Row("F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={mask})", SINGLE, YES, SUM, attended),
    Row("F.scaled_dot_product_attention({q}, {same_k}, {same_v}, is_causal=True)", SINGLE, YES, SUM, attended),
    *each("bilinear nearest", "F.interpolate({x}, size={size}, mode='NAME')", FLOATS, YES, SUM, resized),
    Row("F.interpolate({x}, scale_factor={factor}, mode='bilinear', align_corners={align}, align_mode={mode}, data_format={layout})", SINGLE, YES, SUM, resized),
    Row("F.interpolate({x}, scale_factor={factor}, mode='nearest', data_format={layout})", SINGLE, YES, SUM, resized),
    Row("F.interpolate({x}, size={size}, mode='bicubic', align_corners={align}, data_format={layout})", SINGLE, YES, SUM, resized),
    Row("F.interpolate({line}, size={length}, mode='linear', align_corners={align}, align_mode={mode})", SINGLE, YES, SUM, resized),
    Row("F.interpolate({volume}, size={cube}, mode='trilinear', align_corners={align}, align_mode={mode})", SINGLE, YES, SUM, resized),
    Row("F.interpolate({volume}, size={cube}, mode='nearest')", SINGLE, YES, SUM, resized),
    Row("F.interpolate({x}, size={size}, mode='area')", SINGLE, YES, SUM, resized),
    Row("F.upsample({x}, size={size}, mode='bilinear')", SINGLE, YES, SUM, resized),
    Row("F.grid_sample({x}, {grid}, mode={mode}, padding_mode={edge}, align_corners={align})", SINGLE, YES, SUM, grids),
    Row("F.grid_sample({volume}, {points}, mode={mode}, padding_mode={edge}, align_corners={align})", SINGLE, YES, SUM, grids),
    Row("F.affine_grid({theta}, [{n}, 2, 3, 4], align_corners={flag})", SINGLE, YES, SUM, grids),
    Row("F.dropout({x}, p={number:0 0.9}, training=False)", FLOATS, YES, EXACT),
    Row("F.dropout({x}, p={number:0 0.9}, training=False, mode='downscale_in_infer')", FLOATS, YES, CLOSE),
    Row("F.sequence_mask({i}, maxlen={integer:1 7})", ("int32", "int64"), NO, EXACT, lambda draw: {"i": draw.indices((3,), 6, draw.type)}),
    Row("F.temporal_shift({x}, 2, 0.25)", SINGLE, NO, EXACT, lambda draw: {"x": draw.tensor((4, 4, 2, 3))}),
    Row("paddle.nn.functional.softmax_({x}, axis={axis})", SINGLE, NO, SUM),
]
