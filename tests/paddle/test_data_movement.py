"""Kernels that move, choose, order and draw elements: device mps against Paddle's CPU, without falling back to it."""

import numpy as np
import paddle
import pytest

FLOATS = ["float32", "float64"]
TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
NUMBERS = TYPES[1:]


def values(shape, dtype, seed=0):
    numbers = np.random.default_rng(seed).integers(-3 if not dtype.startswith(("u", "b")) or dtype == "bfloat16" else 0, 8, shape)
    return numbers.astype("bool" if dtype == "bool" else "float64")


def tensor(array, dtype, place, layout="dense"):
    """Made on the CPU, so that no kernel besides the copy is needed."""
    with _place(CPU):
        if layout == "transposed":
            return paddle.to_tensor(np.ascontiguousarray(array.T)).astype(dtype)._copy_to(place, True).T
        if layout == "stepped":
            return paddle.to_tensor(np.repeat(array, 2, axis=-1)).astype(dtype)._copy_to(place, True)[..., ::2]
        return paddle.to_tensor(array).astype(dtype)._copy_to(place, True)


class _place:
    """Makes a place the default one for a while."""

    def __init__(self, place):
        self.name = "cpu" if isinstance(place, paddle.CPUPlace) else "mps"

    def __enter__(self):
        self.before = paddle.device.get_device()
        paddle.device.set_device(self.name)

    def __exit__(self, *_):
        paddle.device.set_device(self.before)


MPS = paddle.CustomPlace("mps", 0)
CPU = paddle.CPUPlace()


def flat(results):
    if isinstance(results, (list, tuple)):
        return [leaf for result in results for leaf in flat(result)]
    return [results]


def numbers(result):
    array = result.numpy()
    if result.dtype == paddle.bfloat16:
        array = (array.astype("uint32") << 16).view("float32")
    return array


def check(function, *arrays, dtype="float32", layout="dense", gradient=False, index=(), expected_dtype=None):
    """Runs a function on both places and compares its results, and gradients where asked."""
    outcomes = []
    for place in (MPS, CPU):
        with _place(place):
            dtype = expected_dtype or dtype if place is CPU else dtype
            inputs = [tensor(a, dtype, place, layout) for a in arrays]
            if gradient:
                inputs = [x.detach() for x in inputs]
                for x in inputs:
                    x.stop_gradient = False
            others = [paddle.to_tensor(i, place=place) for i in index]
            results = flat(function(*inputs, *others))
            grads = []
            if gradient:
                differentiable = [r for r in results if not r.stop_gradient]
                weights = [tensor(values(r.shape, "float32", 5), dtype, place) for r in differentiable]
                paddle.autograd.backward(differentiable, weights)
                grads = [x.grad for x in inputs]
            outcomes.append(([numbers(r) for r in results], [g is not None and numbers(g) for g in grads]))
    for got, expected in zip(outcomes[0][0] + outcomes[0][1], outcomes[1][0] + outcomes[1][1]):
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


