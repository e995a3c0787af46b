"""Small networks with the same weights on every rank, and what they learn: a transformer and a ResNet.

Each is a list of layers, so that it can be cut into stages; the transformer's products can be cut into parts, one for each rank.
"""

import zlib

import numpy
import paddle
from paddle import nn
from paddle.distributed.fleet.layers.mpu import ColumnParallelLinear, ParallelCrossEntropy, RowParallelLinear
from paddle.vision.models.resnet import BasicBlock

STEPS, BATCH = 20, 8
VOCABULARY, LENGTH, WIDTH, HEADS = 32, 12, 32, 4


def filled(layer: nn.Layer) -> nn.Layer:
    """The layer with weights that depend on their names and shapes alone."""
    for name, parameter in layer.named_parameters():
        if len(parameter.shape) > 1:
            parameter.set_value(weights(name, parameter.shape))
    return layer


def weights(name: str, shape: list[int]) -> numpy.ndarray:
    random = numpy.random.RandomState(zlib.crc32(f"{name} {shape}".encode()))
    fan = numpy.prod(shape[1:]) if len(shape) == 4 else shape[0]
    return random.uniform(-1, 1, shape).astype("float32") / numpy.float32(fan) ** 0.5


class Whole:
    """The linear layers of a transformer on one rank."""

    heads = HEADS

    def column(self, name: str, inputs: int, outputs: int) -> nn.Layer:
        layer = nn.Linear(inputs, outputs)
        layer.weight.set_value(weights(name, [inputs, outputs]))
        layer.bias.set_value(numpy.zeros(outputs, "float32"))
        return layer

    row = column


class Parts:
    """The same, cut into one part for each rank: first the columns of a weight, then the rows of the next one."""

    def __init__(self, rank: int, ranks: int):
        self.rank, self.ranks, self.heads = rank, ranks, HEADS // ranks

    def own(self, count: int) -> slice:
        return slice(self.rank * count // self.ranks, (self.rank + 1) * count // self.ranks)

    def column(self, name: str, inputs: int, outputs: int) -> nn.Layer:
        layer = ColumnParallelLinear(inputs, outputs, has_bias=True, gather_output=False)
        layer.weight.set_value(weights(name, [inputs, outputs])[:, self.own(outputs)])
        layer.bias.set_value(numpy.zeros(layer.bias.shape, "float32"))
        return layer

    def row(self, name: str, inputs: int, outputs: int) -> nn.Layer:
        layer = RowParallelLinear(inputs, outputs, has_bias=True, input_is_parallel=True)
        layer.weight.set_value(weights(name, [inputs, outputs])[self.own(inputs)])
        layer.bias.set_value(numpy.zeros(outputs, "float32"))
        return layer


class Embedding(nn.Layer):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens):
        return self.tokens(tokens) + self.places(paddle.arange(LENGTH))


class Block(nn.Layer):
    """Attention and two products behind a normalisation each, beside which their input passes."""

    def __init__(self, linear, number: int):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        made = {name: linear.column(f"{number} {name}", WIDTH, WIDTH) for name in ("query", "key", "value")}
        self.query, self.key, self.value = made.values()
        self.mix = linear.row(f"{number} mix", WIDTH, WIDTH)
        self.up, self.down = linear.column(f"{number} up", WIDTH, 4 * WIDTH), linear.row(f"{number} down", 4 * WIDTH, WIDTH)
        self.heads = linear.heads

    def forward(self, x):
        normal = self.before(x)
        shape = [x.shape[0], LENGTH, self.heads, WIDTH // HEADS]
        query, key, value = (it(normal).reshape(shape).transpose([0, 2, 1, 3]) for it in (self.query, self.key, self.value))
        later = paddle.triu(paddle.full([LENGTH, LENGTH], -1e9), 1)
        shares = nn.functional.softmax(query @ key.transpose([0, 1, 3, 2]) / shape[-1] ** 0.5 + later)
        mixed = (shares @ value).transpose([0, 2, 1, 3]).reshape([x.shape[0], LENGTH, -1])
        x = x + self.mix(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Transformer:
    """Learns which token follows."""

    rate = 0.003

    @staticmethod
    def layers(linear=None) -> list[nn.Layer]:
        linear = linear or Whole()
        blocks = [Block(linear, number) for number in range(4)]
        return [filled(Embedding()), *blocks, nn.LayerNorm(WIDTH), linear.column("scores", WIDTH, VOCABULARY)]

    @staticmethod
    def loss(outputs, labels):
        if outputs.shape[-1] < VOCABULARY:
            # This rank's part of the scores.
            return ParallelCrossEntropy()(outputs, labels.unsqueeze(-1)).mean()
        return nn.functional.cross_entropy(outputs.reshape([-1, VOCABULARY]), labels.reshape([-1]))

    @staticmethod
    def batches():
        text = numpy.random.RandomState(3).randint(0, VOCABULARY, [BATCH, LENGTH + 1])
        for _ in range(STEPS):
            yield text[:, :-1], text[:, 1:]


class ResNet:
    """Learns to name pictures. Its normalisations see what of a batch is in one place, as everywhere without synchronisation."""

    rate = 0.003

    @staticmethod
    def layers() -> list[nn.Layer]:
        begin = [nn.Conv2D(3, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8), nn.ReLU()]
        blocks = [BasicBlock(8, 8)]
        for width in (16, 32):
            smaller = nn.Sequential(nn.Conv2D(width // 2, width, 1, stride=2, bias_attr=False), nn.BatchNorm2D(width))
            blocks += [BasicBlock(width // 2, width, 2, smaller), BasicBlock(width, width)]
        layers = [*begin, *blocks, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(32, 10)]
        return [filled(layer) for layer in layers]

    @staticmethod
    def loss(outputs, labels):
        return nn.functional.cross_entropy(outputs, labels)

    @staticmethod
    def batches():
        random = numpy.random.RandomState(5)
        pictures, names = random.uniform(-1, 1, [BATCH, 3, 16, 16]).astype("float32"), random.randint(0, 10, [BATCH, 1])
        for _ in range(STEPS):
            yield pictures, names


NETWORKS = {"transformer": Transformer, "resnet": ResNet}
