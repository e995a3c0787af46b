"""Detection heads and CTC: boxes, what is chosen among them, regions of images, losses of sequences."""

from ..draw import Draw
from ..row import EXACT, NO, SINGLE, SUM, YES, Row


def uniform(draw: Draw, shape: tuple[int, ...], low: float, high: float) -> str:
    """The source of numbers between these, from a seed of its own, without a gradient."""
    numbers = f"np.random.default_rng({draw.random.randrange(10_000)}).uniform({low}, {high}, {list(shape)}).ravel()"
    return f'T({numbers}, {list(shape)}, "{draw.type}").detach()'


def boxes(draw: Draw, *shape: int, size: float = 12.0) -> str:
    """The source of boxes by their corners; sides are at least 1, below which Paddle's gradient of roi_align is another one."""
    corners, sides = uniform(draw, (*shape, 2), 0, size), uniform(draw, (*shape, 2), 1.2, size)
    return f"(lambda corner, side: paddle.concat([corner, corner + side], -1))({corners}, {sides})"


def regions(draw: Draw) -> dict[str, object]:
    draw.special = False
    images, channels = draw.pick(1, 2, 3), draw.pick(1, 3, 4)
    counts = [draw.pick(0, 1, 3) for _ in range(images)]
    height, width = draw.pick(1, 2, 3), draw.pick(1, 2, 3)
    return {
        "a": draw.tensor((images, channels, draw.pick(5, 8), draw.pick(6, 9))),
        "m": draw.tensor((images, 2 * height * width, draw.pick(5, 8), draw.pick(6, 9))),
        "boxes": boxes(draw, sum(counts)), "counts": f"paddle.to_tensor({counts}, 'int32')", "out": (height, width),
        "scale": draw.pick(0.5, 1.0, 0.25), "ratio": draw.pick(-1, 1, 2), "flag": draw.chance(0.5),
    }  # fmt: skip


def sequences(draw: Draw) -> dict[str, object]:
    """Labels that are never the blank, and lengths that leave time for them."""
    draw.special = False
    times, batch, classes, longest = draw.pick(6, 9, 12), draw.pick(1, 2, 4), draw.pick(2, 4, 7), draw.pick(1, 2, 3)
    blank = draw.pick(0, classes - 1)
    labels = [[(blank + 1 + draw.random.randrange(classes - 1)) % classes for _ in range(longest)] for _ in range(batch)]
    return {
        "logits": draw.tensor((times, batch, classes)), "labels": f"paddle.to_tensor({labels}, 'int32')", "blank": blank,
        "times": f"paddle.to_tensor({[draw.random.randint(2 * longest, times) for _ in range(batch)]})",
        "counts": f"paddle.to_tensor({[draw.random.randint(1, longest) for _ in range(batch)]})", "flag": draw.chance(0.5),
        "reduction": draw.word("mean", "sum", "none"),
    }  # fmt: skip


def scored(draw: Draw) -> dict[str, object]:
    count, classes = draw.pick(1, 7, 20), draw.pick(2, 3)
    return {
        "boxes": boxes(draw, count), "many": boxes(draw, 2, count), "scores": uniform(draw, (count,), 0, 1), "of": uniform(draw, (2, classes, count), 0, 1),
        "classes": f"paddle.to_tensor({[draw.random.randrange(classes) for _ in range(count)]})", "names": list(range(classes)), "overlap": draw.pick(0.1, 0.3, 0.7),
        "low": draw.pick(0.05, 0.4), "keep": draw.pick(-1, 3, 15), "top": draw.pick(-1, 5, 40), "flag": draw.chance(0.5), "other": draw.chance(0.5), "first": draw.pick(1, 2),
    }  # fmt: skip


