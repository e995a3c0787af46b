"""Trains a small convolutional network on handwritten digits, and a small transformer on this project's own documents: the same lines of
Paddle on device `mps` and on Paddle's CPU, from the same parameters. Shows both losses, what was learned, and the time of a step.

    cargo xtask train [--only digits|text] [--steps N] [--picture FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
DEVICES = ("mps", "cpu")
#: Steps that are not timed: kernels are compiled and memory is found.
WARM_UP = 5


class Task(Protocol):
    """Something to learn."""

    title: str
    score: str
    steps: int
    rate: float

    def network(self) -> nn.Layer: ...

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Inputs and labels without end, the same ones each time."""

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels that are never trained on; the score is the share of labels that are found."""


class Digits:
    """The 8 x 8 images of scikit-learn's digits."""

    title, score, steps, rate = "digits, convolutional network", "digits read", 300, 2e-3
    HELD_OUT = 360

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))
        self.images = (images[order].reshape(-1, 1, 8, 8) / 16).astype("float32")
        self.labels = labels[order].astype("int64")

    def network(self) -> nn.Layer:
        def block(channels: int, wider: int) -> list[nn.Layer]:
            return [nn.Conv2D(channels, wider, 3, padding=1), nn.BatchNorm2D(wider), nn.ReLU(), nn.MaxPool2D(2)]

        return nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 2 * 2, 10))

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        generator, count = np.random.default_rng(1), len(self.labels) - self.HELD_OUT
        while True:
            chosen = generator.integers(0, count, 64)
            yield self.images[chosen], self.labels[chosen]

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        return self.images[-self.HELD_OUT :], self.labels[-self.HELD_OUT :]


class Transformer(nn.Layer):
    """Each character's scores for the next one."""

    def __init__(self, characters: int, length: int, width: int = 128, layers: int = 2, heads: int = 4):
        super().__init__()
        self.characters, self.places = nn.Embedding(characters, width), nn.Embedding(length, width)
        self.blocks = nn.LayerList([nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", normalize_before=True) for _ in range(layers)])
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, characters)
        self.register_buffer("mask", paddle.triu(paddle.full([length, length], -1e9), 1), persistable=False)

    def forward(self, text: paddle.Tensor) -> paddle.Tensor:
        x = self.characters(text) + self.places(paddle.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.scores(self.norm(x))


class Text:
    """The characters of this project's documents."""

    title, score, steps, rate = "text, transformer", "next characters guessed", 400, 1e-3
    DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
    LENGTH, HELD_OUT = 64, 32

    def __init__(self) -> None:
        text = "".join((ROOT / name).read_text(encoding="utf-8") for name in self.DOCUMENTS)
        self.letters = sorted(set(text))
        numbers = {letter: number for number, letter in enumerate(self.letters)}
        self.text = np.array([numbers[letter] for letter in text], "int64")

    def network(self) -> nn.Layer:
        return Transformer(len(self.letters), self.LENGTH)

    def windows(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = starts[:, None] + np.arange(self.LENGTH)
        return self.text[at], self.text[at + 1]

    def batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        generator, count = np.random.default_rng(1), len(self.text) - (self.HELD_OUT + 1) * (self.LENGTH + 1)
        while True:
            yield self.windows(generator.integers(0, count, 16))

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        return self.windows(len(self.text) - (np.arange(self.HELD_OUT) + 1) * (self.LENGTH + 1))


TASKS: dict[str, type[Task]] = {"digits": Digits, "text": Text}


@dataclass
class Training:
    """What one device made of a task."""

    device: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    score: float = 0.0

    @property
    def milliseconds(self) -> float:
        """The median time of a step."""
        return 1e3 * statistics.median(self.seconds[min(WARM_UP, len(self.seconds) - 1) :])


def train(task: Task, device: str, steps: int, parameters: dict[str, np.ndarray], progress: Progress) -> Training:
    """Trains from these parameters."""
    paddle.set_device(device)
    network, training = task.network(), Training(device)
    network.set_state_dict({name: paddle.to_tensor(numbers) for name, numbers in parameters.items()})
    optimizer = paddle.optimizer.AdamW(learning_rate=task.rate, parameters=network.parameters())
    line = progress.add_task(f"{task.title}, {device}", total=steps, loss="")
    for _, (inputs, labels) in zip(range(steps), task.batches()):
        begin = time.perf_counter()
        loss = F.cross_entropy(network(paddle.to_tensor(inputs)), paddle.to_tensor(labels[..., None]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        training.losses.append(float(loss))
        training.seconds.append(time.perf_counter() - begin)
        progress.update(line, advance=1, loss=f"loss {training.losses[-1]:.3f}")
    network.eval()
    inputs, labels = task.held_out()
    with paddle.no_grad():
        found = network(paddle.to_tensor(inputs)).argmax(-1).numpy()
    training.score = float((found == labels).mean())
    return training


def compare(task: Task, steps: int, progress: Progress) -> list[Training]:
    """Trains on each device from the same parameters."""
    paddle.set_device("cpu")
    paddle.seed(0)
    parameters = {name: tensor.numpy() for name, tensor in task.network().state_dict().items()}
    return [train(task, device, steps, parameters, progress) for device in DEVICES]


def table(results: dict[str, list[Training]]) -> Table:
    table = Table("task", "device", "first loss", "last loss", "learned", "a step", title="The same lines on two devices")
    for name, trainings in results.items():
        for training in trainings:
            learned = f"{training.score:.1%} {TASKS[name].score}"
            numbers = [f"{loss:.4f}" for loss in (training.losses[0], training.losses[-1])]
            table.add_row(TASKS[name].title, training.device, *numbers, learned, f"{training.milliseconds:.1f} ms")
    return table


def draw(results: dict[str, list[Training]], target: Path) -> None:
    """Losses of both devices, a panel for each task."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(results), figsize=(5.5 * len(results), 3.6), squeeze=False)
    for axes, (name, trainings) in zip(panels[0], results.items()):
        for training, style in zip(trainings, ("-", "--")):
            axes.plot(training.losses, style, linewidth=1.2, label=f"{training.device}: {training.milliseconds:.1f} ms a step")
        axes.set(title=TASKS[name].title, xlabel="step", ylabel="loss", yscale="log")
        axes.legend()
    figure.tight_layout()
    figure.savefig(target, dpi=110)
    pyplot.close(figure)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="cargo xtask train", description="Trains two small networks on device mps and on Paddle's CPU.")
    parser.add_argument("--only", choices=TASKS, help="one of the tasks")
    parser.add_argument("--steps", type=int, help="instead of each task's own number")
    parser.add_argument("--picture", type=Path, default=ROOT / "target" / "train.png", help="where the losses are drawn")
    options = parser.parse_args(arguments)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}, expected at least 1")
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[loss]}"))
    with Progress(*columns, console=console) as progress:
        chosen = {name: make() for name, make in TASKS.items() if options.only in (None, name)}
        results = {name: compare(task, options.steps or task.steps, progress) for name, task in chosen.items()}
    console.print(table(results))
    draw(results, options.picture)
    console.print(f"Losses: {options.picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
