"""Neighbours of nodes, sampled and numbered anew, on device mps without fallback: all of them as Paddle's CPU, some of them by their law."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

# A fallback must never pass for a kernel of ours.
paddle.set_flags({"FLAGS_enable_api_kernel_fallback": False})

ROW = np.asarray([3, 7, 0, 9, 1, 4, 2, 9, 3, 9, 1, 9, 7])
PLACES = np.asarray([0, 2, 4, 5, 6, 7, 9, 11, 11, 13, 13])
NODES = np.asarray([0, 8, 1, 2, 7])
NAMES = np.arange(100, 100 + len(ROW))


def sampled(device: str, size: int = -1, weighted: bool = False, dtype: str = "int64") -> list[np.ndarray]:
    paddle.set_device(device)
    row, places, nodes, names = [paddle.to_tensor(array.astype(dtype)) for array in (ROW, PLACES, NODES, NAMES)]
    if weighted:
        weights = paddle.to_tensor(np.linspace(0.1, 2, len(ROW)).astype("float32"))
        found = paddle.geometric.weighted_sample_neighbors(row, places, weights, nodes, size, names, True)
    else:
        found = paddle.geometric.sample_neighbors(row, places, nodes, size, names, True)
    return [part.numpy() for part in found]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_neighbours_are_those_of_the_cpu(weighted, dtype):
    # Of -1, which is all of them, Paddle's CPU ends the process.
    theirs = sampled("cpu", 100, weighted, dtype)
    for size in (100, -1):
        for own, other in zip(sampled("mps", size, weighted, dtype), theirs, strict=True):
            assert own.dtype == other.dtype
            np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("weighted", [False, True])
def test_some_neighbours_are_different_edges_of_their_node(weighted):
    paddle.seed(1)
    seen = set()
    for _ in range(40):
        neighbours, counts, names = sampled("mps", 1, weighted)
        np.testing.assert_array_equal(counts, np.minimum(PLACES[NODES + 1] - PLACES[NODES], 1))
        np.testing.assert_array_equal(neighbours, ROW[names - 100])
        for node, name in zip(NODES[counts > 0], names - 100, strict=True):
            assert PLACES[node] <= name < PLACES[node + 1]
            seen.add(int(name))
    # Every edge of these nodes comes at some time.
    assert seen == {edge for node in NODES for edge in range(PLACES[node], PLACES[node + 1])}


def test_heavy_edges_come_more_often():
    paddle.seed(2)
    row, places = paddle.to_tensor(np.arange(2)), paddle.to_tensor(np.asarray([0, 2]))
    weights, node = paddle.to_tensor(np.asarray([0.25, 0.75], "float32")), paddle.to_tensor(np.zeros(1, "int64"))
    first = [int(paddle.geometric.weighted_sample_neighbors(row, places, weights, node, 1)[0][0]) for _ in range(400)]
    assert 0.65 < np.mean(first) < 0.85


def test_nodes_are_numbered_as_on_the_cpu():
    def run(device):
        paddle.set_device(device)
        nodes, neighbours = paddle.to_tensor(np.asarray([0, 1, 2])), paddle.to_tensor(np.asarray([8, 9, 0, 4, 7, 6, 7]))
        found = paddle.geometric.reindex_graph(nodes, neighbours, paddle.to_tensor(np.asarray([2, 3, 2], "int32")))
        return [part.numpy() for part in found]

    for mine, theirs in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_is_refused():
    row, places = paddle.to_tensor(ROW), paddle.to_tensor(PLACES)
    with pytest.raises(ValueError, match="nodes 0 to 9"):
        paddle.geometric.sample_neighbors(row, places, paddle.to_tensor(np.asarray([10])))
    with pytest.raises(ValueError, match="count"):
        paddle.geometric.reindex_graph(paddle.to_tensor([0]), paddle.to_tensor([3, 4]), paddle.to_tensor([1], dtype="int32"))