MOVES = {
    "transpose": lambda x: x.transpose([1, 0]).contiguous(),
    "concat": lambda x: paddle.concat([x, x, x], axis=1),
    "stack": lambda x: paddle.stack([x, x], axis=-1),
    "split": lambda x: [part.contiguous() for part in paddle.split(x, [1, -1], axis=0)],
    "unstack": lambda x: paddle.unstack(x, axis=1),
    "unbind": lambda x: [part.contiguous() for part in paddle.unbind(x, axis=0)],
    "expand": lambda x: paddle.expand(x, [2, *x.shape]).contiguous(),
    "expand_as": lambda x: paddle.expand_as(x, paddle.zeros([2, *x.shape])).contiguous(),
    "tile": lambda x: paddle.tile(x, [2, 1, 3]),
    "flip": lambda x: paddle.flip(x, [0, 1]),
    "roll": lambda x: paddle.roll(x, [1, -2], [0, 1]),
    "roll flat": lambda x: paddle.roll(x, 5),
    "tril": lambda x: paddle.tril(x, 1),
    "triu": lambda x: paddle.triu(x, -1),
    "slice": lambda x: x[1:3, 2:].contiguous(),
    "negative step": lambda x: x[::-1, ::-2].contiguous(),
    "pad": lambda x: paddle.nn.functional.pad(x, [1, 2, 0, 3], value=1.0, pad_from_left_axis=True),
    "repeat_interleave": lambda x: paddle.repeat_interleave(x, 3, axis=1),
    "meshgrid": lambda x: paddle.meshgrid(x[0].contiguous(), x[:, 1].contiguous()),
    "reshape": lambda x: x.reshape([-1]).contiguous(),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0).contiguous(),
    "cast": lambda x: x.clone(),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name, dtype):
    # Paddle's CPU lacks many types; small integers move alike in all of them.
    for layout in ("dense", "transposed", "stepped"):
        check(MOVES[name], values((4, 6), dtype), dtype=dtype, layout=layout, expected_dtype="float32")


@pytest.mark.parametrize("name", MOVES)
def test_gradients_of_moves(name):
    for dtype in FLOATS:
        check(MOVES[name], values((4, 6), dtype), dtype=dtype, gradient=True)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad_images(mode):
    for paddings, shape in (([1, 2], (2, 3, 7)), ([1, 2, 3, 0], (2, 3, 5, 4)), ([1, 0, 2, 1, 0, 2], (1, 2, 4, 4, 5))):
        check(lambda x: paddle.nn.functional.pad(x, paddings, mode=mode), values(shape, "float32"), gradient=True)


