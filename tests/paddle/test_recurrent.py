"""LSTM, GRU and simple recurrent networks on device mps: values, states and every gradient are those of Paddle's CPU, without fallback."""

import numpy as np
import paddle
import pytest
from paddle import nn

RANDOM = np.random.default_rng(6)
KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "tanh": nn.SimpleRNN, "relu": lambda *sizes, **options: nn.SimpleRNN(*sizes, activation="relu", **options)}
LENGTHS = [5, 2, 1]


def network(kind: str, **options):
    paddle.seed(7)
    return KINDS[kind](4, 6, **options)


def run(device: str, kind: str, options: dict, lengths: list[int] | None, given: bool, dtype: str) -> list[np.ndarray]:
    """The results, and the gradients of the input, the weights and the first states, if they are given."""
    paddle.set_device("cpu")
    paddle.set_default_dtype(dtype)
    weights = network(kind, **options).state_dict()
    paddle.set_device(device)
    net = network(kind, **options)
    net.set_state_dict(weights)
    paddle.set_default_dtype("float32")
    random = np.random.default_rng(6)
    steps_first = options.get("time_major", False)
    x = paddle.to_tensor(random.standard_normal((5, 3, 4) if steps_first else (3, 5, 4)).astype(dtype), stop_gradient=False)
    count = options.get("num_layers", 1) * (2 if options.get("direction") == "bidirect" else 1)
    first = [paddle.to_tensor(random.standard_normal((count, 3, 6)).astype(dtype), stop_gradient=False) for _ in range(2 if kind == "LSTM" else 1)] if given else []
    states = (tuple(first) if kind == "LSTM" else first[0]) if given else None
    out, last = net(x, states, None if lengths is None else paddle.to_tensor(lengths))
    last = list(last) if kind == "LSTM" else [last]
    loss = sum((value * paddle.cos(paddle.arange(value.size, dtype=dtype)).reshape(value.shape)).sum() for value in (out, *last))
    loss.backward()
    return [value.numpy() for value in (out, *last, x.grad, *(weight.grad for weight in net.parameters()), *(state.grad for state in first))]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("options", [{}, {"direction": "bidirect", "num_layers": 2}, {"num_layers": 3, "time_major": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_as_on_the_cpu(kind, options, lengths, given):
    for dtype, tolerance in ("float32", 2e-5), ("float64", 1e-11):
        pairs = list(zip(run("mps", kind, options, lengths, given, dtype), run("cpu", kind, options, lengths, given, dtype), strict=True))
        if given and lengths and "direction" in options:
            # Paddle's CPU leaves the given state out of gradients of the reverse direction: see the test below.
            pairs = pairs[: 3 if kind == "LSTM" else 2]
        for mine, theirs in pairs:
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance * max(1.0, np.abs(theirs).max()))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_a_batch_are_the_sum_of_its_sequences(kind):
    paddle.set_device("mps")
    net = network(kind, direction="bidirect", num_layers=2)
    x = paddle.to_tensor(RANDOM.standard_normal((3, 5, 4)).astype("float32"))
    first = [paddle.to_tensor(RANDOM.standard_normal((4, 3, 6)).astype("float32")) for _ in range(2 if kind == "LSTM" else 1)]

    def states(rows: slice):
        chosen = [state[:, rows] for state in first]
        return tuple(chosen) if kind == "LSTM" else chosen[0]

    (net(x, states(slice(None)), paddle.to_tensor(LENGTHS))[0] ** 2).sum().backward()
    whole = [parameter.grad.numpy() for parameter in net.parameters()]
    net.clear_gradients()
    for row, length in enumerate(LENGTHS):
        (net(x[row : row + 1, :length], states(slice(row, row + 1)))[0] ** 2).sum().backward()
    for mine, parameter in zip(whole, net.parameters(), strict=True):
        np.testing.assert_allclose(mine, parameter.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_network_learns():
    """The sum of a sequence's numbers: twenty steps of Adam make the loss small, and as small as on the CPU."""
    x = RANDOM.standard_normal((16, 7, 4)).astype("float32")

    def losses(device: str) -> list[float]:
        paddle.set_device(device)
        paddle.seed(3)
        lstm, head = nn.LSTM(4, 16, num_layers=2, direction="bidirect"), nn.Linear(32, 1)
        for parameter, values in zip([*lstm.parameters(), *head.parameters()], np.random.default_rng(8).standard_normal((99, 4096))):
            parameter.set_value((values[: parameter.size] * 0.2).astype("float32").reshape(parameter.shape))
        optimizer = paddle.optimizer.Adam(0.02, parameters=[*lstm.parameters(), *head.parameters()])
        result = []
        for _ in range(20):
            loss = ((head(lstm(paddle.to_tensor(x))[0][:, -1]) - paddle.to_tensor(x.sum((1, 2)))[:, None] / 5) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            result.append(float(loss))
        return result

    mine, theirs = losses("mps"), losses("cpu")
    assert mine[-1] < mine[0] / 4
    np.testing.assert_allclose(mine, theirs, rtol=1e-3)


def test_dropout_between_layers():
    """What is dropped differs from call to call, is the same in the backward pass, and does not happen in evaluation."""
    paddle.set_device("mps")
    net = nn.LSTM(4, 6, num_layers=2, dropout=0.5)
    x = paddle.to_tensor(RANDOM.standard_normal((3, 5, 4)).astype("float32"))
    first, second = net(x)[0], net(x)[0]
    assert float((first - second).abs().max()) > 1e-3
    upper = net.parameters()[4]
    first.sum().backward()
    gradient = upper.grad.numpy()
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0
    net.eval()
    np.testing.assert_array_equal(net(x)[0].numpy(), net(x)[0].numpy())


def test_a_static_program():
    paddle.set_device("mps")
    net = nn.GRU(4, 6, direction="bidirect")
    net.eval()
    x = paddle.to_tensor(RANDOM.standard_normal((3, 5, 4)).astype("float32"))
    np.testing.assert_allclose(paddle.jit.to_static(net.forward)(x)[0].numpy(), net(x)[0].numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("hidden", "batch", "steps"), [(1, 1, 3), (8, 5, 2), (16, 7, 4), (33, 13, 3), (70, 1, 5), (128, 16, 6), (100, 2, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_fill_tiles_and_do_not(kind, hidden, batch, steps):
    lengths = np.arange(batch) % steps + 1

    def run(device: str) -> list[np.ndarray]:
        paddle.set_device(device)
        net, random = KINDS[kind](5, hidden, direction="bidirect"), np.random.default_rng(hidden)
        for parameter in net.parameters():
            parameter.set_value((random.uniform(-1, 1, parameter.shape) / hidden**0.5).astype("float32"))
        x = paddle.to_tensor(random.standard_normal((batch, steps, 5)).astype("float32"), stop_gradient=False)
        out, last = net(x, None, paddle.to_tensor(lengths))
        last = list(last) if kind == "LSTM" else [last]
        sum((value * paddle.cos(value)).sum() for value in (out, *last)).backward()
        return [value.numpy() for value in (out, *last, x.grad, *(weight.grad for weight in net.parameters()))]

    for mine, theirs in zip(run("mps"), run("cpu"), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(theirs).max()))
