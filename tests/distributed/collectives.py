"""Every collective of `paddle.distributed` on device `mps`, against what each must give. One rank of several: `launch` starts it."""

import numpy
import paddle
import paddle.distributed as dist

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
#: What `all_reduce` does, and on numbers.
REDUCTIONS = {
    "SUM": lambda values: sum(values),
    "MAX": lambda values: numpy.maximum.reduce(values),
    "MIN": lambda values: numpy.minimum.reduce(values),
    "PROD": lambda values: numpy.multiply.reduce(values),
}


def numbers(rank, count=6):
    return (numpy.arange(count) * 7 + rank * 3) % 5


def tensor(values, kind="float32"):
    values = numpy.asarray(values, dtype="complex64" if kind == "complex64" else "float32")
    return paddle.to_tensor(values) if kind == "complex64" else paddle.to_tensor(values).astype(kind)


def check(got, expected, what):
    got = (got if "complex" in str(got.dtype) else got.astype("float64")).numpy()
    assert numpy.array_equal(got, numpy.asarray(expected).astype(got.dtype)), f"{what}: {got}, expected {expected}"


def reductions(rank, ranks):
    for kind in TYPES:
        for name, reduce in REDUCTIONS.items():
            if kind == "complex64" and name in ("MAX", "MIN"):
                continue
            every = [numbers(other) for other in range(ranks)]
            if kind == "bool":
                every = [values > 1 for values in every]
                every = [values.astype("int64") for values in every]
            expected = reduce(every)
            if kind == "bool":
                expected = expected > 0
            value = tensor(every[rank], kind)
            dist.all_reduce(value, op=getattr(dist.ReduceOp, name))
            check(value, expected, f"all_reduce {name} of {kind}")
            value = tensor(every[rank], kind)
            dist.reduce(value, dst=1, op=getattr(dist.ReduceOp, name))
            if rank == 1:
                check(value, expected, f"reduce {name} of {kind}")
    for kind in ("float16", "float32", "float64"):
        value = tensor(numbers(rank), kind)
        dist.all_reduce(value, op=dist.ReduceOp.AVG)
        check(value, sum(numbers(other) for other in range(ranks)) / ranks, f"all_reduce AVG of {kind}")
    value = tensor(numbers(rank))
    dist.stream.all_reduce(value, op=dist.ReduceOp.SUM, sync_op=False, use_calc_stream=False).wait()
    check(value, sum(numbers(other) for other in range(ranks)), "all_reduce, waited for")


def movements(rank, ranks):
    every = [numbers(other) for other in range(ranks)]
    for kind in TYPES[1:]:
        value = tensor(every[rank], kind)
        dist.broadcast(value, src=ranks - 1)
        check(value, every[-1], f"broadcast of {kind}")
        # A list of tensors is a matter of Paddle's own kernels, which lack some types; one tensor is not.
        gathered = tensor(numpy.zeros(6 * ranks), kind)
        dist.stream.all_gather(gathered, tensor(every[rank], kind))
        check(gathered, numpy.concatenate(every), f"all_gather of {kind}")
    gathered = []
    dist.all_gather(gathered, tensor(every[rank]))
    for other, value in enumerate(gathered):
        check(value, every[other], "all_gather into a list")
    rows = tensor([numbers(rank * ranks + other) for other in range(ranks)])
    own = tensor(numpy.zeros(6))
    dist.reduce_scatter(own, [rows[other] for other in range(ranks)])
    check(own, sum(numbers(other * ranks + rank) for other in range(ranks)), "reduce_scatter")
    parts = []
    dist.alltoall(parts, [rows[other] for other in range(ranks)])
    for other, value in enumerate(parts):
        check(value, numbers(other * ranks + rank), "alltoall")
    whole = paddle.zeros([ranks, 6]).astype("float32")
    dist.alltoall_single(whole, rows)
    check(whole, [numbers(other * ranks + rank) for other in range(ranks)], "alltoall_single")
    # Parts of different sizes: rank r sends rank s r + s + 1 rows.
    counts = [rank + other + 1 for other in range(ranks)]
    uneven = tensor(numpy.full([sum(counts), 3], rank))
    received = paddle.zeros([sum(counts), 3]).astype("float32")
    dist.alltoall_single(received, uneven, counts, counts)
    check(received, numpy.repeat(numpy.arange(ranks), counts)[:, None].repeat(3, 1), "alltoall_single, uneven")
    own = tensor(numpy.zeros(6))
    dist.scatter(own, [tensor(numbers(10 + other)) for other in range(ranks)] if rank == 1 else None, src=1)
    check(own, numbers(10 + rank), "scatter")
    gathered = []
    dist.gather(tensor(every[rank]), gathered, dst=0)
    for other, value in enumerate(gathered):
        check(value, every[other], "gather")
    objects = []
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank + 1)})
    assert objects == [{"rank": other, "text": "x" * (other + 1)} for other in range(ranks)], objects
    dist.barrier()


