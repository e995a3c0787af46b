"""Language models, adversaries with double gradients, volumes, sequences, graphs and networks in Fourier space: ten steps as on Paddle's CPU, without fallback."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.incubate.nn import functional as fused
from paddle.nn import functional as F
from paddle.vision import ops

from test_networks import Causal, advance, classify, fill


def drawn(*shape: int, seed: int = 0) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng((seed, *shape)).standard_normal(shape).astype("float32"))


def tokens(batch: int, length: int) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng((batch, length)).integers(0, 50, (batch, length)))


def next_words(model: nn.Layer, words: paddle.Tensor, step):
    return lambda: advance(F.cross_entropy(model(words)[:, :-1].reshape([-1, 50]), words[:, 1:].reshape([-1])), step)


class Encoder(nn.Layer):
    """BERT: words, places and segments, two layers that see everything, a guess for each hidden word."""

    def __init__(self, width: int = 32):
        super().__init__()
        self.parts = nn.LayerList([nn.Embedding(size, width) for size in (50, 40, 2)])
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu")
        self.layers, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(width, 50)

    def forward(self, words, segments, mask):
        places = paddle.arange(words.shape[1])
        x = self.norm(self.parts[0](words) + self.parts[1](places) + self.parts[2](segments))
        return self.out(self.layers(x, mask))


def bert():
    model, words = Encoder(), tokens(3, 40)
    fill(model)
    seen = np.random.default_rng(5).random((3, 1, 1, 40)) < 0.9
    mask = paddle.to_tensor(np.where(seen, 0.0, -1e4).astype("float32"))
    segments = (paddle.arange(40) >= 20).astype("int64").expand([3, 40])
    step = paddle.optimizer.AdamW(3e-3, parameters=model.parameters(), weight_decay=0.01)
    return lambda: advance(F.cross_entropy(model(words, segments, mask).reshape([-1, 50]), words.reshape([-1])), step)


class LongCausal(Causal):
    """GPT at 256 tokens."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(256, 32)


def gpt_of_256_tokens():
    model = LongCausal()
    fill(model)
    return next_words(model, tokens(2, 256), paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))


