"""A mixture of experts, one expert a rank: rows go to the rank of their expert and come back, and so do gradients. The losses are those of all
experts on one rank."""

import numpy
import paddle
import paddle.distributed as dist
from paddle import nn
from parallel_networks import weights

STEPS, ROWS, WIDTH = 20, 16, 8


class Exchange(paddle.autograd.PyLayer):
    """Sends so many rows to each rank, and gets so many from each."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.counts = sent, received
        return Exchange.move(rows, sent, received)

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.move(gradient, *reversed(ctx.counts))

    @staticmethod
    def move(rows, sent, received):
        into = paddle.empty([sum(received), rows.shape[1]], rows.dtype)
        dist.alltoall_single(into, rows, sent, received)
        return into


def expert(number):
    layer = nn.Linear(WIDTH, WIDTH)
    layer.weight.set_value(weights(f"expert {number}", [WIDTH, WIDTH]))
    layer.bias.set_value(numpy.zeros(WIDTH, "float32"))
    return layer


def batch(rank, ranks):
    """A rank's rows, and to which expert each goes: some get many, some none."""
    random = numpy.random.RandomState(rank)
    return random.uniform(-1, 1, [ROWS, WIDTH]).astype("float32"), random.randint(0, ranks, ROWS) ** 2 // ranks


def one_rank(ranks):
    experts = [expert(number) for number in range(ranks)]
    optimizer = paddle.optimizer.SGD(0.3, parameters=[it for layer in experts for it in layer.parameters()])
    for _ in range(STEPS):
        total = 0.0
        for rank in range(ranks):
            rows, goes_to = batch(rank, ranks)
            for number in range(ranks):
                some = paddle.to_tensor(rows[goes_to == number])
                if len(some):
                    total = total + ((experts[number](some) - paddle.sin(3 * some)) ** 2).sum() / (ROWS * ranks)
        total.backward()
        optimizer.step()
        optimizer.clear_grad()
        yield float(total)


def many_ranks(rank, ranks):
    own = expert(rank)
    optimizer = paddle.optimizer.SGD(0.3, parameters=own.parameters())
    rows, goes_to = batch(rank, ranks)
    order = numpy.argsort(goes_to, kind="stable")
    sent = numpy.bincount(goes_to, minlength=ranks).tolist()
    every = []
    dist.all_gather_object(every, sent)
    received = [counts[rank] for counts in every]
    rows = paddle.to_tensor(rows[order])
    for _ in range(STEPS):
        # Whoever's rows they are, they count: an input that wants a gradient keeps the way back the same on all ranks.
        leaving = rows.detach()
        leaving.stop_gradient = False
        arrived = Exchange.apply(leaving, sent, received)
        returned = Exchange.apply(own(arrived) if len(arrived) else arrived, received, sent)
        loss = ((returned - paddle.sin(3 * rows)) ** 2).sum() / (ROWS * ranks)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        dist.all_reduce(loss)
        yield float(loss)


dist.init_parallel_env()
found = list(many_ranks(dist.get_rank(), dist.get_world_size()))
expected = list(one_rank(dist.get_world_size()))
assert expected[-1] < expected[0] / 2, expected
numpy.testing.assert_allclose(found, expected, rtol=1e-5)
print("passed", flush=True)
