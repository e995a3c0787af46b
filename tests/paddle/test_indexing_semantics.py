"""Indexing, ranges and sizes: values, gradients and kinds of exceptions are those of Paddle's CPU device."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest


def ar(*shape, dtype="float32"):
    return paddle.to_tensor(np.arange(int(np.prod(shape))).reshape(shape).astype(dtype))


def t(values, dtype=None):
    return paddle.to_tensor(values, dtype=dtype)


def put(x, index, value):
    x[index] = value
    return x


def weighed(out):
    return (out * (ar(*out.shape) % 7 + 1).astype(out.dtype)).sum()


def gradients(function, *leaves):
    """The value of a function and the gradients of its leaves."""
    leaves = [leaf() + 1 for leaf in leaves]
    for leaf in leaves:
        leaf.stop_gradient = False
    out = function(*leaves)
    weighed(out).backward()
    return [out, *[leaf.grad for leaf in leaves]]


def put_gradients(x, index, value):
    def assigned(x, *values):
        y = x * 1
        y[index()] = values[0] if values else value
        return y

    return gradients(assigned, x, value) if callable(value) else gradients(assigned, x)


def on_both(case):
    """What a case gives on Paddle's CPU and on this device: lists of arrays, or a kind of exception."""

    def outcome():
        try:
            result = case()
        except Exception as error:
            return type(error)
        parts = result if isinstance(result, (list, tuple)) else [result]
        return [np.asarray(part.astype("float32") if part.dtype == paddle.bfloat16 else part) for part in parts]

    here = outcome()
    paddle.device.set_device("cpu")
    try:
        return here, outcome()
    finally:
        paddle.mps.set_device(0)


def same(here, there):
    if isinstance(here, type) or isinstance(there, type):
        return here is there
    equal = [
        a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, rtol=1e-6, equal_nan=True)
        for a, b in zip(here, there, strict=True)
    ]
    return all(equal)


def check(cases):
    """Every case that is not the same on both devices, in one report."""
    outcomes = {name: on_both(case) for name, case in cases.items()}
    different = [f"{name}: mps {here}, cpu {there}" for name, (here, there) in outcomes.items() if not same(here, there)]
    assert not different, "\n".join(different)


S = slice(None)
PUTS = [
    # shape, index, value
    ([5], 3, 5),
    ([5], -1, 5.0),
    ([5], 3, [1.0]),
    ([5], 5, 1),
    ([5], slice(1, 3), 5),
    ([5], slice(None, None, -1), list(range(5))),
    ([5], slice(None, None, -2), [1, 2, 3]),
    ([5], slice(3, 0, -2), 7),
    ([5], slice(4, 1), 7),
    ([5], slice(2, 2), 1.0),
    ([5], slice(1, 3), [0.0, 0.0, 0.0]),
    ([5], 3, [1.0, 2.0]),
    ([5], 3, float("nan")),
    ([2, 3], 1, 5),
    ([2, 3], (1, 2), 5),
    ([2, 3], (1, 2), [[1.0]]),
    ([2, 3], (1, 2), [1.0, 2.0]),
    ([2, 3], (S, 1), [1.0, 2.0]),
    ([2, 3], (None, 1), 5),
    ([2, 3], (1, None), [[0.0, 1.0, 2.0]]),
    ([2, 3], (S, None, 1), [[1.0], [2.0]]),
    ([2, 3], (None, None, 1, None), 5),
    ([2, 3], (..., 1), [1.0, 2.0]),
    ([2, 3], (0, 1, 2), 1),
    ([2, 3, 4], (0, 1, 1), 5),
    ([2, 3, 4], (0, S, None, 1), [[0.0], [1.0], [2.0]]),
    ([2, 3, 4], (None, 0, S, None, 1), [[[0.0], [1.0], [2.0]]]),
    ([2, 3, 4], (S, slice(0, 2)), np.arange(8.0).reshape(1, 1, 2, 1, 4).tolist()),
    ([5], [1, 3], 5),
    ([5], [True, False, True, False, False], 5),
    ([4, 3], (S, [0, 2]), np.arange(8.0).reshape(4, 2).tolist()),
    ([4, 3], ([[0], [2]], [0, 1]), [[1.0, 2.0], [3.0, 4.0]]),
]


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_assignments_by_index(dtype):
    def case(shape, index, value):
        def run():
            given = t(value, dtype) if isinstance(value, list) else value
            return put(paddle.zeros(shape, dtype), index, given)

        return run

    check({f"zeros({shape})[{index}] = {value}": case(shape, index, value) for shape, index, value in PUTS})


