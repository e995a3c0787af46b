"""Paddle's MoELayer with two experts on each rank: its losses and weights are those of the same experts, applied to each row by hand; and
`global_scatter` gives what its documentation says, its gradient what `global_gather` gives back."""

import numpy
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed.models.moe.utils import _prune_gate_by_capacity as prune
from paddle.distributed.utils import moe_utils
from paddle.incubate.distributed.models.moe import MoELayer
from parallel_networks import weights

STEPS, ROWS, WIDTH, EXPERTS = 20, 16, 8, 2


def expert(number):
    layer = nn.Linear(WIDTH, WIDTH)
    layer.weight.set_value(weights(f"expert {number}", [WIDTH, WIDTH]))
    layer.bias.set_value(numpy.zeros(WIDTH, "float32"))
    return layer


def batch(rank):
    return paddle.to_tensor(numpy.random.RandomState(rank).uniform(-1, 1, [ROWS, WIDTH]).astype("float32"))


def losses_of_layer(rank, ranks, gate):
    layer = MoELayer(WIDTH, nn.LayerList([expert(rank * EXPERTS + index) for index in range(EXPERTS)]),
                     gate={"type": "naive", "top_k": 2}, moe_group=dist.new_group(list(range(ranks))))
    layer.gate.gate.weight.set_value(gate)
    layer.gate.gate.bias.set_value(numpy.zeros(EXPERTS * ranks, "float32"))
    own = [it for index in range(EXPERTS) for it in layer.experts[index].parameters()]
    optimizer, rows = paddle.optimizer.SGD(2.0, parameters=own), batch(rank)
    for _ in range(STEPS):
        loss = ((layer(rows.reshape([1, ROWS, WIDTH])).reshape([ROWS, WIDTH]) - paddle.sin(3 * rows)) ** 2).sum() / (ROWS * ranks)
        loss.backward()
        optimizer.step()
        layer.clear_gradients()
        dist.all_reduce(loss)
        yield float(loss)


def losses_of_one_rank(ranks, gate):
    experts = [expert(number) for number in range(EXPERTS * ranks)]
    optimizer = paddle.optimizer.SGD(2.0, parameters=[it for layer in experts for it in layer.parameters()])
    rows = paddle.concat([batch(rank) for rank in range(ranks)])
    value, chosen = (rows @ paddle.to_tensor(gate)).topk(2)
    for _ in range(STEPS):
        made = paddle.stack([layer(rows) for layer in experts], 1)
        mask = nn.functional.one_hot(chosen, len(experts))
        result = ((mask * value.unsqueeze(-1)).sum(1).unsqueeze(-1) * made).sum(1)
        loss = ((result - paddle.sin(3 * rows)) ** 2).sum() / (ROWS * ranks)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield float(loss)


def exchange(rank, ranks, group):
    """Rank r has r + e + 1 rows for expert e of each rank; a row says whence and whither it goes."""
    rows = [[rank, to, index, row] for to in range(ranks) for index in range(EXPERTS) for row in range(rank + index + 1)]
    come = [[of, rank, index, row] for index in range(EXPERTS) for of in range(ranks) for row in range(of + index + 1)]
    local = paddle.to_tensor([rank + index + 1 for _ in range(ranks) for index in range(EXPERTS)], "int64")
    coming = paddle.to_tensor([of + index + 1 for of in range(ranks) for index in range(EXPERTS)], "int64")
    given = paddle.to_tensor(rows, "float32", stop_gradient=False)
    arrived = moe_utils.global_scatter(given, local, coming, group=group)
    assert arrived.tolist() == come, (arrived.tolist(), come)
    assert moe_utils.global_gather(arrived, local, coming, group=group).tolist() == rows
    (arrived * arrived).sum().backward()
    assert given.grad.tolist() == (2 * given).tolist()


def gates(rank, ranks):
    """The other gates drop rows where an expert has no place left, or draw; every row that is kept comes back."""
    kept = prune(paddle.to_tensor([0, 1, 1, 1, 2, 3, -1, 0], "int64"), paddle.to_tensor([1, 2, 1, 0], "int64"), 2, 2)
    assert kept.tolist() == [0, 1, 1, -1, 2, -1, -1, -1], kept.tolist()
    group = dist.new_group(list(range(ranks)))
    for kind, top_k in (("gshard", 2), ("switch", 1)):
        identities = nn.LayerList([nn.Identity() for _ in range(EXPERTS)])
        layer = MoELayer(WIDTH, identities, gate={"type": kind, "top_k": top_k}, moe_group=group)
        rows = batch(rank).reshape([1, ROWS, WIDTH])
        rows.stop_gradient = False
        # Of experts that change nothing a row's result is a multiple of the row, none where it was dropped.
        result = layer(rows * 1)
        result.sum().backward()
        factors = result.numpy() / rows.numpy()
        numpy.testing.assert_allclose(factors, numpy.broadcast_to(factors[..., :1], factors.shape), rtol=1e-4, atol=1e-6)
        assert (factors > 0).any() and numpy.isfinite(rows.grad.numpy()).all()


dist.init_parallel_env()
rank, ranks = dist.get_rank(), dist.get_world_size()
exchange(rank, ranks, None)
gates(rank, ranks)
exchange(rank, ranks, dist.new_group(list(range(ranks))))
gate = weights("gate", [WIDTH, EXPERTS * ranks])
found, expected = list(losses_of_layer(rank, ranks, gate)), list(losses_of_one_rank(ranks, gate))
assert expected[-1] < expected[0] / 2, expected
numpy.testing.assert_allclose(found, expected, rtol=1e-4)
print("passed", flush=True)
