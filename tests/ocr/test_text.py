"""Whole pages: the text is what Paddle's CPU reads, at the same places and with the same confidence."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pipeline import IMAGES, Reader


def test_same_text(image: Path, reader: Reader, cpu_reader: Reader) -> None:
    result, expected = reader(image), cpu_reader(image)
    assert [line.text for line in result] == [line.text for line in expected]
    for line, wanted in zip(result, expected, strict=True):
        assert np.abs(line.box - wanted.box).max() <= 2.0, line.text  # pixels: a border of a box may round to the next one
        assert abs(line.confidence - wanted.confidence) <= 2e-3, line.text


def test_the_text_is_the_committed_one(cpu_reader: Reader) -> None:
    """What the example in Rust is compared with."""
    expected = json.loads((IMAGES[0].parent / "text.json").read_text(encoding="utf-8"))
    assert {path.stem: [line.text for line in cpu_reader(path)] for path in IMAGES} == expected


def test_the_cpu_reads_the_images(cpu_reader: Reader) -> None:
    """The expectation itself is worth something: the CPU finds text on every page but the empty one."""
    lines = {path.stem: cpu_reader(path) for path in IMAGES}
    assert len(lines) >= 12
    assert lines.pop("empty") == []
    assert all(lines.values())
    words = {name: " ".join(line.text for line in page) for name, page in lines.items()}
    assert "quick brown fox" in words["latin"]
    assert "春眠不觉晓" in words["chinese"]
    assert "upside down" in words["rotated"]
    assert "TOTAL" in words["receipt"]
