"""The best path of labels, distances of texts, texts of beams, and losses over all ways through a grid or a tree.

On device mps without fallback, beside Paddle's CPU.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F

from beside_cpu import Case, assert_as_on_cpu, drawn, evaluated, replaced, whole


def labels(lengths: np.ndarray, ends: bool, dtype: str = "float32", steps: int = 6) -> Case:
    arrays = (drawn(len(lengths), steps, 5, dtype=dtype), drawn(5, 5, dtype=dtype), lengths)
    return Case(lambda x, t, n: paddle.text.viterbi_decode(x, t, n, ends), arrays)


def random_field(lengths: np.ndarray, with_labels: bool = False) -> Case:
    path = np.random.default_rng(1).integers(0, 4, (len(lengths), 6))

    def call(x, t, path, n):
        return paddle._C_ops.crf_decoding(x, t, path if with_labels else None, n)

    return Case(call, (drawn(len(lengths), 6, 4), drawn(6, 4), path, lengths))


def texts(normalized: bool, left: np.ndarray, right: np.ndarray) -> Case:
    random = np.random.default_rng(2)
    letters = [random.integers(0, 4, (len(left), size)) for size in (7, 5)]
    return Case(lambda a, b, m, n: F.loss.edit_distance(a, b, normalized, None, m, n), (*letters, left, right))


def beams(steps: int, dtype: str = "int64") -> Case:
    random = np.random.default_rng(steps)
    return Case(F.gather_tree, (random.integers(0, 9, (steps, 2, 3)).astype(dtype), random.integers(0, 3, (steps, 2, 3)).astype(dtype)))


def transducer(emphasis: float = 0.0, blank: int = 0, reduction: str = "none", dtype: str = "float32") -> Case:
    """Logarithms of probabilities at 5 times after 0 to 3 labels of 6 classes."""
    label = np.asarray([[1, 2, 3], [3, 3, 1], [4, 1, 1]], "int32")
    label = np.where(label == blank, 5, label).astype("int32")

    def call(x, label, times, counts):
        return F.rnnt_loss(x, label, times, counts, blank, emphasis, reduction)

    return Case(call, (drawn(3, 5, 4, 6, dtype=dtype), label, whole(5, 3, 1, dtype="int32"), whole(3, 2, 0, dtype="int32")), 1)


def tree(classes: int, biased: bool = True, dtype: str = "float32") -> Case:
    def call(x, weight, bias, label):
        return F.hsigmoid_loss(x, label, classes, weight, bias if biased else None)

    label = np.random.default_rng(classes).integers(0, classes, (4, 1))
    return Case(call, (drawn(4, 3, dtype=dtype), drawn(classes - 1, 3, dtype=dtype), drawn(classes - 1, 1, dtype=dtype), label), 3 if biased else 2)


def own_tree() -> Case:
    """Ways of their own, of different lengths."""

    def call(x, weight, bias, label, path, code):
        return F.hsigmoid_loss(x, label, 6, weight, bias, path, code)

    path, code = whole([0, 2, 4], [0, 1, -1], [3, -1, -1], [0, 2, 3]), whole([1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 1])
    return Case(call, (drawn(4, 3), drawn(6, 3), drawn(6, 1), whole([0], [1], [2], [3]), path, code), 3)


def rounded(case: Case) -> Case:
    """With scores of which many are equal."""
    return Case(case.call, (np.round(case.arrays[0]), np.round(case.arrays[1]), *case.arrays[2:]))


CASES = {
    "viterbi_decode": labels(whole(6, 3, 1, 5), False),
    "viterbi_decode, ends": labels(whole(6, 3, 1, 5), True),
    "viterbi_decode, float64": labels(whole(2, 4), True, "float64"),
    "viterbi_decode, shorter than there is room": labels(whole(2, 4), False),
    "viterbi_decode, one step": labels(whole(1), True, steps=1),
    "viterbi_decode, ties": rounded(labels(whole(6, 3, 2), False)),
    "crf_decoding": random_field(whole(6, 2, 4)),
    "crf_decoding, labels": random_field(whole(6, 2, 4), True),
    "edit_distance": texts(False, whole(7, 3, 0, 5), whole(5, 2, 4, 0)),
    "edit_distance, normalized": texts(True, whole(7, 3, 0), whole(5, 2, 4)),
    "rnnt_loss": transducer(),
    "rnnt_loss, labels count more": transducer(0.1),
    "rnnt_loss, another blank": transducer(0.01, 4, "mean"),
    "rnnt_loss, float64": transducer(dtype="float64", reduction="sum"),
    "hsigmoid_loss": tree(6),
    "hsigmoid_loss, two classes": tree(2),
    "hsigmoid_loss, without a bias": tree(8, False),
    "hsigmoid_loss, float64": tree(11, dtype="float64"),
    "hsigmoid_loss, a tree of its own": own_tree(),
    "gather_tree": beams(5),
    "gather_tree, one step": beams(1),
    "gather_tree, int32": beams(4, "int32"),
}


@pytest.mark.parametrize("name", CASES)
def test_as_on_paddle_s_cpu(name):
    assert_as_on_cpu(CASES[name], rtol=1e-4, atol=1e-6)


REFUSED = {
    "more steps than there are": (labels(whole(7, 3), False), "lengths"),
    "lengths of other sequences": (replaced(labels(whole(2, 3), False), 2, whole(2, 3, 1)), "Length"),
    "more letters than there are": (texts(False, whole(8, 3), whole(5, 2)), "hyps"),
    "distances from nothing": (texts(True, whole(7, 3), whole(5, 0)), "refs"),
    "classes beyond the probabilities": (replaced(transducer(), 1, np.full((3, 3), 6, "int32")), "label"),
    "more times than there are": (replaced(transducer(), 2, whole(6, 3, 1, dtype="int32")), "input_lengths"),
    "a blank beyond the classes": (transducer(blank=6), "blank"),
    "classes beyond the tree": (replaced(tree(6), 3, np.full((4, 1), 6)), "label"),
    "beams that are not there": (replaced(beams(4), 1, np.full((4, 2, 3), 3)), "parents"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    case, text = REFUSED[name]
    with pytest.raises(ValueError, match=text):
        evaluated(case, "mps")
