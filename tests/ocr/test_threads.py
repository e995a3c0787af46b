"""Eight threads, each with a pipeline of its own on the same device, read what one thread reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline import IMAGES, Line, Predictor, Reader

THREADS = 8
PAGES = [path for path in IMAGES if path.stem in {"mixed", "sign", "rotated", "tilted", "vertical", "empty"}]


def text(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def test_readers_in_threads(device: str, reader: Reader) -> None:
    expected = [text(reader(page)) for page in PAGES]
    readers = [Reader(device) for _ in range(THREADS)]

    def read_all(number: int) -> list[list[str]]:
        order = np.roll(np.arange(len(PAGES)), number)  # so that no two threads are at the same page
        pages = {index: text(readers[number](PAGES[index])) for index in order}
        return [pages[index] for index in range(len(PAGES))]

    with ThreadPoolExecutor(THREADS) as pool:
        for result in pool.map(read_all, range(THREADS)):
            assert result == expected


def test_models_in_threads(device: str) -> None:
    """The same bits, whatever else runs: thread pools and scratch memory are not mixed up."""
    data = [np.random.default_rng(seed).uniform(-1, 1, (2, 3, 48, 64 + 16 * seed)).astype(np.float32) for seed in range(THREADS)]
    predictors = [Predictor("rec", device) for _ in range(THREADS)]
    expected = [predictor(part) for predictor, part in zip(predictors, data, strict=True)]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(5):
            results = pool.map(lambda predictor, part: predictor(part), predictors, data)
            for result, wanted in zip(results, expected, strict=True):
                assert np.array_equal(result, wanted)
