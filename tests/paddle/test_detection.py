"""CTC, YOLO heads, suppression of boxes and regions of images: values, gradients and refusals, beside Paddle's CPU, without fallback."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F
from paddle.vision import ops

from beside_cpu import Case, assert_as_on_cpu, drawn, evaluated, replaced, weights_of, whole

ANCHORS = [10, 13, 16, 30, 33, 23]


def boxes(*shape: int, size: float = 40.0, seed: int = 0) -> np.ndarray:
    corners = drawn(*shape, 2, low=0, high=size / 2, seed=seed)
    return np.concatenate([corners, corners + drawn(*shape, 2, low=2, high=size / 2, seed=seed + 1)], -1)


def ctc(reduction: str = "mean", blank: int = 0, norm: bool = False, dtype: str = "float32") -> Case:
    labels = np.asarray([[1, 2, 2, 3], [4, 1, 0, 0], [3, 3, 3, 3]], "int32")
    labels = np.where(labels == blank, (blank + 1) % 5, labels).astype("int32")

    def call(logits, labels, times, counts):
        return F.ctc_loss(logits, labels, times, counts, blank=blank, reduction=reduction, norm_by_times=norm)

    return Case(call, (drawn(9, 3, 5, dtype=dtype), labels, whole(9, 6, 5), whole(4, 2, 4)), 1)


def yolo_boxes(aware: bool = False, clip: bool = True, threshold: float = 0.3) -> Case:
    def call(x, sizes):
        return ops.yolo_box(x, sizes, ANCHORS[:4], 3, threshold, 8, clip, scale_x_y=1.1, iou_aware=aware, iou_aware_factor=0.4)

    return Case(call, (drawn(2, 18 if aware else 16, 4, 5), np.asarray([[40, 50], [32, 64]], "int32")))


def yolo_loss(smooth: bool = True, scale: float = 1.0, scored: bool = True) -> Case:
    truths = drawn(2, 3, 4, low=0.05, high=0.9, seed=3)
    truths[0, 2, 2:] = 0
    scores = drawn(2, 3, low=0.4, high=1.0)

    def call(x, truths, labels, scores):
        scores = scores if scored else None
        return ops.yolo_loss(x, truths, labels, ANCHORS, [0, 1, 2], 4, 0.3, 8, gt_score=scores, use_label_smooth=smooth, scale_x_y=scale)

    return Case(call, (drawn(2, 27, 5, 5), truths, np.asarray([[0, 1, 2], [3, 0, 3]], "int32"), scores), 1)


def regions(call: Callable[..., object], channels: int = 3) -> Case:
    return Case(call, (drawn(2, channels, 12, 14), boxes(5, size=12.0), whole(3, 2, dtype="int32")), 1)


def classes(call: Callable[..., object]) -> Case:
    return Case(call, (boxes(2, 20), drawn(2, 3, 20, low=0, high=1)))


def proposals(
    images: int = 2, pixels: bool = True, before: int = 30, after: int = 12, eta: float = 1.0, least: float = 2.0, threshold: float = 0.5
) -> Case:
    """Scores and deltas of 3 kinds of anchors at 4 x 5 places."""
    sizes = np.asarray([[40, 50, 1.2], [32, 64, 0.8]], "float32")[:images]

    def call(scores, deltas, sizes, anchors, variances):
        return paddle._C_ops.generate_proposals(scores, deltas, sizes, anchors, variances, before, after, threshold, least, eta, pixels)

    arrays = (drawn(images, 3, 4, 5), drawn(images, 12, 4, 5), sizes[:, :2], boxes(4, 5, 3), drawn(4, 5, 3, 4, low=0.1, high=1))
    return Case(call, arrays)


def flat(found: list) -> list:
    """Lists of results as one list."""
    return [result for part in found for result in (part if isinstance(part, list) else [part])]


def matched(rows: int, columns: int, kind: str) -> Case:
    distances = np.where(drawn(rows, columns) > 0.5, 0, drawn(rows, columns, low=0.01, high=1, seed=1)).astype("float32")
    return Case(lambda d: paddle._C_ops.bipartite_match(d, kind, 0.4), (distances,))


def collected(most: int) -> Case:
    def call(a, b, s, t, m, n):
        return paddle._C_ops.collect_fpn_proposals([a, b], [s, t], [m, n], most)

    counts = np.asarray([3, 4], "int32"), np.asarray([2, 3], "int32")
    return Case(call, (boxes(7), boxes(5, seed=3), drawn(7, 1), drawn(5, 1), *counts))


CASES = {
    "generate_proposals": proposals(),
    "generate_proposals, between elements": proposals(pixels=False),
    "generate_proposals, all": proposals(before=-1, after=-1, threshold=0.9, eta=0.8),
    "generate_proposals, not suppressed": proposals(before=-1, threshold=0.0),
    "generate_proposals, none large enough": proposals(least=1000.0),
    "distribute_fpn_proposals": Case(
        lambda b, n: flat(ops.distribute_fpn_proposals(b, 2, 5, 4, 22, rois_num=n)), (boxes(20, size=90), whole(12, 8, dtype="int32"))
    ),
    "distribute_fpn_proposals, elements": Case(
        lambda b, n: flat(ops.distribute_fpn_proposals(b, 3, 4, 3, 20, True, n)), (boxes(6, size=50), whole(0, 4, 2, dtype="int32"))
    ),
    "collect_fpn_proposals": collected(6),
    "collect_fpn_proposals, all": collected(100),
    "bipartite_match": matched(5, 8, "bipartite"),
    "bipartite_match, each": matched(5, 8, "per_prediction"),
    "bipartite_match, more rows": matched(9, 4, "per_prediction"),
    "bipartite_match, many rows": matched(140, 9, "bipartite"),
    "ctc mean": ctc(),
    "ctc none": ctc("none", blank=4, dtype="float64"),
    "ctc sum, by times": ctc("sum", blank=2, norm=True),
    "ctc_align": Case(
        lambda x, n: paddle._C_ops.ctc_align(x, n, 0, True, 9),
        (np.asarray([[0, 1, 1, 0, 2, 2], [3, 0, 3, 3, 1, 1]], "int32"), np.asarray([[6], [4]], "int32")),
    ),
    "prior_box": Case(
        lambda x, i: ops.prior_box(x, i, [4.0, 9.0], [9.0, 16.0], [1.0, 2.0], clip=True, flip=True, min_max_aspect_ratios_order=True),
        (drawn(1, 2, 3, 4), drawn(1, 3, 30, 20)),
    ),
    "prior_box, steps": Case(
        lambda x, i: ops.prior_box(x, i, [4.0, 9.0], [9.0, 16.0], [0.5], steps=[7.0, 5.0], offset=0.3), (drawn(1, 2, 3, 4), drawn(1, 3, 30, 20))
    ),
    "box_coder, encode": Case(lambda p, v, t: ops.box_coder(p, v, t), (boxes(5), drawn(5, 4, low=0.1, high=1), boxes(3, seed=5))),
    "box_coder, decode": Case(lambda p, t: ops.box_coder(p, [0.1, 0.2, 0.3, 0.4], t, "decode_center_size", False, 1), (boxes(5), drawn(5, 3, 4))),
    "box_coder, decode by columns": Case(
        lambda p, v, t: ops.box_coder(p, v, t, "decode_center_size"), (boxes(5), drawn(5, 4, low=0.1, high=1), drawn(3, 5, 4))
    ),
    "yolo_box": yolo_boxes(),
    "yolo_box, overlap": yolo_boxes(aware=True, clip=False, threshold=0.01),
    "yolo_loss": yolo_loss(),
    "yolo_loss, plain": yolo_loss(smooth=False, scale=1.2, scored=False),
    "nms": Case(lambda b: ops.nms(b, 0.3), (boxes(30),)),
    "nms of classes": Case(lambda b, s, c: ops.nms(b, 0.3, s, c, [0, 1, 2], top_k=8), (boxes(30), drawn(30, low=0, high=1), np.arange(30) % 3)),
    "matrix_nms": classes(lambda b, s: ops.matrix_nms(b, s, 0.1, 0.05, 15, 12, return_index=True)),
    "matrix_nms, gaussian": classes(lambda b, s: ops.matrix_nms(b, s, 0.1, 0.3, -1, -1, use_gaussian=True, background_label=-1, normalized=False)),
    "multiclass_nms3": classes(lambda b, s: paddle._C_ops.multiclass_nms3(b, s, None, 0.2, 12, 9, 0.3, True, 1.0, -1)),
    "multiclass_nms3, fading": classes(lambda b, s: paddle._C_ops.multiclass_nms3(b, s, None, 0.1, -1, -1, 0.7, False, 0.9, 0)),
    "multiclass_nms3, nothing": classes(lambda b, s: paddle._C_ops.multiclass_nms3(b, s, None, 2.0, 12, 9, 0.3, True, 1.0, -1)),
    "multiclass_nms3 of regions": Case(
        lambda b, s, n: paddle._C_ops.multiclass_nms3(b, s, n, 0.2, 8, 7, 0.3, True, 1.0, -1),
        (boxes(12, 3), drawn(12, 3, low=0, high=1), whole(7, 5, dtype="int32")),
    ),
    "roi_align": regions(lambda x, b, n: ops.roi_align(x, b, n, (3, 2), spatial_scale=0.9)),
    "roi_align, sampled": regions(lambda x, b, n: ops.roi_align(x, b, n, 2, spatial_scale=1.3, sampling_ratio=2, aligned=False)),
    "roi_pool": regions(lambda x, b, n: ops.roi_pool(x, b, n, (3, 2), spatial_scale=0.9)),
    "psroi_pool": regions(lambda x, b, n: ops.psroi_pool(x, b, n, (3, 2), spatial_scale=0.9), channels=12),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_paddle_s_cpu(name):
    assert_as_on_cpu(CASES[name], rtol=2e-4, atol=2e-5)


REFUSED = {
    "labels beyond the classes": (replaced(ctc(), 1, np.full((3, 4), 5, "int32")), "label"),
    "labels below 0": (replaced(ctc(), 1, np.full((3, 4), -1, "int32")), "label"),
    "more times than there are": (replaced(ctc(), 2, whole(10, 6, 5)), "logits_length"),
    "more labels than there are": (replaced(ctc(), 3, whole(5, 2, 4)), "labels_length"),
    "negative lengths": (replaced(ctc(), 3, whole(-1, 2, 4)), "labels_length"),
    "a blank beyond the classes": (ctc(blank=7), "blank"),
    "classes that are not there": (replaced(yolo_loss(), 2, np.full((2, 3), 4, "int32")), "gt_label"),
    "centres beyond the image": (replaced(yolo_loss(), 1, np.full((2, 3, 4), 1.5, "float32")), "gt_box"),
    "codes of other priors": (replaced(CASES["box_coder, decode"], 1, drawn(4, 3, 4)), "target_box"),
    "regions of images that are not there": (replaced(CASES["roi_align"], 2, whole(3, 9, dtype="int32")), "boxes_num"),
    "fewer regions than boxes": (replaced(CASES["roi_pool"], 2, whole(3, 1, dtype="int32")), "boxes_num"),
    "regions that are no numbers": (replaced(CASES["psroi_pool"], 1, np.full((5, 4), np.nan, "float32")), "boxes"),
    "regions beyond the boxes": (replaced(CASES["multiclass_nms3 of regions"], 2, whole(7, 9, dtype="int32")), "rois_num"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    case, text = REFUSED[name]
    with pytest.raises(ValueError, match=text):
        evaluated(case, "mps")


def test_labels_without_time_have_no_loss():
    case = replaced(replaced(ctc("none"), 2, whole(0, 1, 9)), 3, whole(2, 4, 0))
    loss, gradient = evaluated(Case(case.call, case.arrays, 1), "mps")
    blanks = -(case.arrays[0] - np.log(np.exp(case.arrays[0]).sum(-1, keepdims=True)))[:, 2, 0].sum()
    np.testing.assert_allclose(loss, [0, 0, blanks], rtol=1e-5)
    assert not gradient[:, :2].any()


def test_the_gradient_of_small_aligned_regions_is_that_of_the_values():
    """Paddle's CPU widens them to one element in the gradient alone."""
    x, corners, count = drawn(1, 1, 6, 6, dtype="float64"), np.asarray([[2.2, 2.2, 2.7, 2.6]]), whole(1, dtype="int32")
    case = Case(lambda x, b, n: ops.roi_align(x, b, n, 1), (x, corners, count), 1)
    _, gradient = evaluated(case, "mps")
    weight = weights_of(np.ones((1, 1, 1, 1))).item()
    for place in np.ndindex(6, 6):
        moved = x.copy()
        moved[(0, 0, *place)] += 1.0
        slope = evaluated(replaced(case, 0, moved), "mps")[0] - evaluated(case, "mps")[0]
        np.testing.assert_allclose(gradient[(0, 0, *place)], weight * slope.item(), atol=1e-12)