def test_assignments_that_overlap():
    def whole(index, value):
        def run():
            x = ar(4, 4)
            x[index] = value(x)
            return x

        return run

    cases = {
        "rows down": whole(slice(1, None), lambda x: x[:-1]),
        "rows up": whole(slice(None, -1), lambda x: x[1:]),
        "columns": whole((S, slice(1, None)), lambda x: x[:, :-1]),
        "reverse": whole(slice(None, None, -1), lambda x: x),
        "from reverse": whole(S, lambda x: x[::-1]),
        "transpose": whole(S, lambda x: x.t()),
        "swap": whole(([0, 1],), lambda x: x[[1, 0]]),
        "into a row": lambda: (lambda x: [put(x[1], 2, 9), x])(ar(3, 4)),
        "into a column": lambda: (lambda x: [put(x[:, 1], 2, 9), x])(ar(3, 4)),
        "into a transpose": lambda: (lambda x: [put(x.t(), (2, 1), 9), x])(ar(3, 4)),
        "into a reshape": lambda: (lambda x: [put(x.reshape([4, 3]), (1, 1), 9), x])(ar(12)),
    }
    check(cases)


def test_assignments_that_paddle_s_cpu_gets_wrong():
    """What it reads while it writes, writes beyond a view, or refuses."""
    x = ar(4, 4)
    x[t([1, 2, 3])] = x[:3]
    assert x.numpy().tolist() == np.arange(16.0).reshape(4, 4)[[0, 0, 1, 2]].tolist()
    x = t([2, 0, 1])
    x[x] = x[0]
    assert x.numpy().tolist() == [2, 2, 2]
    for index, value in [((..., [-1]), -5.0), (([0, 1],), 7.0), ((S, [0, 2]), 8.0), (([True, False],), 9.0)]:
        for view in [lambda a: a[1:7:3], lambda a: a.T[1:3] if isinstance(a, np.ndarray) else a.t()[1:3]]:
            x, expected = ar(7, 3), np.arange(21.0).reshape(7, 3)
            for given in (value, None):
                part = view(expected)[index]
                put(view(expected), index, np.arange(part.size).reshape(part.shape) if given is None else given)
                given = ar(*part.shape) if given is None else given
                put(view(x), tuple(t(i) if isinstance(i, list) else i for i in index), given)
                assert x.numpy().tolist() == expected.tolist(), index
    for index in (..., (), None):
        assert [put(paddle.zeros([], dtype), index, 5).item() for dtype in ("int64", "bfloat16")] == [5, 5]
    y = ar(2, 3, 4)
    y.stop_gradient = False
    weighed(paddle.t(y[1])[t([1, 3])]).backward()
    assert y.grad.numpy()[1].tolist() == [[0, 1, 0, 4], [0, 2, 0, 5], [0, 3, 0, 6]]


def test_indices_that_are_views():
    """As `position_ids[:, -1:]` is: columns and transposes of integers, whose elements do not follow each other."""
    ids = ar(4, 6, dtype="int64")
    table, other = ar(24, 5), ar(24, 4)
    views = {"last column": lambda: ids[:, -1:], "column": lambda: ids[:, 2], "transpose": lambda: ids.t(), "steps": lambda: ids[::2, ::3]}
    cases = {}
    for name, view in views.items():
        # The transpose has as many elements as it broadcasts to rows of four.
        for of in (table, other):
            cases[f"x[{name}], {of.shape}"] = lambda of=of, view=view: of[view()]
            cases[f"x[:, {name}], {of.shape}"] = lambda of=of, view=view: of.t()[:, view()]
            cases[f"x[{name}] = y, {of.shape}"] = lambda of=of, view=view: put(of * 1, view(), -1.0)
            cases[f"gradient of x[{name}], {of.shape}"] = lambda of=of, view=view: gradients(lambda x: x[view()], lambda: of * 1)
            cases[f"gradient of x[{name}] = y, {of.shape}"] = lambda of=of, view=view: put_gradients(lambda: of * 1, view, 3.0)
    check(cases)


