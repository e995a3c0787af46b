"""SyncBatchNorm on ranks with batches of different sizes: results, running statistics and gradients are those of one batch norm over all rows,
computed in float64 on Paddle's CPU."""

import numpy
import paddle
import paddle.distributed as dist
from paddle import nn

EPSILON = 1e-5


def batch(rank, shape, offset):
    random = numpy.random.RandomState(rank)
    return [random.uniform(-1, 1, [2 + rank, *shape]) * wide + far for wide, far in ((2, offset), (1, 0))]


def network(kind, channels, form):
    layer = kind(channels, data_format=form)
    layer.weight.set_value(numpy.linspace(0.5, 2, channels).astype("float32"))
    layer.bias.set_value(numpy.linspace(-1, 1, channels).astype("float32"))
    return layer


def expected(ranks, shape, form, offset, dtype):
    """Of all rows on the CPU: the result, the gradients, the running statistics."""
    x, upstream = (numpy.concatenate(parts) for parts in zip(*(batch(rank, shape, offset) for rank in range(ranks))))
    channels = shape[0] if form == "NCHW" else shape[-1]
    numbers = [paddle.to_tensor(values, place=paddle.CPUPlace()) for values in
               (numpy.zeros(channels), numpy.ones(channels), numpy.linspace(0.5, 2, channels), numpy.linspace(-1, 1, channels))]
    x = paddle.to_tensor(x.astype(dtype).astype("float64"), place=paddle.CPUPlace(), stop_gradient=False)
    for weight in numbers[2:]:
        weight.stop_gradient = False
    y = nn.functional.batch_norm(x, *numbers, training=True, epsilon=EPSILON, data_format=form)
    (y * paddle.to_tensor(upstream.astype(dtype).astype("float64"), place=paddle.CPUPlace())).sum().backward()
    return [value.numpy() for value in (y, x.grad, numbers[2].grad, numbers[3].grad, numbers[0], numbers[1])]


def check(rank, ranks, shape, form, offset=0, dtype="float32", tolerance=1e-5):
    layer = network(nn.SyncBatchNorm, shape[0] if form == "NCHW" else shape[-1], form)
    x, upstream = (paddle.to_tensor(values.astype(dtype)) for values in batch(rank, shape, offset))
    x.stop_gradient = False
    y = layer(x)
    (y * upstream).astype("float32").sum().backward()
    # Gradients of weights are each rank's own.
    for weight in (layer.weight, layer.bias):
        dist.all_reduce(weight.grad)
    assert y.dtype == x.dtype
    rows = slice(sum(2 + other for other in range(rank)), sum(2 + other for other in range(rank + 1)))
    whole = expected(ranks, shape, form, offset, dtype)
    found = (y, x.grad, layer.weight.grad, layer.bias.grad, layer._mean, layer._variance)
    for index, (one, other) in enumerate(zip(found, whole)):
        other = other[rows] if index < 2 else other
        numpy.testing.assert_allclose(one.numpy(), other, rtol=tolerance, atol=tolerance * max(1, abs(other).max()), err_msg=str(index))
    layer.eval()
    alone = network(nn.BatchNorm2D, len(layer._mean), form)
    alone.set_state_dict(layer.state_dict())
    alone.eval()
    if len(shape) == 3:
        numpy.testing.assert_array_equal(layer(x.detach()).numpy(), alone(x.detach()).numpy())


dist.init_parallel_env()
rank, ranks = dist.get_rank(), dist.get_world_size()
check(rank, ranks, [3, 5, 7], "NCHW")
check(rank, ranks, [5, 7, 3], "NHWC")
check(rank, ranks, [4], "NCHW")
# Far from zero, where a difference of averages of squares would have lost all digits.
check(rank, ranks, [3, 9, 9], "NCHW", offset=1000, tolerance=2e-3)
check(rank, ranks, [3, 5, 7], "NCHW", dtype="float16", tolerance=2e-3)
print("passed", flush=True)
