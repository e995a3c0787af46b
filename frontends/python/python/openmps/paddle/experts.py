"""``global_scatter`` and ``global_gather``, by which ``MoELayer`` exchanges rows between the ranks of experts, on device ``mps``.

Paddle's kernels of these ask the device's context for a communicator that it gives to kernels of NVIDIA's GPUs alone; on a plug-in's device
that ends the process. Here the same rows go by ``alltoall_single`` of the group.
"""

from __future__ import annotations

import functools

from openmps.paddle.embedding import is_on_mps


def install(paddle) -> None:
    """Takes the two operators over for tensors of the device."""
    operators = paddle._legacy_C_ops
    if not hasattr(operators, "global_scatter"):
        return
    moved = _moved(paddle)
    for name, scatters in (("global_scatter", True), ("global_gather", False)):
        _wrap(paddle, operators, name, functools.partial(moved, scatters))


def _wrap(paddle, operators, name: str, ours) -> None:
    original = getattr(operators, name)

    @functools.wraps(original)
    def exchange(rows, local_count, global_count, *named):
        if not is_on_mps(paddle, rows):
            return original(rows, local_count, global_count, *named)
        attributes = dict(zip(named[::2], named[1::2]))
        return ours(rows, local_count.flatten().tolist(), global_count.flatten().tolist(), attributes.get("ring_id", 0))

    setattr(operators, name, exchange)


def _moved(paddle):
    """The exchange, whose gradient is the exchange the other way."""

    class Exchange(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, rows, scatters, local_count, global_count, group):
            ctx.arguments = not scatters, local_count, global_count, group
            return _move(paddle, rows, *ctx.arguments[1:], scatters=scatters)

        @staticmethod
        def backward(ctx, gradient):
            scatters, *arguments = ctx.arguments
            return _move(paddle, gradient, *arguments, scatters=scatters)

    def moved(scatters, rows, local_count, global_count, ring):
        from paddle.distributed.collective import _get_group_map

        return Exchange.apply(rows, scatters, local_count, global_count, _get_group_map()[ring])

    return moved


def _move(paddle, rows, local_count: list[int], global_count: list[int], group, *, scatters: bool):
    """A rank has the rows for each rank together, and for each of its experts one after the other. An expert has the rows of all ranks together."""
    experts = len(local_count) // group.nranks
    sums = [[sum(counts[begin : begin + experts]) for begin in range(0, len(counts), experts)] for counts in (local_count, global_count)]
    sent, received = sums if scatters else reversed(sums)
    order = _by_expert(global_count, experts)
    if not scatters:
        inverse = sorted(range(len(order)), key=order.__getitem__)
        rows = _ordered(paddle, rows, inverse)
    into = paddle.empty([sum(received), *rows.shape[1:]], rows.dtype)
    paddle.distributed.alltoall_single(into, rows.contiguous(), sent, received, group=group)
    return _ordered(paddle, into, order) if scatters else into


def _by_expert(counts: list[int], experts: int) -> list[int]:
    """Which of the rows that came rank by rank is the first, second, .. of those expert by expert."""
    begins = [sum(counts[:block]) for block in range(len(counts))]
    blocks = [block for expert in range(experts) for block in range(expert, len(counts), experts)]
    return [begins[block] + row for block in blocks for row in range(counts[block])]


def _ordered(paddle, rows, order: list[int]):
    if order == list(range(len(order))):
        return rows
    return paddle.index_select(rows, paddle.to_tensor(order, "int64"))