def recogniser():
    """A line of pictures read by a convolution, a recurrent layer and CTC."""
    convolution, recurrent, head = paddle.nn.Conv2D(1, 4, (8, 3), padding=(0, 1)), paddle.nn.GRU(4, 6), paddle.nn.Linear(6, 5)
    labels, counts = paddle.to_tensor([[1, 2, 0], [3, 4, 4]], "int32"), paddle.to_tensor([2, 3], "int64")

    def loss(pictures):
        columns = F.relu(convolution(pictures)).squeeze(2).transpose([0, 2, 1])
        scores = head(recurrent(columns)[0]).transpose([1, 0, 2])
        return F.ctc_loss(scores, labels, paddle.full([2], scores.shape[0], "int64"), counts)

    return [convolution, recurrent, head], loss, drawn(2, 1, 8, 10)


def detector():
    """A convolution and the head of YOLOv3."""
    first, second = paddle.nn.Conv2D(3, 8, 3, stride=2, padding=1), paddle.nn.Conv2D(8, 27, 1)
    truths = paddle.to_tensor(drawn(2, 3, 4, low=0.1, high=0.8, seed=3))
    labels = paddle.to_tensor([[0, 1, 2], [3, 0, 3]], "int32")

    def loss(pictures):
        return ops.yolo_loss(second(F.relu(first(pictures))), truths, labels, ANCHORS, [0, 1, 2], 4, 0.7, 8).mean()

    return [first, second], loss, drawn(2, 3, 10, 10)