def heads(draw: Draw) -> dict[str, object]:
    draw.special = False
    classes, anchors, size = draw.pick(1, 4), draw.pick(1, 3), draw.pick(3, 5)
    channels = anchors * (5 + classes)
    return {
        "x": draw.tensor((2, channels, size, draw.pick(3, 4))), "square": draw.tensor((2, channels, size, size)), "sizes": "paddle.to_tensor([[40, 50], [32, 64]], 'int32')", "anchors": [10, 13, 16, 30, 33, 23][: 2 * anchors],
        "mask": list(range(anchors)), "classes": classes, "low": draw.pick(0.01, 0.3), "stride": draw.pick(8, 16), "flag": draw.chance(0.5), "scale": draw.pick(1.0, 1.2),
        "truths": uniform(draw, (2, 3, 4), 0.05, 0.9), "labels": f"paddle.to_tensor({[[draw.random.randrange(classes) for _ in range(3)] for _ in range(2)]}, 'int32')",
    }  # fmt: skip


def priors(draw: Draw) -> dict[str, object]:
    count = draw.pick(1, 5)
    return {
        "boxes": boxes(draw, count), "spread": uniform(draw, (count, 4), 0.1, 1), "targets": boxes(draw, 3), "codes": uniform(draw, (count, 3, 4), -1, 1),
        "turned": uniform(draw, (3, count, 4), -1, 1), "map": uniform(draw, (1, 2, 3, 4), 0, 1), "image": uniform(draw, (1, 3, 30, 20), 0, 1), "flag": draw.chance(0.5),
        "other": draw.chance(0.5), "ratios": draw.pick([1.0], [1.0, 2.0], [0.5]), "offset": draw.pick(0.3, 0.5),
    }  # fmt: skip


ROWS = [
    Row("F.ctc_loss({logits}, {labels}, {times}, {counts}, blank={blank}, reduction={reduction}, norm_by_times={flag})", SINGLE, YES, SUM, sequences),
    Row("paddle.vision.ops.roi_align({a}, {boxes}, {counts}, {out}, {scale}, {ratio}, {flag})", SINGLE, YES, SUM, regions),
    Row("paddle.vision.ops.roi_pool({a}, {boxes}, {counts}, {out}, {scale})", SINGLE, YES, SUM, regions),
    Row("paddle.vision.ops.psroi_pool({m}, {boxes}, {counts}, {out}, {scale})", SINGLE, YES, SUM, regions),
    Row("paddle.vision.ops.nms({boxes}, {overlap})", ("float32",), NO, EXACT, scored),
    Row("paddle.vision.ops.nms({boxes}, {overlap}, {scores}, {classes}, {names}, top_k={first})", ("float32",), NO, EXACT, scored),
    Row("paddle.vision.ops.matrix_nms({many}, {of}, {low}, 0.1, {top}, {keep}, {flag}, background_label=-1, normalized={other}, return_index=True)", SINGLE, NO, SUM, scored),
    Row("paddle._C_ops.multiclass_nms3({many}, {of}, None, {low}, {top}, {keep}, {overlap}, {flag}, 1.0, -1)", SINGLE, NO, SUM, scored),
    Row("paddle.vision.ops.yolo_box({x}, {sizes}, {anchors}, {classes}, {low}, {stride}, {flag}, scale_x_y={scale})", SINGLE, NO, SUM, heads),
    Row("paddle.vision.ops.yolo_loss({square}, {truths}, {labels}, {anchors}, {mask}, {classes}, 0.6, {stride}, use_label_smooth={flag}, scale_x_y={scale})", SINGLE, YES, SUM, heads),
    Row("paddle.vision.ops.box_coder({boxes}, {spread}, {targets}, box_normalized={flag})", SINGLE, NO, SUM, priors),
    Row("paddle.vision.ops.box_coder({boxes}, [0.1, 0.2, 0.3, 0.4], {codes}, 'decode_center_size', {flag}, 1)", SINGLE, NO, SUM, priors),
    Row("paddle.vision.ops.box_coder({boxes}, {spread}, {turned}, 'decode_center_size', {flag})", SINGLE, NO, SUM, priors),
    Row("paddle.vision.ops.prior_box({map}, {image}, [4.0, 9.0], [9.0, 16.0], {ratios}, clip={flag}, flip={other}, offset={offset})", SINGLE, NO, SUM, priors),
]  # fmt: skip
