"""Saves networks with random weights as inference programs: ``save_models.py FOLDER NAME...``.

Paddle's new representation is on unless ``FLAGS_enable_pir_api=0`` is in the environment before the start.
"""

from __future__ import annotations

import sys
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F

Spec = paddle.static.InputSpec


class Encoder(nn.Layer):
    """A small BERT: embeddings, encoder layers, a padding mask, a pooled head."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 2):
        super().__init__()
        self.words, self.places = nn.Embedding(100, width), nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, activation="gelu", dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pooler = nn.Linear(width, width)

    def forward(self, ids):
        places = paddle.arange(ids.shape[1], dtype="int64")
        mask = (ids == 0).astype("float32").unsqueeze([1, 2]) * -1e4
        x = self.norm(self.words(ids) + self.places(places))
        x = self.encoder(x, mask)
        return x, F.tanh(self.pooler(x[:, 0]))


class Recogniser(nn.Layer):
    """A CRNN: convolutions, columns as steps, LSTM in both directions, a classifier for each step."""

    def __init__(self, cell: str = "LSTM"):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(3, 8, 3, padding=1), nn.BatchNorm2D(8), nn.ReLU(), nn.MaxPool2D(2),
            nn.Conv2D(8, 16, 3, padding=1, stride=(2, 1)), nn.BatchNorm2D(16), nn.Hardswish(),
        )  # fmt: skip
        self.steps = getattr(nn, cell)(16, 12, num_layers=2, direction="bidirect")
        self.head = nn.Linear(24, 11)

    def forward(self, x):
        x = self.body(x).mean(2).transpose([0, 2, 1])
        return F.softmax(self.head(self.steps(x)[0]), axis=-1)


class Decoder(nn.Layer):
    """Attention over an image's columns, symbol by symbol, until the sum of scores or the length says stop."""

    def __init__(self, width: int = 16, symbols: int = 9):
        super().__init__()
        self.image = nn.Conv2D(3, width, 3, stride=2, padding=1)
        self.cell, self.head = nn.GRUCell(symbols + width, width), nn.Linear(width, symbols)
        self.symbols, self.width = symbols, width

    def forward(self, x):
        memory = F.relu(self.image(x)).mean(2).transpose([0, 2, 1])
        state = memory.mean(1)
        last = paddle.zeros([paddle.shape(x)[0], self.symbols])
        scores = paddle.zeros([1])
        step = paddle.zeros([1], dtype="int64")
        while paddle.logical_and(step < 6, scores.sum() < 4.0):
            weights = F.softmax(paddle.matmul(memory, state.unsqueeze(2)).squeeze(2), axis=-1)
            context = (weights.unsqueeze(2) * memory).sum(1)
            state, _ = self.cell(paddle.concat([last, context], axis=1), state)
            last = F.softmax(self.head(state), axis=-1)
            scores = scores + last.max()
            step = step + 1
        if scores.sum() > 2.0:
            last = last * 2
        else:
            last = last - 1
        return last, step, scores