def test_assignments_beside_a_slice_of_a_permuted_view():
    """Where the selection begins is told by the strides of the view, and the result is laid out in another way."""
    order, each = [2, 3, 1, 4, 0], slice(None)
    base = np.arange(108, dtype="float32").reshape(3, 2, 3, 3, 2)
    for index in (([-1, 2, 0], each, -1), ([2, 0], each, each, -1), (each, [1], slice(1, 2)), ([1], slice(2, None, -1), each, 1), (each, 2, [0, 1])):
        expected = base.transpose(order).copy()
        values = -1 - np.arange(expected[index].size, dtype="float32").reshape(expected[index].shape)
        for value in (values, -1.0):
            x = t(base).transpose(order)
            expected[index] = value
            x[index] = t(value) if value is values else value
            assert x.numpy().tolist() == expected.tolist(), index


def test_of_an_index_that_comes_twice_the_last_value_has_the_gradient():
    for values, expected in (([5.0], [10.0]), ([5.0, 6.0], [0.0, 10.0])):
        y, value = ar(3), t(values)
        value.stop_gradient = False
        y[t([1, 1])] = value
        (y * t([1.0, 10.0, 100.0])).sum().backward()
        assert value.grad.numpy().tolist() == expected
    x = ar(3)
    x[t([], "int64")] = 1.0
    assert x.numpy().tolist() == ar(3).numpy().tolist()


def test_gradients_of_assignments():
    x, y = lambda: ar(5), lambda: ar(2, 3, 4)
    scalar, one = lambda: t(1.0), lambda: ar(1)
    cases = [
        (x, lambda: 3, 5.0),
        (x, lambda: 3, scalar),
        (x, lambda: 3, one),
        (x, lambda: slice(None, None, -2), lambda: ar(3)),
        (x, lambda: slice(2, 2), 2.0),
        (x, lambda: slice(1, 3), one),
        (y, lambda: (0, 1, 2), 5.0),
        (y, lambda: (S, None, 1), lambda: ar(2, 1, 4)),
        (y, lambda: (..., 1), scalar),
        (x, lambda: t([1, 3]), lambda: ar(2)),
        (y, lambda: (S, t([0, 2])), lambda: ar(2, 4)),
        (x, lambda: ar(5) > 1, lambda: ar(3)),
        (lambda: t(2.0), lambda: ..., 3.0),
    ]
    check({f"{n}": lambda case=case: put_gradients(*case) for n, case in enumerate(cases)})
    # Paddle's CPU reads a value of too many leading axes beyond its end.
    _, _, gradient = put_gradients(y, lambda: ..., lambda: ar(1, 1, 1, 4))
    assert gradient.numpy().ravel().tolist() == (np.arange(24) % 7 + 1).reshape(6, 4).sum(0).tolist()
    assert put_gradients(y, lambda: (0, S, None, 1), lambda: ar(3, 1))[2].numpy().tolist() == [[2], [6], [3]]
    assert put_gradients(lambda: t(2.0), lambda: ..., scalar)[2].item() == 1