INDEX = np.array([3, 0, 3, 1])
CHOICES = {
    "gather": (lambda x, i: paddle.gather(x, i, axis=1), [INDEX]),
    "gather rows": (lambda x, i: paddle.gather(x, i), [INDEX.astype("int32")]),
    "index_select": (lambda x, i: paddle.index_select(x, i, axis=1), [INDEX]),
    "gather_nd": (lambda x, i: paddle.gather_nd(x, i), [np.array([[0, 1], [3, 5], [0, 1]])]),
    "take_along_axis": (lambda x, i: paddle.take_along_axis(x, i, 1), [np.array([[0, 5, 1]] * 4)]),
    "index_sample": (lambda x, i: paddle.index_sample(x, i), [np.array([[0, 5, 1]] * 4)]),
    "embedding": (lambda x, i: paddle.nn.functional.embedding(i, x, padding_idx=1), [INDEX]),
    "argsort": (lambda x: paddle.sort(x, axis=0), []),
    "topk": (lambda x: paddle.topk(x, 3)[0], []),
    "kthvalue": (lambda x: paddle.kthvalue(x, 2, axis=1)[0], []),
    "cumsum": (lambda x: paddle.cumsum(x, axis=1), []),
    "cumsum flat": (lambda x: paddle.cumsum(x), []),
    "cumprod": (lambda x: paddle.cumprod(x, dim=1), []),
    "masked_select": (lambda x: paddle.masked_select(x, x > 1), []),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_and_gradients(name):
    function, index = CHOICES[name]
    # No two elements alike: which of equals is chosen is not laid down.
    distinct = np.random.default_rng(1).permutation(24).reshape(4, 6).astype("float64") - 7
    for dtype in FLOATS:
        check(function, distinct, dtype=dtype, index=index, gradient=True)
        for layout in ("transposed", "stepped"):
            check(function, distinct, dtype=dtype, index=index, layout=layout)
    if name != "embedding":
        check(function, distinct, dtype="int64", index=index)
        check(function, distinct, dtype="int32", index=index)


WRITES = {
    "scatter": lambda x, u, i: paddle.scatter(x, i, u, overwrite=True),
    "scatter add": lambda x, u, i: paddle.scatter(x, i, u, overwrite=False),
    "index_add": lambda x, u, i: paddle.index_add(x, i, 0, u),
    "scatter_nd_add": lambda x, u, i: paddle.scatter_nd_add(x, i.unsqueeze(1), u),
    "put_along_axis": lambda x, u, i: paddle.put_along_axis(x, i.unsqueeze(1).expand([3, 6]).contiguous(), u, 0, broadcast=False),
    "put_along_axis add": lambda x, u, i: paddle.put_along_axis(
        x, i.unsqueeze(1).expand([3, 6]).contiguous(), u, 0, reduce="add", broadcast=False
    ),
    "set_value": lambda x, u, i: assigned(x, u),
}


def assigned(x, update):
    x = x.clone()
    x[1:4, ::2] = update[:, ::2]
    x[0] = 7
    return x


@pytest.mark.parametrize("name", WRITES)
def test_writes_and_gradients(name):
    index = [np.array([3, 0, 1])]
    for dtype in FLOATS:
        check(WRITES[name], values((5, 6), dtype), values((3, 6), dtype, 2), dtype=dtype, index=index, gradient=True)


ROWS, COLUMNS = np.array([3, -4, 3]), np.array([1, 0, -1])
INDEXINGS = {
    "rows": (lambda x, i, j: x[i], lambda x, u, i, j: written(x, i, u)),
    "columns": (lambda x, i, j: x[:, j], lambda x, u, i, j: written(x, (slice(None), j), 2.0)),
    "pairs": (lambda x, i, j: x[i, j], lambda x, u, i, j: written(x, (i, j), u[0, :3].contiguous())),
    "grid": (lambda x, i, j: x[i.unsqueeze(1), j], lambda x, u, i, j: written(x, (i.unsqueeze(1), j), 7.0)),
    "after a slice": (lambda x, i, j: x[1:, j], lambda x, u, i, j: written(x, (slice(1, None), j), 3.0)),
    "index_put": (
        lambda x, i, j: paddle.index_put(x, (i,), x[:3] * 2, accumulate=True),
        lambda x, u, i, j: paddle.index_put(x, (i, j), u[0, :3].contiguous(), accumulate=True),
    ),
}


def written(x, place, value):
    x = x.clone()
    x[place] = value
    return x


@pytest.mark.parametrize("name", INDEXINGS)
def test_indexing_by_tensors(name):
    read, write = INDEXINGS[name]
    for dtype in FLOATS:
        check(read, values((4, 6), dtype), dtype=dtype, index=[ROWS, COLUMNS], gradient=True)
        # Rows 3 and -4 are different ones, but 3 occurs twice: equal values make the order irrelevant.
        same = np.ones((3, 6))
        check(write, values((4, 6), dtype), same, dtype=dtype, index=[ROWS, COLUMNS], gradient=name == "index_put")
    check(read, values((4, 6), "int64"), dtype="int64", index=[ROWS, COLUMNS])


def test_writing_by_tensors_has_gradients():
    once = [np.array([3, 0, 1]), COLUMNS]
    for name in ("rows", "columns", "pairs", "grid"):
        check(INDEXINGS[name][1], values((4, 6), "float32"), values((3, 6), "float32", 3), index=once, gradient=name in ("rows", "pairs"))


def test_indexing_by_masks():
    mask = values((4, 6), "float32") > 1
    row_mask = np.array([True, False, True, True])
    check(lambda x, m: x[m], values((4, 6), "float32"), index=[mask], gradient=True)
    check(lambda x, m: x[m], values((4, 6), "float32"), index=[row_mask], gradient=True)
    check(lambda x, m: written(x, m, 5.0), values((4, 6), "float32"), index=[mask])
    check(lambda x, m: written(x, m, 5.0), values((4, 6), "float32"), index=[row_mask])


def test_searches():
    x = values((5, 7), "float32")
    for dtype in ("float32", "float64", "int32", "int64", "uint8"):
        check(lambda x: [paddle.argmax(x, axis=1), paddle.argmin(x, axis=0, keepdim=True), paddle.argmax(x)], abs(x), dtype=dtype)
    check(lambda x: paddle.nonzero(x), x)
    check(lambda x: paddle.nonzero(x > 1, as_tuple=True), x)
    nan = np.array([[1.0, np.nan, 3.0, -1.0], [np.nan, np.nan, 2.0, 0.0]])
    check(lambda x: [paddle.sort(x), paddle.sort(x, descending=True), paddle.argmax(x, axis=1), paddle.argmin(x, axis=1)], nan)
    check(lambda x: [paddle.topk(x, 3)[0], paddle.topk(x, 3, largest=False)[0]], nan)


def test_creation():
    check(lambda: [paddle.arange(5), paddle.arange(1, 10, 3, dtype="float32"), paddle.arange(5, 0, -2), paddle.arange(0.0, 1.0, 0.3)])
    for start, end, step in [(1, 4, 1), (5, 1, -2), (3, 3, 1), (1, 6, 2), (1.0, 4.5, 0.5), (1, 1.0, -1)]:
        dtypes = ("int32", "int64", "float32", "float64") if isinstance(step, int) else ("float32", "float64")
        # Unlike `arange`, which leaves out the end.
        check(lambda: [paddle.range(start, end, step, dtype=dtype) for dtype in dtypes])
    check(lambda: [paddle.linspace(0, 1, 7), paddle.linspace(5, 1, 3, dtype="float64"), paddle.eye(3, 5), paddle.eye(4, dtype="int64")])
    check(lambda: paddle.nn.functional.one_hot(paddle.to_tensor([1, 0, 3]), 5))
    check(lambda: [paddle.full([2, 3], 7, dtype) for dtype in ("int8", "int64", "float16", "bool")])
    check(lambda: [paddle.ones([2, 0]), paddle.zeros_like(paddle.ones([3])), paddle.numel(paddle.ones([3, 4])), paddle.shape(paddle.ones([3, 4]))])
    check(lambda: paddle.increment(paddle.ones([1]), 2.0))


def test_limits_are_read_where_they_lie():
    paddle.device.set_device("mps")
    for places in (["cpu", "cpu", "cpu"], ["mps", "mps", "mps"], ["cpu", "mps", "cpu"]):
        # Views, with something before them.
        limits = [paddle.to_tensor([7, number], place=place)[1:] for number, place in zip((1, 9, 2), places, strict=True)]
        for made, expected in (
            (paddle.arange(*limits), [1, 3, 5, 7]),
            (paddle.linspace(*limits), [1, 9]),
            (paddle.logspace(*limits, base=2), [2, 512]),
        ):
            assert made.place.is_custom_place() and made.tolist() == expected, (places, made)


def test_sizes_lie_on_the_cpu():
    paddle.device.set_device("mps")
    x = paddle.arange(12, dtype="float32").reshape([3, 4])
    for image, sizes in ((x, [3, 4]), (x.T, [4, 3]), (x[0, 0], []), (paddle.ones([2, 0]), [2, 0])):
        size = paddle.shape(image)
        assert size.place.is_cpu_place() and size.tolist() == sizes, size
    size = paddle.shape(x)
    assert (x + size[0].astype("float32")).sum().item() == 66 + 12 * 3
    turned = paddle.reshape(x, paddle.flip(size, [0]))
    assert turned.place.is_custom_place() and turned.shape == [4, 3]
    assert paddle.concat([size, paddle.shape(turned)]).tolist() == [3, 4, 4, 3]


def test_random_numbers():
    paddle.device.set_device("mps")

    def draw():
        paddle.seed(7)
        return [
            paddle.uniform([1000, 100], min=-1, max=3),
            paddle.randn([1000, 100]),
            paddle.randint(0, 10, [1000, 100]),
            paddle.randperm(1000),
            paddle.bernoulli(paddle.full([1000, 100], 0.3)),
            paddle.multinomial(paddle.to_tensor([[3.0, 0.0, 1.0], [0.0, 0.0, 2.0]]), 40000, replacement=True),
            paddle.multinomial(paddle.arange(101, dtype="float32"), 100),
            paddle.nn.functional.dropout(paddle.ones([1000, 100]), 0.25),
        ]

    first, second = draw(), draw()
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    uniform, normal, integers, permutation, coins, drawn, distinct, dropped = [t.numpy().astype("float64") for t in first]
    assert abs(uniform.mean() - 1) < 0.02 and -1 <= uniform.min() and uniform.max() < 3
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert set(np.unique(integers)) == set(range(10))
    assert sorted(permutation) == list(range(1000))
    assert abs(coins.mean() - 0.3) < 0.01
    assert first[5].dtype == paddle.int64 and drawn.shape == (2, 40000) and set(np.unique(drawn[0])) == {0, 2}
    assert abs((drawn[0] == 0).mean() - 0.75) < 0.01 and (drawn[1] == 2).all()
    assert sorted(distinct) == list(range(1, 101)) and distinct[:30].mean() > distinct[70:].mean()
    assert abs((dropped == 0).mean() - 0.25) < 0.01 and abs(dropped.max() - 4 / 3) < 1e-6
    assert (paddle.randn([8]).numpy() != first[1].numpy().reshape(-1)[:8]).any()


def test_dropout_gradient_and_inference():
    paddle.device.set_device("mps")
    x = paddle.ones([100, 100])
    x.stop_gradient = False
    y = paddle.nn.functional.dropout(x, 0.4)
    paddle.autograd.backward([y], [paddle.ones(y.shape)])
    np.testing.assert_allclose(x.grad.numpy(), y.numpy(), rtol=1e-6)
    check(lambda x: paddle.nn.functional.dropout(x, 0.4, training=False), values((4, 6), "float32"))
    check(lambda x: paddle.nn.functional.dropout(x, 0.4, training=False, mode="downscale_in_infer"), values((4, 6), "float32"))


def test_errors_name_the_values():
    paddle.device.set_device("mps")
    with pytest.raises(Exception, match="index 9 at position 1 is outside -4..4"):
        paddle.gather(paddle.ones([4, 2]), paddle.to_tensor([0, 9]))
    paddle.device.synchronize()  # An error is delivered once.


def test_static_program():
    paddle.device.set_device("mps")

    @paddle.jit.to_static(full_graph=True)
    def program(x):
        y = paddle.concat([x[1:3], x.flip([0])[:1]], axis=0).transpose([1, 0])
        y = paddle.nn.functional.pad(y, [1, 1, 0, 2])
        return paddle.gather(y.tile([1, 2]), paddle.arange(3)), paddle.split(y, [2, 3], axis=1), paddle.topk(y, 2)

    x = values((4, 6), "float32").astype("float32")
    got = flat(program(paddle.to_tensor(x)))
    paddle.device.set_device("cpu")
    expected = flat(program(paddle.to_tensor(x)))
    paddle.device.set_device("mps")
    for a, b in zip(got, expected):
        np.testing.assert_array_equal(a.numpy().shape, b.numpy().shape)
    np.testing.assert_array_equal(got[0].numpy(), expected[0].numpy())


def test_a_sum_of_booleans_is_true_where_one_of_them_is():
    named = (paddle.zeros([256], "int64"),)
    x = paddle.index_put(paddle.to_tensor([False, False]), named, paddle.ones([256], "bool"), accumulate=True)
    assert x.numpy().view("uint8").tolist() == [1, 0]
    x = paddle.to_tensor([[True, False], [False, False]]).T
    x.index_put_((paddle.to_tensor([1, 1, 0]),), paddle.to_tensor([[False, True], [False, True], [True, False]]), accumulate=True)
    assert x.numpy().view("uint8").tolist() == [[1, 0], [0, 1]]