class Detector(nn.Layer):
    """Pieces of detectors: upsampling by factor and by size, transposed convolution, gates, concatenation, sorting, gathering."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, stride=2, padding=1, bias_attr=False)
        self.norm = nn.BatchNorm2D(8)
        self.down = nn.Conv2D(8, 8, 3, stride=2, padding=1, groups=8)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2D(1), nn.Conv2D(8, 4, 1), nn.ReLU(), nn.Conv2D(4, 8, 1), nn.Hardsigmoid())
        self.up = nn.Conv2DTranspose(16, 4, 2, stride=2)
        self.head = nn.Conv2D(4, 6, 1)
        self.prelu, self.group = nn.PReLU(4), nn.GroupNorm(2, 4)

    def forward(self, x):
        x = F.leaky_relu(self.norm(self.stem(x)), 0.1)
        y = F.silu(self.down(x))
        y = y + y * self.gate(y)
        small = F.interpolate(y, scale_factor=2, mode="nearest")
        sized = F.interpolate(y, size=paddle.shape(x)[2:], mode="bilinear", align_corners=False)
        z = self.group(self.prelu(self.up(paddle.concat([small + x, F.relu6(sized)], axis=1))))
        z = self.head(F.pad(z, [1, 1, 0, 0], mode="reflect"))
        scores = F.sigmoid(z.flatten(2).transpose([0, 2, 1]))
        best, index = paddle.topk(scores.max(-1), 5, axis=1)
        chosen = paddle.take_along_axis(scores, index.unsqueeze(-1).expand([-1, -1, 6]), 1)
        return z, best, chosen, paddle.where(chosen > 0.5, chosen, paddle.zeros_like(chosen)).cumsum(1)


class Yolo(nn.Layer):
    """A head of YOLOv3 in two sizes, and the boxes that stay, with their scores doubled: what follows them has their number."""

    anchors, classes = [[10, 13, 16, 30], [33, 23, 30, 61, 59, 119]], 4

    def __init__(self, iou_aware: bool = False):
        super().__init__()
        self.body = nn.Conv2D(3, 8, 3, stride=8, padding=1)
        each = self.classes + (6 if iou_aware else 5)
        self.heads = nn.LayerList(nn.Conv2D(8, len(sizes) // 2 * each, 1) for sizes in self.anchors)
        self.iou_aware = iou_aware

    def forward(self, x):
        sizes = paddle.shape(x)[2:].astype("int32").unsqueeze(0).expand([paddle.shape(x)[0], 2])
        features, boxes, scores = 3 * self.body(x), [], []
        for level, head in enumerate(self.heads):
            of_level = paddle.vision.ops.yolo_box(
                head(features if level == 0 else F.avg_pool2d(features, 2)), sizes, self.anchors[level], self.classes, 0.3, 8 << level,
                clip_bbox=level == 0, scale_x_y=1.0 + 0.05 * level, iou_aware=self.iou_aware, iou_aware_factor=0.4,
            )  # fmt: skip
            boxes.append(of_level[0])
            scores.append(of_level[1].transpose([0, 2, 1]))
        found, places, numbers = paddle._C_ops.multiclass_nms3(
            paddle.concat(boxes, 1), paddle.concat(scores, 2), None, 0.05, 60, 30, 0.45, False, 1.0, -1
        )
        return found, places, numbers, found[:, 1:2] * 2


class Chooser(nn.Layer):
    """Sizes that only a run can say: elements that are not zero, masked elements, a slice and a number of best ones by a computed bound."""

    def __init__(self):
        super().__init__()
        self.score = nn.Conv2D(3, 1, 3, stride=4, padding=1)

    def forward(self, x):
        score = self.score(x).flatten(1)
        mask = score > 0.2
        chosen = paddle.masked_select(score, mask)
        count = mask.sum().reshape([1]) // 3 + 1
        part = paddle.slice(score, [1], [0], [count.astype("int32")])
        best, _ = paddle.topk(score + 1, count, axis=1)
        written = score * 1
        written[:, 0] = best[:, -1]
        written[:, 2:4] = 7.0
        written[:, count[0] + 4 :: 2] = score[:, :1]
        return paddle.nonzero(mask), chosen * 2, part - best, paddle.where(mask)[1], written


IMAGE = [Spec([None, 3, None, None], "float32", "x")]
NETWORKS = {
    "encoder": (Encoder, [Spec([None, None], "int64", "ids")]),
    "recogniser": (Recogniser, IMAGE),
    "recogniser_gru": (lambda: Recogniser("GRU"), IMAGE),
    "decoder": (Decoder, IMAGE),
    "detector": (Detector, IMAGE),
    "yolo": (Yolo, IMAGE),
    "yolo_iou": (lambda: Yolo(iou_aware=True), IMAGE),
    "chooser": (Chooser, IMAGE),
}


def network(name: str):
    """A network with the inputs that it is saved with; one of ``paddle.vision.models`` where it is none of the above."""
    if name in NETWORKS:
        make, inputs = NETWORKS[name]
        return make(), inputs
    # The channel shuffle of ShuffleNet is written down for fixed sizes.
    size = [None, 3, 64, 64] if name.startswith("shufflenet") else [None, 3, None, None]
    return getattr(paddle.vision.models, name)(), [Spec(size, "float32", "x")]


def main(folder: str, *names: str) -> None:
    for name in names:
        paddle.seed(7)
        model, inputs = network(name)
        model.eval()
        paddle.jit.save(model, str(Path(folder) / name), input_spec=inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