LABELS = {
    "cross_entropy -1": lambda: F.cross_entropy(ar(2, 3), t([-1, 0])),
    "cross_entropy 3": lambda: F.cross_entropy(ar(2, 3), t([3, 0])),
    "cross_entropy ignored": lambda: F.cross_entropy(ar(2, 3), t([-1, 0]), ignore_index=-1),
    "cross_entropy weight": lambda: F.cross_entropy(ar(2, 3), t([-1, 0]), weight=ar(3)),
    "cross_entropy axis": lambda: F.cross_entropy(ar(2, 3, 2), t([[1, 2], [0, 3]]), axis=1),
    "cross_entropy probabilities": lambda: F.cross_entropy(ar(2, 3), t([1, -2]), use_softmax=False),
    "nll_loss -1": lambda: F.nll_loss(ar(2, 3), t([-1, 0])),
    "nll_loss 3": lambda: F.nll_loss(ar(2, 3), t([3, 0])),
    "nll_loss all ignored": lambda: F.nll_loss(ar(2, 3), t([-100, -100])),
    "one_hot -1": lambda: F.one_hot(t([-1]), 5),
    "one_hot 5": lambda: F.one_hot(t([5]), 5),
}
INDICES = {
    "embedding 5": lambda: F.embedding(t([0, 5]), ar(4, 3)),
    "embedding -5": lambda: F.embedding(t([0, -5]), ar(4, 3)),
    "embedding type": lambda: F.embedding(t([0.0]), ar(4, 3)),
    "embedding_grad -1": lambda: paddle._C_ops.embedding_grad(t([0, -1]), ar(4, 3), ar(2, 3), -1, False),
    "embedding_grad 4": lambda: paddle._C_ops.embedding_grad(t([0, 4]), ar(4, 3), ar(2, 3), -1, False),
    "index_sample -1": lambda: paddle.index_sample(ar(2, 3), t([[-1], [0]])),
    "index_sample 3": lambda: paddle.index_sample(ar(2, 3), t([[3], [0]])),
    "gather 4": lambda: paddle.gather(ar(4, 2), t([0, 4])),
    "gather -5": lambda: paddle.gather(ar(4, 2), t([0, -5])),
    "gather -1": lambda: paddle.gather(ar(4, 2), t([0, -1])),
    "gather_nd 2": lambda: paddle.gather_nd(ar(4, 2), t([[3, 2]])),
    "gather_nd none": lambda: ar(5)[[]],
    "index_select 4": lambda: paddle.index_select(ar(4, 2), t([4])),
    "take_along_axis 4": lambda: paddle.take_along_axis(ar(4, 2), t([[4, 1]]), 0),
    "put_along_axis 4": lambda: paddle.put_along_axis(ar(4, 2), t([[4, 1]]), 9.0, 0),
    "scatter 4": lambda: paddle.scatter(ar(4, 2), t([0, 4]), ar(2, 2)),
    "scatter sum -5": lambda: paddle.scatter(ar(4, 2), t([0, -5]), ar(2, 2), overwrite=False),
    "scatter_nd_add 4": lambda: paddle.scatter_nd_add(ar(4, 2), t([[0, 1], [4, 1]]), ar(2)),
    "index_add 4": lambda: paddle.index_add(ar(4, 2), t([0, 4]), 0, ar(2, 2)),
    "take 8": lambda: paddle.take(ar(4, 2), t([0, 8])),
}


def test_indices_and_labels_out_of_range():
    check(LABELS | INDICES)


def test_what_paddle_s_cpu_reads_out_of_bounds_is_an_error():
    refused = {
        IndexError: [
            lambda: ar(5)[t([5])],
            lambda: put(ar(5), t([1, -6]), 5),
            lambda: paddle.index_put(ar(4, 2), [t([0, 4])], t(9.0)),
            lambda: paddle.zeros([0, 3])[t([0])],
            lambda: paddle.gather(paddle.zeros([0, 2]), t([0])),
        ],
        ValueError: [lambda: F.embedding(t([0, -1]), ar(4, 3)), lambda: paddle.argmax(paddle.zeros([0, 3]))],
    }
    for kind, cases in refused.items():
        for case in cases:
            with pytest.raises(kind):
                case()
    with pytest.raises(IndexError, match=r"label -1 at position 0 is outside 0\.\.3"):
        F.cross_entropy(ar(2, 3), t([-1, 0]))


REDUCTIONS = ["assign", "add", "mul", "mean", "amin", "amax"]


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients_of_put_along_axis(reduce):
    def case(index, value, include_self):
        def run():
            index_tensor = t(index)
            function = lambda x, v: paddle.put_along_axis(x, index_tensor, v, 0, reduce, include_self)
            return gradients(function, lambda: ar(4, 2), value)

        return run

    # Values that are not the tensor's own: Paddle's CPU counts these as ties where they do not count.
    cases = {
        f"{index} {include_self}": case(index, value, include_self)
        for include_self in (True, False)
        for index, value in [
            ([[0, 1], [0, 1]], lambda: ar(2, 2) * 2 + 0.5),
            ([[0, 0], [2, 1]], lambda: ar(2, 2) - 1.5),
            ([[3, 0], [3, 1]], lambda: ar(2, 2) * 0 + 0.5),
        ]
    }
    check(cases)


