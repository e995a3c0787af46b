"""What operators do at the edges of what they are given, beside Paddle's CPU."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

NAN = float("nan")


def on(device: str, function):
    paddle.set_device(device)
    try:
        return function()
    finally:
        paddle.set_device("mps")


def same(function) -> None:
    for got, expected in zip(on("mps", function), on("cpu", function), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_the_smaller_median_has_one_place():
    def run(x):
        x = paddle.to_tensor(x, stop_gradient=False)
        paddle.median(x, -1, mode="min")[0].sum().backward()
        return (x.grad.numpy(),)

    same(lambda: run([1.0, 2, 2, 5]))
    same(lambda: run([[4.0, 2, 7, 5], [1, 9, 3, 8]]))


@pytest.mark.parametrize("function", [paddle.median, paddle.nanmedian], ids=["median", "nanmedian"])
@pytest.mark.parametrize("numbers", [[1.0, 1, 2], [1.0, 2, 2, 5], [[4.0, 2, 2], [1, 9, 2]]], ids=["three", "four", "two lines"])
def test_the_smaller_median_of_all_is_divided_among_its_equals(function, numbers):
    def run():
        x = paddle.to_tensor(numbers, stop_gradient=False)
        found = function(x, mode="min")
        found.backward()
        return [found.numpy(), x.grad.numpy()]

    same(run)


@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        (paddle.nanmedian, [[NAN, NAN], [1.0, 2.0]]),
        (paddle.nanmedian, [[NAN, 3.0, 1.0], [NAN, NAN, NAN]]),
        (paddle.nanmedian, [[NAN, NAN], [NAN, NAN]]),
        (paddle.median, [[3.0, NAN, 1.0, NAN, 2.0], [5.0, 4.0, 3.0, 2.0, 1.0]]),
        (paddle.median, [[NAN, NAN, NAN]]),
        (paddle.median, [[2.0, 3.0, 1.0, NAN]]),
    ],
)
def test_the_place_of_the_smaller_median_where_there_is_no_number(function, numbers):
    def run():
        x = paddle.to_tensor(numbers, stop_gradient=False)
        found, place = function(x, axis=1, mode="min")
        found.sum().backward()
        return [found.numpy(), place.numpy(), x.grad.numpy()]

    same(run)


@pytest.mark.parametrize("hermitian", [False, True])
def test_a_rank_without_an_absolute_bound_takes_what_rounding_leaves(hermitian):
    ones = np.ones([3, 4, 5, 5])
    bounds = np.array([[0.0] * 4, [10.0] * 4, [10.0, 0, 10, 0]])

    def run():
        x = paddle.to_tensor(ones)
        return [paddle.linalg.matrix_rank(x, hermitian=hermitian, atol=atol).numpy() for atol in (0.0, paddle.to_tensor(bounds))]

    same(run)


@pytest.mark.parametrize(("shape", "masks"), [([3], [2, 3]), ([2, 1], [2, 3]), ([2, 1, 3], [4, 1]), ([2, 3], [3])])
def test_the_gradient_of_a_selection_is_summed_over_what_was_repeated(shape, masks):
    mask = np.arange(np.prod(masks)).reshape(masks) % 3 != 1

    def run():
        x = paddle.ones(shape)
        x.stop_gradient = False
        selected = paddle.masked_select(x, paddle.to_tensor(mask))
        (selected * paddle.arange(1, selected.size + 1, dtype="float32")).sum().backward()
        return [selected.numpy(), x.grad.numpy()]

    same(run)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("pads", [[1, 1, 1, 1], [0, 2, 1, 0]])
def test_a_pad_of_complex_numbers(dtype, pads):
    def run():
        x = paddle.to_tensor(np.array([[1 + 2j, 3j, -1], [4, 5j, 6 - 1j]], dtype), stop_gradient=False)
        padded = F.pad(x, pads, value=7.0)
        paddle.as_real(padded).sum().backward()
        return [padded.numpy(), x.grad.numpy()]

    same(run)


@pytest.mark.parametrize("sizes", [[[40.0, 40, 0.5], [30.0, 30, 0.5]], [[40.0, 40], [30.0, 30]]])
def test_proposals_of_images_with_a_scale(sizes):
    drawn = np.random.default_rng(3)
    scores, deltas, anchors = (drawn.random(shape, "float32") for shape in ([2, 3, 4, 4], [2, 12, 4, 4], [4, 4, 3, 4]))
    anchors = np.concatenate([anchors[..., :2] * 10, anchors[..., 2:] * 20 + 10], -1)

    def run():
        tensors = [paddle.to_tensor(array) for array in (scores, deltas, np.array(sizes, "float32"), anchors, np.ones_like(anchors))]
        found = paddle.vision.ops.generate_proposals(*tensors, pre_nms_top_n=10, post_nms_top_n=5, return_rois_num=True)
        return [result.numpy() for result in found]

    same(run)


def test_gumbel_softmax_of_one_score():
    def run(hard):
        x = paddle.to_tensor(0.5, stop_gradient=False)
        chosen = F.gumbel_softmax(x, hard=hard)
        chosen.backward()
        return [chosen.numpy(), x.grad.numpy()]

    same(lambda: run(True))
    same(lambda: run(False))


@pytest.mark.parametrize("accumulate", [False, True])
def test_a_mask_that_selects_nothing_asks_for_no_shape_of_the_value(accumulate):
    def run():
        x, value = paddle.ones([4, 2]), paddle.ones([2, 1])
        x.stop_gradient = value.stop_gradient = False
        put = paddle.index_put(x, (paddle.zeros([4], "bool"),), value, accumulate)
        put.sum().backward()
        return [put.numpy(), x.grad.numpy(), value.grad.numpy()]

    same(run)
    with pytest.raises(ValueError, match="broadcast"):
        paddle.index_put(paddle.ones([4, 2]), (paddle.zeros([0], "int64"),), paddle.ones([2, 1]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_rates_below_zero_count_nothing(dtype):
    counts = paddle.poisson(paddle.to_tensor([-0.5, 0.0, float("-inf"), 50.0], dtype=dtype)).numpy()
    assert counts[:3].tolist() == [0, 0, 0] and counts[3] > 0


REFUSED = {
    "temperature is -1": lambda: F.gumbel_softmax(paddle.ones([3]), temperature=-1.0),
    "temperature is 0": lambda: F.gumbel_softmax(paddle.ones([3]), temperature=0.0),
    "reduction is 3": lambda: paddle.incubate.identity_loss(paddle.ones([2]), 3),
    "reduction is -1": lambda: paddle.incubate.identity_loss(paddle.ones([2]), -1),
    r"input is \[1\]": lambda: paddle.metric.accuracy(paddle.rand([1]), paddle.zeros([1, 1], "int64")),
    r"inputs is \[3, 1\]": lambda: paddle.meshgrid(paddle.ones([3, 1]), paddle.ones([2])),
    r"is \(-1e308, 1e308\)": lambda: paddle.histogram(paddle.to_tensor([-1e308, 1e308], dtype="float64"), bins=2),
    r"is \(-3.*e38, 3.*e38\)": lambda: paddle.histogram(paddle.to_tensor([-3e38, 3e38]), bins=2),
    "num is 0": lambda: paddle.logspace(0, 1, 0),
    "num is -2": lambda: paddle.logspace(0, 1, -2),
    'repeats is "float32"': lambda: paddle.repeat_interleave(paddle.ones([2, 3]), paddle.to_tensor([0.0, 1.0, 0.0]), 1),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused_is_named(words):
    with pytest.raises(ValueError, match=words):
        REFUSED[words]()


@pytest.mark.parametrize("steps", [[3.0, 0.0], [0.0, 2.0], [0.0, 0.0], [3.0, 2.0]])
def test_boxes_of_priors_with_one_step(steps):
    same(lambda: [paddle.vision.ops.prior_box(paddle.ones([1, 3, 4, 5]), paddle.ones([1, 3, 20, 25]), [2.0], steps=steps)[0].numpy()])


def test_labels_of_padding_may_be_anything():
    def yolo():
        boxes = paddle.to_tensor([[[0.3, 0.4, 0.2, 0.2], [0, 0, 0, 0.0]]])
        labels = paddle.to_tensor([[1, -1]], dtype="int32")
        return [paddle.vision.ops.yolo_loss(paddle.ones([1, 14, 3, 3]), boxes, labels, [10, 13, 16, 30], [0, 1], 2, 0.5, 8).numpy()]

    def transducer():
        labels, times, counts = (paddle.to_tensor(numbers, dtype="int32") for numbers in ([[1, -1]], [4], [1]))
        return [F.rnnt_loss(paddle.ones([1, 4, 3, 5]), labels, times, counts).numpy()]

    same(yolo)
    same(transducer)
    with pytest.raises(ValueError, match="label is -1"):
        labels, times, counts = (paddle.to_tensor(numbers, dtype="int32") for numbers in ([[1, -1]], [4], [2]))
        F.rnnt_loss(paddle.ones([1, 4, 3, 5]), labels, times, counts)


@pytest.mark.parametrize("repeats", [[2], [1, 1], [1, 1, 1, 1, 1]])
def test_repeats_are_one_for_each_element(repeats):
    with pytest.raises(ValueError, match="expected a number for each of 4 elements"):
        paddle.repeat_interleave(paddle.ones([4, 2]), paddle.to_tensor(repeats), 0)


def test_pads_that_take_away_more_than_there_is_and_pads_of_nothing():
    same(lambda: [F.pad(paddle.ones([1, 1, 3]), [3, -5], mode="constant", value=7.0).numpy()])
    same(lambda: [F.pad(paddle.ones([1, 1, 3]), [-5, 4], mode="constant", value=7.0).numpy()])
    same(lambda: [F.pad(paddle.zeros([0, 3, 4, 4]), [1, 1, 1, 1], mode="reflect").numpy()])


def test_a_transposed_convolution_of_no_channels_is_zero():
    F.conv2d(paddle.ones([1, 3, 8, 8]), paddle.ones([4, 3, 3, 3]))  # memory with something in it
    same(lambda: [F.conv2d_transpose(paddle.zeros([1, 0, 2, 2]), paddle.zeros([0, 2, 2, 2]), paddle.ones([2])).numpy()])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [([3, 0], 1), ([0, 3], 0), ([2, 0, 2], -2)], ids=str)
def test_the_largest_of_an_axis_of_nothing_are_no_numbers(shape, axis, largest):
    def run():
        x = paddle.zeros(shape)
        x.stop_gradient = False
        values, indices = paddle.topk(x, 1, axis=axis, largest=largest)
        values.sum().backward()
        return [values.numpy(), indices.numpy(), x.grad.numpy()]

    same(run)
    with pytest.raises(ValueError, match="k is 1, expected at most 0"):
        paddle.topk(paddle.zeros(shape, "int64"), 1, axis=axis)


@pytest.mark.parametrize("largest", [True, False])
def test_of_equals_the_first_ones_are_the_largest(largest):
    x = paddle.to_tensor([[1.0, 2, 2, 1, 2, 1]])
    values, indices = paddle.topk(x, 4, largest=largest)
    assert indices.numpy().tolist() == [[1, 2, 4, 0] if largest else [0, 3, 5, 1]]
    assert values.numpy().tolist() == [[2, 2, 2, 1] if largest else [1, 1, 1, 2]]
    assert paddle.topk(paddle.ones([200]), 3)[1].numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("place", [-1, 16])
@pytest.mark.parametrize("step", ["forward", "backward"])
def test_a_place_outside_of_the_image_is_named(place, step):
    places = paddle.to_tensor([[[[place, 3], [0, 5]]]], dtype="int32")
    x = paddle.ones([1, 1, 2, 2])
    with pytest.raises(ValueError, match=f"indices is {place}, expected places 0 to 15"):
        if step == "forward":
            F.max_unpool2d(x, places, 2)
        else:
            paddle._C_ops.unpool_grad(x, places, x, paddle.ones([1, 1, 4, 4]), [2, 2], [2, 2], [0, 0], [4, 4], "NCHW")
