"""The comparison as a picture: for each work a bar for each peer, as long as openmps is faster."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: a tenth of the size
from matplotlib import pyplot


def draw(figures: dict[str, dict[str, float]], names: dict[str, str], processor: str, target: Path) -> None:
    """Writes an SVG of peer time / our time; 1 is a draw."""
    peers = [library for library in names if library != "openmps"]
    works = list(figures)
    height = 0.8 / max(len(peers), 1)
    figure, axes = pyplot.subplots(figsize=(9, 0.38 * len(works) + 1.2))
    for index, peer in enumerate(peers):
        places = [(row, figures[work][peer] / figures[work]["openmps"]) for row, work in enumerate(works) if peer in figures[work]]
        axes.barh([row + (index - (len(peers) - 1) / 2) * height for row, _ in places], [r for _, r in places], height, label=names[peer])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(works)), works, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("the peer's time / the time of openmps (right of 1: openmps is faster)")
    axes.set_title(processor, fontsize=9)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(target)
    pyplot.close(figure)