def test_a_product_s_gradient_at_zeros():
    def function(x, v):
        return paddle.put_along_axis(x, t([[0, 1], [0, 1]]), v, 0, "mul", True)

    x, v = lambda: t([[1.0, -1.0], [2.0, 3.0]]), lambda: t([[-1.0, 1.0], [2.0, -1.0]])
    _, dx, dv = gradients(function, x, v)
    # x + 1 is [[2, 0], [3, 4]], v + 1 is [[0, 2], [3, 0]]; the weights are 1, 2, 3, 4.
    assert dx.numpy().tolist() == [[0, 2], [3, 0]]
    assert dv.numpy().tolist() == [[6, 0], [0, 32]]


def test_more_values_than_indices():
    function = lambda x, v: paddle.put_along_axis(x, t([[1]]), v, 0, "add", True, False)
    out, dx, dv = gradients(function, lambda: ar(4, 2), lambda: ar(2, 2))
    assert out.numpy()[1, 0] == 4 and dx.numpy()[1, 0] == 3
    assert dv.numpy().tolist() == [[3, 0], [0, 0]]


HUGE = {
    "tile": lambda: paddle.tile(ar(2), [2**62]),
    "tile twice": lambda: paddle.tile(ar(2, 3), [2**33, 2**33]),
    "expand": lambda: paddle.expand(ar(1), [2**62]),
    "full": lambda: paddle.full([2**62], 1.0),
    "full twice": lambda: paddle.full([2**33, 2**33], 1.0),
    "one_hot": lambda: F.one_hot(t([1]), 2**60),
    "one_hot of a smaller number": lambda: F.one_hot(t([1]), 2**44),
    "uniform": lambda: paddle.uniform([2**62]),
    "randint": lambda: paddle.randint(0, 5, [2**62]),
    "normal": lambda: paddle.standard_normal([2**62]),
    "arange": lambda: paddle.arange(0, 1, 1e-300, dtype="float64"),
    "eye": lambda: paddle.eye(2**40),
    "repeat_interleave": lambda: paddle.repeat_interleave(ar(2**15), 2**31 - 1),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_that_no_memory_holds(name):
    with pytest.raises((MemoryError, ValueError, RuntimeError)):
        HUGE[name]()
    assert paddle.ones([2]).sum().item() == 2


def test_arguments_without_meaning():
    cases = {
        "clip": lambda: paddle.clip(ar(3), 2.0, 1.0),
        "clip nan": lambda: paddle.clip(ar(3), float("nan"), 1.0),
        "clip int": lambda: paddle.clip(ar(3, dtype="int64"), 2, 1),
        "bernoulli 2": lambda: paddle.bernoulli(paddle.full([2], 2.0)),
        "bernoulli -1": lambda: paddle.bernoulli(paddle.full([2], -1.0)),
        "bernoulli nan": lambda: paddle.bernoulli(paddle.full([2], float("nan"))),
        "bernoulli 0": lambda: paddle.bernoulli(paddle.zeros([3])),
        "bernoulli 1": lambda: paddle.bernoulli(paddle.ones([3])),
        "multinomial of zeros": lambda: paddle.multinomial(paddle.zeros([3])),
        "multinomial of nothing": lambda: paddle.multinomial(paddle.zeros([0])),
        "multinomial -1": lambda: paddle.multinomial(paddle.to_tensor([0.5, -1.0])),
        "multinomial nan": lambda: paddle.multinomial(paddle.to_tensor([0.5, float("nan")])),
        "multinomial inf": lambda: paddle.multinomial(paddle.to_tensor([0.5, float("inf")])),
        "multinomial, too many": lambda: paddle.multinomial(paddle.to_tensor([0.0, 1.0]), 2),
        "multinomial, none": lambda: paddle.multinomial(paddle.to_tensor([0.0, 1.0]), 0),
        "multinomial of 3 dimensions": lambda: paddle.multinomial(paddle.ones([1, 1, 3])),
        "randperm": lambda: paddle.randperm(-1),
        "randint": lambda: paddle.randint(0, 5, [-1]),
        "randint bounds": lambda: paddle.randint(5, 2),
        "randn": lambda: paddle.randn([-1]),
        "uniform": lambda: paddle.uniform([-2]),
        "linspace": lambda: paddle.linspace(0, 1, -1),
        "full": lambda: paddle.full([-2, 3], 1.0),
    }
    check(cases)
    assert paddle.arange(-(2**63), 2**63 - 1, 2**60).shape == [16]