def messages(rank, ranks):
    following, previous = (rank + 1) % ranks, (rank - 1) % ranks
    value = tensor(numpy.zeros(6))
    if rank % 2 == 0:
        dist.send(tensor(numbers(rank)), dst=following)
        dist.recv(value, src=previous)
    else:
        dist.recv(value, src=previous)
        dist.send(tensor(numbers(rank)), dst=following)
    check(value, numbers(previous), "send and recv")
    # Larger than what is on its way between two ranks at a time: both send first.
    large, coming = tensor(numpy.full(3 << 20, rank)), tensor(numpy.zeros(3 << 20))
    tasks = dist.batch_isend_irecv([dist.P2POp(dist.isend, large, following), dist.P2POp(dist.irecv, coming, previous)])
    for task in tasks:
        task.wait()
    check(coming, numpy.full(3 << 20, previous), "batch_isend_irecv")
    sent = dist.isend(tensor(numbers(rank)), dst=following)
    received = dist.irecv(value, src=previous)
    sent.wait()
    received.wait()
    check(value, numbers(previous), "isend and irecv")


def groups(rank, ranks):
    """Several communicators at once, of which each has some of the ranks."""
    everyone, alone = dist.new_group(list(range(ranks))), [dist.new_group([other]) for other in range(ranks)][rank]
    for _ in range(3):
        value = tensor(numbers(rank))
        dist.all_reduce(value, group=everyone)
        dist.all_reduce(value, group=alone)
        dist.broadcast(value, src=0)
        check(value, sum(numbers(other) for other in range(ranks)), "groups")
    if ranks < 4:
        return  # Paddle refuses a group of one rank for what follows.
    # Two halves that work at once, and the ranks of the same place in both.
    halves = [list(range(ranks))[: ranks // 2], list(range(ranks))[ranks // 2 :]]
    across = [[members[place] for members in halves] for place in range(ranks // 2)]
    for layout in (halves, across):
        made = [(dist.new_group(members), members) for members in layout]
        group, members = next(it for it in made if rank in it[1])
        for kind in TYPES[1:]:
            value = tensor(numbers(rank), kind)
            dist.all_reduce(value, group=group)
            check(value, sum(numbers(other) for other in members), f"all_reduce of {kind} in {members}")
            gathered = tensor(numpy.zeros(6 * len(members)), kind)
            dist.stream.all_gather(gathered, tensor(numbers(rank), kind), group=group)
            check(gathered, numpy.concatenate([numbers(other) for other in members]), f"all_gather of {kind} in {members}")
        value = tensor(numbers(rank))
        dist.broadcast(value, src=members[-1], group=group)
        check(value, numbers(members[-1]), f"broadcast in {members}")


def main():
    dist.init_parallel_env()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for part in (reductions, movements, messages, groups):
        part(rank, ranks)
        print(f"rank {rank}: {part.__name__} passed", flush=True)
    # Rank 0 serves the store of which the others take the names of their groups: it stays until the last of them has one.
    dist.barrier()
    dist.destroy_process_group()


main()