@pytest.mark.parametrize("network", (recogniser, detector))
def test_ten_steps_of_training(network):
    losses = {}
    for device in ("cpu", "mps"):
        paddle.set_device(device)
        layers, loss_of, pictures = network()
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        for number, parameter in enumerate(parameters):
            parameter.set_value(drawn(*parameter.shape, low=-0.4, high=0.4, seed=number))
        optimizer = paddle.optimizer.Momentum(0.01, parameters=parameters)
        losses[device] = []
        for _ in range(10):
            loss = loss_of(paddle.to_tensor(pictures))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses[device].append(float(loss))
    np.testing.assert_allclose(losses["mps"], losses["cpu"], rtol=1e-4)
    assert losses["mps"][-1] < losses["mps"][0]


def test_boxes_of_one_image_are_clipped():
    """Paddle's CPU wants to be told the images by levels of detail."""
    found = paddle._C_ops.box_clip(paddle.to_tensor([[-3.0, 5.0, 70.0, 20.0], [1.0, -2.0, 8.0, 90.0]]), paddle.to_tensor([[40.0, 60.0, 1.25]]))
    np.testing.assert_allclose(found.numpy(), [[0, 5, 47, 20], [1, 0, 8, 31]])
    with pytest.raises(ValueError, match="ImInfo"):
        paddle._C_ops.box_clip(paddle.zeros([2, 4]), paddle.zeros([2, 3]))
