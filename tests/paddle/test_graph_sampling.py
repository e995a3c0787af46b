"""Neighbours of nodes, sampled and numbered anew, on device mps without fallback: all of them as Paddle's CPU, some of them by their law."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

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


def test_more_weights_than_edges_do_not_matter_but_fewer_do():
    paddle.set_device("mps")
    row, places, nodes = paddle.to_tensor([1, 2, 0]), paddle.to_tensor([0, 2, 3, 3]), paddle.to_tensor([0, 1])
    neighbours, counts = paddle.geometric.weighted_sample_neighbors(row, places, paddle.ones([4]), nodes, 2)
    assert (neighbours.tolist(), counts.tolist()) == ([1, 2, 0], [2, 1])
    with pytest.raises(ValueError, match=r"edge_weight is \[2\], expected at least 3 elements"):
        paddle.geometric.weighted_sample_neighbors(row, places, paddle.ones([2]), nodes, 2)


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


def test_neighbours_of_several_types_of_edges_are_numbered_as_on_the_cpu():
    def run(device):
        paddle.set_device(device)
        nodes, of_type = paddle.to_tensor([0, 1, 2]), [paddle.to_tensor([8, 9, 0, 4, 7, 6, 7]), paddle.to_tensor([0, 2, 3, 5, 1])]
        counts = [paddle.to_tensor(each, dtype="int32") for each in ([2, 3, 2], [1, 3, 1])]
        return [part.numpy() for part in paddle.geometric.reindex_heter_graph(nodes, of_type, counts)]

    for mine, theirs in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_is_refused():
    row, places = paddle.to_tensor(ROW), paddle.to_tensor(PLACES)
    with pytest.raises(ValueError, match="nodes 0 to 9"):
        paddle.geometric.sample_neighbors(row, places, paddle.to_tensor(np.asarray([10])))
    with pytest.raises(ValueError, match="count"):
        paddle.geometric.reindex_graph(paddle.to_tensor([0]), paddle.to_tensor([3, 4]), paddle.to_tensor([1], dtype="int32"))


def hops(device: str, sizes: list[int], nodes: np.ndarray, named: bool = True) -> list[np.ndarray]:
    paddle.set_device(device)
    row, places, nodes, names = [paddle.to_tensor(array) for array in (ROW, PLACES, nodes, NAMES)]
    found = paddle.incubate.graph_khop_sampler(row, places, nodes, sizes, names if named else None, named)
    return [part.numpy() for part in found]


def test_one_round_of_all_neighbours_is_that_of_the_cpu():
    for nodes in (NODES, np.asarray([5, 0])):
        for own, other in zip(hops("mps", [100], nodes), hops("cpu", [100], nodes), strict=True):
            np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("sizes", [[100, 100], [100, 100, 100], [1, 2], [2, 1, 1]])
def test_neighbours_of_neighbours(sizes):
    """Of later rounds Paddle's CPU asks as many nodes as the first had, whichever these are."""
    source, target, every, own, names = hops("mps", sizes, NODES)
    assert len(set(every)) == len(every)
    np.testing.assert_array_equal(every[own], NODES)
    edges = {(int(ROW[edge]), node, int(NAMES[edge])) for node in range(10) for edge in range(PLACES[node], PLACES[node + 1])}
    found = [(int(every[s]), int(every[t]), int(name)) for s, t, name in zip(source[:, 0], target[:, 0], names, strict=True)]
    assert len(set(found)) == len(found) and set(found) <= edges
    # Round by round: each node is asked once, and gives as many edges as it has and as are wanted.
    asked, seen, expected = list(NODES), set(NODES), 0
    for size in sizes:
        counts = [min(size, int(PLACES[node + 1] - PLACES[node])) for node in asked]
        part, expected = found[expected : expected + sum(counts)], expected + sum(counts)
        assert [sum(target == node for _, target, _ in part) for node in asked] == counts
        asked = sorted({source for source, _, _ in part} - seen)
        seen |= set(asked)
    assert expected == len(found)


def test_nodes_without_neighbours_are_refused():
    with pytest.raises(ValueError, match="neighbor"):
        hops("mps", [2], np.asarray([7]))


def samples(device: str, negatives: list[int], positive: bool, dtype: str = "int64") -> list[np.ndarray]:
    """Of a tree with 2, 4 and 8 nodes on its layers, and 6 items of which one ends a layer above."""
    paddle.set_device(device)
    ways = np.asarray([[1, 3, 7], [1, 3, 8], [1, 4, 9], [2, 5, 11], [2, 6, 14], [2, 6, 0]])
    layers = np.arange(1, 15)[:, None]
    items, ways, layers = [paddle.to_tensor(array.astype(dtype)) for array in (np.asarray([[0], [3], [5]]), ways, layers)]
    found = paddle._C_ops.tdm_sampler(items, ways, layers, positive, negatives, [0, 2, 6, 14], 1, 2 if dtype == "int32" else 3)
    return [part.numpy().reshape(3, -1) for part in found]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("negatives", "positive"), [([1, 3, 7], False), ([1, 3, 7], True), ([1, 2, 4], False), ([1, 2, 4], True), ([0, 0, 0], True)])
def test_samples_of_a_tree_s_layers(negatives, positive, dtype):
    ours, theirs = samples("mps", negatives, positive, dtype), samples("cpu", negatives, positive, dtype)
    # Labels and masks follow from the ways; which others are drawn does not.
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other)
    nodes, labels, mask = ours
    np.testing.assert_array_equal(nodes[labels == 1], theirs[0][theirs[1] == 1])
    assert (nodes[mask == 0] == 0).all()
    bounds, at = [(1, 2), (3, 6), (7, 14)], 0
    for (first, last), count in zip(bounds, negatives, strict=True):
        width = count + positive
        for row in range(3):
            drawn = nodes[row, at : at + width][mask[row, at : at + width] == 1]
            assert len(set(drawn)) == len(drawn) and all(first <= node <= last for node in drawn)
        at += width
    if negatives == [1, 3, 7]:
        np.testing.assert_array_equal(np.sort(nodes, 1), np.sort(theirs[0], 1))