class Llama(nn.Layer):
    """One block of Llama: norms by mean squares, turned queries and keys of which two heads share one, a gated layer. On `mps` by fused operators, of which
    Paddle's CPU lacks some."""

    def __init__(self, width: int = 32, heads: int = 4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.words, self.out = nn.Embedding(50, width), nn.Linear(width, 50, bias_attr=False)
        self.scales = nn.ParameterList([self.create_parameter([width], default_initializer=nn.initializer.Constant(1.0)) for _ in range(2)])
        sizes = [(width, width), (width, width // 2), (width, width // 2), (width, width), (width, 64), (width, 64), (64, width)]
        self.linears = nn.LayerList([nn.Linear(*size, bias_attr=False) for size in sizes])

    def norm(self, x, number: int):
        scale = self.scales[number]
        if "mps" in paddle.device.get_device():
            return F.rms_norm(x, [x.shape[-1]], scale, 1e-5)[0]
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * scale

    def turned(self, *inputs):
        length, size = inputs[0].shape[1], self.size
        angles = np.arange(length)[:, None] * 1e4 ** (-np.arange(0, size, 2) / size)
        both = np.repeat(angles, 2, 1).reshape(1, length, 1, size)
        sine, cosine = [paddle.to_tensor(part.astype("float32")) for part in (np.sin(both), np.cos(both))]
        if "mps" in paddle.device.get_device():
            return fused.fused_rotary_position_embedding(*inputs, sin=sine, cos=cosine)[:2]

        def pairs(x):
            halves = x.reshape([*x.shape[:-1], -1, 2])
            return paddle.stack([-halves[..., 1], halves[..., 0]], -1).reshape(x.shape)

        return [x * cosine + pairs(x) * sine for x in inputs]

    def gated(self, x, gate):
        return fused.swiglu(x, gate) if "mps" in paddle.device.get_device() else F.silu(x) * gate

    def forward(self, words):
        x = self.words(words)
        query, key, value, joined, up, gate, down = self.linears
        normed, (batch, length, width) = self.norm(x, 0), x.shape
        q, k, v = [layer(normed).reshape([batch, length, -1, self.size]) for layer in (query, key, value)]
        q, k = self.turned(q, k)
        k, v = [part.repeat_interleave(q.shape[2] // part.shape[2], 2) for part in (k, v)]
        x = x + joined(F.scaled_dot_product_attention(q, k, v, is_causal=True).reshape([batch, length, width]))
        normed = self.norm(x, 1)
        return self.out(x + down(self.gated(up(normed), gate(normed))))


def llama():
    model = Llama()
    fill(*model.linears, model.words, model.out)
    return next_words(model, tokens(2, 24), paddle.optimizer.AdamW(1e-2, parameters=model.parameters()))


def pictures_from_noise():
    """DCGAN: transposed convolutions against convolutions, both with batch norm."""
    make = nn.Sequential(nn.Conv2DTranspose(6, 16, 4), nn.BatchNorm2D(16), nn.ReLU(), nn.Conv2DTranspose(16, 8, 4, 2, 1), nn.BatchNorm2D(8), nn.ReLU(), nn.Conv2DTranspose(8, 1, 4, 2, 1), nn.Tanh())
    judge = nn.Sequential(nn.Conv2D(1, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2D(8, 16, 4, 2, 1), nn.BatchNorm2D(16), nn.LeakyReLU(0.2), nn.Conv2D(16, 1, 4))
    fill(make, judge)
    real, noise = drawn(4, 1, 16, 16), drawn(4, 6, 1, 1)
    steps = [paddle.optimizer.Adam(2e-3, beta1=0.5, parameters=each.parameters()) for each in (make, judge)]
    loss, right, wrong = F.binary_cross_entropy_with_logits, paddle.ones([4, 1, 1, 1]), paddle.zeros([4, 1, 1, 1])

    def step():
        first = advance(loss(judge(real), right) + loss(judge(make(noise).detach()), wrong), steps[1])
        second = advance(loss(judge(make(noise)), right), steps[0])
        steps[1].clear_grad()
        return first + second

    return step


def slopes_of_one():
    """WGAN-GP: the judge's slope between real and made pictures is drawn to 1, by gradients of gradients."""
    make = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))
    judge = nn.Sequential(nn.Conv2D(1, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2D(8, 8, 3, 2, 1), nn.Tanh(), nn.Conv2D(8, 1, 2))
    fill(make, judge)
    real, noise, between = drawn(4, 1, 8, 8), drawn(4, 4), paddle.to_tensor(np.random.default_rng(7).random((4, 1, 1, 1)).astype("float32"))
    steps = [paddle.optimizer.Adam(5e-3, beta1=0.5, parameters=each.parameters()) for each in (make, judge)]

    def step():
        made = make(noise).reshape([4, 1, 8, 8]).detach()
        mixed = real * between + made * (1 - between)
        mixed.stop_gradient = False
        (slope,) = paddle.grad(judge(mixed).sum(), [mixed], create_graph=True)
        size = (slope.square().sum([1, 2, 3]) + 1e-12).sqrt()
        first = advance(judge(made).mean() - judge(real).mean() + 10 * (size - 1).square().mean(), steps[1])
        second = advance(-judge(make(noise).reshape([4, 1, 8, 8])).mean(), steps[0])
        steps[1].clear_grad()
        return first + second

    return step


def volumes():
    layers = nn.Sequential(nn.Conv3D(1, 4, 3, padding=1), nn.BatchNorm3D(4), nn.ReLU(), nn.MaxPool3D(2), nn.Conv3D(4, 8, 3), nn.ReLU(), nn.AvgPool3D(2), nn.Flatten(), nn.Linear(8, 3))
    return classify(layers, (4, 1, 8, 8, 8), 3)


class Listener(nn.Layer):
    """Convolution over time, LSTM in both directions, letters by CTC."""

    def __init__(self):
        super().__init__()
        self.ears, self.memory, self.letters = nn.Conv1D(8, 16, 3, padding=1), nn.LSTM(16, 12, direction="bidirect"), nn.Linear(24, 6)

    def forward(self, x):
        heard = F.relu(self.ears(x)).transpose([0, 2, 1])
        return self.letters(self.memory(heard)[0]).transpose([1, 0, 2])


def letters():
    model, x = Listener(), drawn(3, 8, 20)
    fill(model)
    labels = paddle.to_tensor(np.random.default_rng(1).integers(1, 6, (3, 5)).astype("int32"))
    times, counts = paddle.full([3], 20, "int64"), paddle.to_tensor([5, 3, 4])
    step = paddle.optimizer.Adam(2e-2, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(2.0))
    return lambda: advance(F.ctc_loss(model(x), labels, times, counts), step)


def boxes():
    """A head of YOLOv3 on a small backbone."""
    anchors = [10, 13, 16, 30, 33, 23]
    layers = nn.Sequential(nn.Conv2D(3, 8, 3, 2, 1), nn.BatchNorm2D(8), nn.LeakyReLU(0.1), nn.Conv2D(8, 3 * 9, 3, 2, 1))
    fill(layers)
    x, truths = drawn(2, 3, 32, 32), paddle.to_tensor([[[0.4, 0.5, 0.3, 0.2], [0.7, 0.3, 0.2, 0.4]]] * 2)
    labels, step = paddle.to_tensor([[1, 3], [0, 2]], dtype="int32"), paddle.optimizer.Momentum(1e-3, parameters=layers.parameters())
    return lambda: advance(ops.yolo_loss(layers(x), truths, labels, anchors, [0, 1, 2], 4, 0.7, 4).mean(), step)


def messages():
    """Two rounds of means over a graph's neighbours, and what nodes are."""
    random = np.random.default_rng(2)
    source, target = [paddle.to_tensor(random.integers(0, 20, 60)) for _ in range(2)]
    layers = nn.LayerList([nn.Linear(12, 16), nn.Linear(32, 4)])
    fill(layers)
    x, kinds = drawn(20, 6), paddle.to_tensor(random.integers(0, 4, 20))
    step = paddle.optimizer.Adam(2e-2, parameters=layers.parameters())

    def loss():
        first = F.relu(layers[0](paddle.concat([x, paddle.geometric.send_u_recv(x, source, target, "mean")], 1)))
        return F.cross_entropy(layers[1](paddle.concat([first, paddle.geometric.send_u_recv(first, source, target, "max")], 1)), kinds)

    return lambda: advance(loss(), step)


class Spectral(nn.Layer):
    """A layer in Fourier space (FNO): some low frequencies are mixed by complex weights, the others are dropped."""

    def __init__(self, width: int, kept: int):
        super().__init__()
        self.kept, self.past = kept, nn.Conv1D(width, width, 1)
        self.weight = self.create_parameter([width, width, kept, 2])

    def forward(self, x):
        length, kept = x.shape[-1], self.kept
        waves = paddle.fft.rfft(x)[:, :, :kept]
        mixed = paddle.einsum("bik,iok->bok", waves, paddle.as_complex(self.weight))
        return F.gelu(paddle.fft.irfft(mixed, n=length) + self.past(x))


def waves():
    model = nn.Sequential(nn.Conv1D(1, 8, 1), Spectral(8, 6), Spectral(8, 6), nn.Conv1D(8, 1, 1))
    fill(model)
    x = drawn(4, 1, 32)
    step = paddle.optimizer.Adam(1e-2, parameters=model.parameters())
    return lambda: advance(F.mse_loss(model(x), x.cumsum(-1) / 4), step)


class Looker(nn.Layer):
    """A spatial transformer: where to look is learnt."""

    def __init__(self):
        super().__init__()
        self.where = nn.Sequential(nn.Conv2D(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(100, 6), nn.Tanh())
        self.what = nn.Sequential(nn.Conv2D(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 3))

    def forward(self, x):
        # Of pictures without a gradient Paddle's CPU ends the process.
        x.stop_gradient = False
        theta = self.where(x).reshape([-1, 2, 3]) * 0.3 + paddle.to_tensor([[1.0, 0, 0], [0, 1.0, 0]])
        return self.what(F.grid_sample(x, F.affine_grid(theta, [x.shape[0], 1, 12, 12], align_corners=False), align_corners=False))


def looker():
    return classify(Looker(), (4, 1, 14, 14), 3)


def bounded():
    """Weights over their largest singular values, and weights by length and direction."""
    paddle.seed(5)
    layers = nn.Sequential(nn.utils.spectral_norm(nn.Conv2D(2, 4, 3)), nn.ReLU(), nn.utils.weight_norm(nn.Conv2D(4, 4, 3)), nn.Flatten(), nn.Linear(64, 3))
    vectors = layers[0]
    model = classify(layers, (4, 2, 8, 8), 3)
    # Devices draw other numbers: the first guess at the singular vectors is the same one.
    for buffer in [buffer for buffer in vectors.buffers() if buffer.ndim == 1]:
        buffer.set_value(np.cos(np.arange(buffer.size)).astype("float32") / buffer.size**0.5)
    return model


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("time_major", [False, True])
# Without angles of its own Paddle takes neighbours at positions in their order only.
@pytest.mark.parametrize(("neighbours", "given", "placed"), [(True, False, False), *((neighbours, True, placed) for neighbours in (False, True) for placed in (False, True))])
def test_turned_queries_keys_and_values(neighbours, given, placed, time_major, dtype):
    """Paddle's CPU has no kernel: the formula in float64, and its gradient."""
    random = np.random.default_rng(4)
    arrays = [random.standard_normal((2, 5, heads, 8)) for heads in (4, 2, 2)]
    weights = [random.standard_normal(array.shape) for array in arrays]
    table = np.arange(7)[:, None] / 100.0 ** (np.arange(8) // 2 * 2 / 8)
    positions = random.integers(0, 7 if given else 5, (2, 5)) if placed else np.tile(np.arange(5), (2, 1))
    sine, cosine = [part[positions][:, :, None] for part in (np.sin(table), np.cos(table))]

    def rotated(x):
        parts = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., :4], x[..., 4:])
        return np.stack([-parts[1], parts[0]], -1).reshape(x.shape) if neighbours else np.concatenate([-parts[1], parts[0]], -1)

    def swapped(x):
        return x.swapaxes(0, 1) if time_major else x

    options = {"use_neox_rotary_style": neighbours, "time_major": time_major, "rotary_emb_base": 100.0}
    if given:
        options |= {"sin": paddle.to_tensor(np.sin(table)[None, :, None]).astype(dtype), "cos": paddle.to_tensor(np.cos(table)[None, :, None]).astype(dtype)}
    if placed:
        options["position_ids"] = paddle.to_tensor(positions)
    tensors = [paddle.to_tensor(np.ascontiguousarray(swapped(array)), stop_gradient=False) for array in arrays]
    found = fused.fused_rotary_position_embedding(*[tensor.astype(dtype) for tensor in tensors], **options)
    sum((out.astype("float64") * paddle.to_tensor(np.ascontiguousarray(swapped(weight)))).sum() for out, weight in zip(found, weights, strict=True)).backward()
    tolerance = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 0.05}[dtype]
    for out, tensor, array, weight in zip(found, tensors, arrays, weights, strict=True):
        np.testing.assert_allclose(swapped(out.astype("float64").numpy()), array * cosine + rotated(array) * sine, atol=tolerance)
        np.testing.assert_allclose(swapped(tensor.grad.numpy()), weight * cosine - rotated(weight * sine), atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(("shape", "axes", "weighed"), [((3, 5, 8), 1, True), ((3, 5, 8), 2, True), ((2, 33), 1, False), ((0, 4), 1, True)])
def test_norms_by_mean_squares(shape, axes, weighed, dtype):
    """Paddle's CPU has no kernel: the same by operators of its own in float64."""
    random = np.random.default_rng(6)
    x, scale, weights = random.standard_normal(shape), random.standard_normal(shape[-axes:]) + 1, random.standard_normal(shape)

    def run(norm, dtype):
        inputs = [paddle.to_tensor(array, stop_gradient=False) for array in (x, scale)]
        out = norm(*[tensor.astype(dtype) for tensor in inputs])
        (out.astype("float64") * paddle.to_tensor(weights)).sum().backward()
        return [out.astype("float64").numpy(), *(tensor.grad.numpy() for tensor in inputs[: 1 + weighed])]

    over = list(range(len(shape) - axes, len(shape)))
    norms = [lambda x, scale: F.rms_norm(x, list(shape[-axes:]), scale if weighed else None, 1e-5)[0]]
    if axes == 1 and weighed and dtype != "float64":
        norms.append(lambda x, scale: fused.fused_rms_norm_ext(x, scale, 1e-5)[0])
    expected = run(lambda x, scale: x / (x.square().mean(over, keepdim=True) + 1e-5).sqrt() * (scale if weighed else 1), "float64")
    tolerance = {"float64": 1e-6, "float32": 1e-5, "bfloat16": 0.2}[dtype]
    for own, other in [pair for norm in norms for pair in zip(run(norm, dtype), expected, strict=True)]:
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, atol=tolerance, rtol=tolerance)


def test_a_fused_norm_gives_the_inverse_roots_of_its_rows():
    x = np.random.default_rng(6).standard_normal((2, 5, 8)).astype("float16")
    _, inverse = fused.fused_rms_norm_ext(paddle.to_tensor(x), paddle.ones([8], "float16"), 1e-5)
    assert inverse.dtype == paddle.float32 and inverse.shape == [10]
    np.testing.assert_allclose(inverse.numpy(), 1 / np.sqrt((x.astype("float64") ** 2).mean(-1).ravel() + 1e-5), rtol=1e-6)


NETWORKS = (
    bert, gpt_of_256_tokens, llama, pictures_from_noise, slopes_of_one, volumes, letters, boxes, messages, waves, looker, bounded,
)  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_ten_steps_are_those_of_the_cpu(network):
    def run(device):
        paddle.set_device(device)
        step = network()
        return [step() for _ in range(10)]

    expected, got = run("cpu"), run("mps")
    assert np.isfinite(expected).all() and abs(expected[-1] - expected[0]) > 1e-3, "the example does not learn"
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
