"""Fourier transforms on device mps: a network with layers in Fourier space trains as on the CPU, signals come back, hostile calls are refused."""

import numpy as np
import paddle
import pytest

RANDOM = np.random.default_rng(8)
INF, NAN = float("inf"), float("nan")


class Spectral(paddle.nn.Layer):
    """The lowest frequencies, mixed by complex weights (Li et al., 2021, "Fourier neural operator")."""

    def __init__(self, width: int, modes: int):
        super().__init__()
        self.modes = modes
        self.real, self.imaginary = (self.create_parameter([modes, modes, width, width], default_initializer=paddle.nn.initializer.Normal(std=0.1)) for _ in range(2))

    def forward(self, x):
        numbers = paddle.fft.rfft2(x)
        low = numbers[:, :, : self.modes, : self.modes]
        mixed = (low.transpose([2, 3, 0, 1]) @ paddle.complex(self.real, self.imaginary)).transpose([2, 3, 0, 1])
        rest = [x.shape[-2] - self.modes, x.shape[-1] // 2 + 1 - self.modes]
        padded = [paddle.nn.functional.pad(part, [0, rest[1], 0, rest[0]]) for part in (paddle.real(mixed), paddle.imag(mixed))]
        return paddle.fft.irfft2(paddle.complex(*padded), s=x.shape[-2:])


class Operator(paddle.nn.Layer):
    def __init__(self, width: int = 6):
        super().__init__()
        self.lift, self.spectral, self.skip, self.last = paddle.nn.Conv2D(2, width, 1), Spectral(width, 3), paddle.nn.Conv2D(width, width, 1), paddle.nn.Conv2D(width, 1, 1)

    def forward(self, x):
        x = self.lift(x)
        return self.last(paddle.nn.functional.gelu(self.spectral(x) + self.skip(x)))


def losses(device: str, weights: dict[str, np.ndarray] | None) -> tuple[list[float], dict[str, np.ndarray]]:
    paddle.set_device(device)
    network = Operator()
    first = weights or {name: value.numpy() for name, value in network.state_dict().items()}
    network.set_state_dict(first)
    optimizer = paddle.optimizer.Adam(1e-2, parameters=network.parameters())
    field = np.random.default_rng(3).standard_normal((4, 2, 9, 10)).astype("float32")
    x, wanted = paddle.to_tensor(field), paddle.to_tensor(np.cumsum(field[:, :1], -1) / 4)
    found = []
    for _ in range(10):
        loss = ((network(x) - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        found.append(float(loss))
    return found, first


def test_a_fourier_neural_operator_trains_as_on_the_cpu():
    theirs, weights = losses("cpu", None)
    mine, _ = losses("mps", weights)
    assert mine[-1] < mine[0]
    np.testing.assert_allclose(mine, theirs, rtol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_signals_come_back_from_their_windows(dtype, tolerance):
    signal = RANDOM.standard_normal((2, 64)).astype(dtype)
    numbers = paddle.signal.stft(paddle.to_tensor(signal), n_fft=16, hop_length=4)
    assert numbers.dtype == (paddle.complex64 if dtype == "float32" else paddle.complex128)
    np.testing.assert_allclose(paddle.signal.istft(numbers, n_fft=16, hop_length=4, length=64).numpy(), signal, atol=tolerance)


@pytest.mark.parametrize("length", [1, 2, 5, 97, 210, 1009, 4096])
def test_every_length_is_as_by_numpy(length):
    x = RANDOM.standard_normal((2, length)) + 1j * RANDOM.standard_normal((2, length))
    wanted = np.fft.fft(x)
    np.testing.assert_allclose(paddle.fft.fft(paddle.to_tensor(x)).numpy(), wanted, atol=1e-11 * np.abs(wanted).max())
    wanted = np.fft.irfft(x, length)
    np.testing.assert_allclose(paddle.fft.irfft(paddle.to_tensor(x[:, : length // 2 + 1]), length).numpy(), np.fft.irfft(x[:, : length // 2 + 1], length), atol=1e-11 * np.abs(wanted).max())


def test_what_has_no_transform_is_refused():
    x = paddle.to_tensor(RANDOM.standard_normal((3, 4)) + 0j)
    for call in (
        lambda: paddle._C_ops.fft_c2c(x, [5], "backward", True),
        lambda: paddle._C_ops.fft_c2c(x, [1, 1], "backward", True),
        lambda: paddle._C_ops.fft_c2c(x, [0], "sideways", True),
        lambda: paddle._C_ops.fft_c2r(x, [1], "backward", False, 100),
        lambda: paddle.fft.fft(x, n=-3),
    ):
        with pytest.raises((ValueError, IndexError)):
            call()


def test_numbers_as_large_as_the_type_holds_have_sizes_and_quotients():
    x = paddle.to_tensor(np.array([3e200 + 4e200j, 1e-200 + 1e-200j, 0j]))
    np.testing.assert_allclose(abs(x).numpy(), [5e200, np.sqrt(2) * 1e-200, 0.0], rtol=1e-14)
    np.testing.assert_allclose((x[:2] / x[:2]).numpy(), [1, 1], rtol=1e-14)


def test_what_is_infinite_has_an_infinite_size_and_divides_to_zero():
    results = []
    for device in ("cpu", "mps"):
        paddle.set_device(device)
        real, imaginary = (paddle.to_tensor(part) for part in ([INF, 1.0, NAN, INF, NAN, 0.0], [1.0, -INF, 1.0, NAN, INF, 0.0]))
        quotient = paddle.complex(paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([2.0, 0.0])) / paddle.complex(paddle.to_tensor([INF, 3.0]), paddle.to_tensor([1.0, -INF]))
        results.append((abs(paddle.complex(real, imaginary)).numpy(), quotient.numpy()))
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)
