"""Errors: Python exceptions with facts, and a process that goes on."""

import paddle
import pytest


def test_out_of_memory_is_an_exception():
    with pytest.raises(MemoryError, match="(?i)out of memory"):
        paddle.full([1 << 44], 1.0, dtype="float32")
    assert paddle.full([4], 3.0).numpy().tolist() == [3.0] * 4


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match="(?i)broadcast"):
        paddle.ones([2, 3]) + paddle.ones([4, 5])


def test_a_window_larger_than_the_padded_image_is_refused():
    """Paddle's CPU gives an empty image, or a part of the sum."""
    with pytest.raises(ValueError, match="at least as large as the kernel"):
        paddle.nn.functional.conv2d(paddle.ones([1, 3, 2, 2]), paddle.ones([4, 3, 3, 3]))
    assert paddle.nn.functional.conv2d(paddle.ones([0, 3, 4, 4]), paddle.ones([4, 3, 3, 3])).shape == [0, 4, 2, 2]


def test_a_missing_kernel_says_so():
    with pytest.raises(RuntimeError, match="not registered"):
        paddle.nn.quant.apply_per_channel_scale(paddle.ones([4, 4], dtype="float16"), paddle.ones([4], dtype="float16"))


def test_an_error_of_a_kernel_carries_its_facts():
    shape = paddle.to_tensor([2, -3], dtype="int32")
    with pytest.raises((ValueError, RuntimeError), match="-3"):
        paddle._C_ops.full([2, -3], 1.0, paddle.float32, paddle.MPSPlace(0))
    assert shape.numpy().tolist() == [2, -3]


def test_errors_do_not_leak_into_later_work():
    for _ in range(50):
        with pytest.raises(MemoryError):
            paddle.full([1 << 44], 1.0)
        assert paddle.zeros([2]).numpy().tolist() == [0.0, 0.0]
    paddle.mps.synchronize()


def test_a_kernel_s_error_is_delivered_once():
    with pytest.raises(Exception, match="index 9 at position 1 is outside -4..4"):
        paddle.gather(paddle.ones([4, 2]), paddle.to_tensor([0, 9]))
    paddle.mps.synchronize()
    assert paddle.ones([2]).sum().item() == 2


def test_an_unsupported_element_type_is_named():
    with pytest.raises(Exception, match="cast: device mps has no element type float8_e4m3fn"):
        paddle.to_tensor([1.0, 2.0]).astype("float8_e4m3fn")
    with pytest.raises(Exception, match="complex64"):
        paddle.exp(paddle.to_tensor([1.0 + 2.0j]))
    assert paddle.ones([2]).sum().item() == 2


def test_a_label_of_another_type_is_named():
    with pytest.raises(Exception, match="labels of float32"):
        paddle._C_ops.cross_entropy_with_softmax(paddle.ones([2, 3]), paddle.ones([2, 1]), False, True, True, -100, -1)


def test_a_range_that_leads_away_from_its_end():
    with pytest.raises(Exception, match="end is 1, expected what steps of 1 reach from 4"):
        paddle.range(4, 1, 1, dtype="int64")


@pytest.mark.parametrize("name", ["fusion_seqpool_concat", "fusion_seqpool_cvm_concat", "attention_lstm"])
def test_sequences_without_levels_are_refused(name):
    """Paddle's CPU, to which these fall back, reads levels that are not there."""
    x, ones = paddle.ones([4, 6]), paddle.ones
    arguments = {
        "fusion_seqpool_concat": ([x, x], "SUM", 1),
        "fusion_seqpool_cvm_concat": ([x, x], ones([2, 2]), "SUM", True, 1),
        "attention_lstm": (x, ones([2, 3]), None, ones([9, 1]), None, None, None, ones([9, 12]), ones([1, 12]), "sigmoid", "tanh", "tanh"),
    }[name]
    paddle.set_flags({"FLAGS_enable_api_kernel_fallback": True})
    try:
        with pytest.raises(ValueError, match=rf"{name}: x of shape \[4, 6\] has no levels of detail"):
            getattr(paddle._C_ops, name)(*arguments)
    finally:
        paddle.set_flags({"FLAGS_enable_api_kernel_fallback": False})
