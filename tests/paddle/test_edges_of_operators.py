"""What operators do at the edges of what they are given, beside Paddle's CPU."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest


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
