"""The tables of docs/performance.md, from runs of compare.py: of two, with several threads and with one, every peer; of more, side by side, the
fastest peer of each.

    python benches/document.py target/bench/two/bench.json target/bench/one/bench.json
    python benches/document.py target/bench/*/bench.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PEERS = {"paddle_cpu": "Paddle CPU", "numpy_cpu": "NumPy", "torch_cpu": "PyTorch CPU", "onnxruntime_cpu": "ONNX Runtime"}
TRAINING = "train "


def main() -> None:
    runs = [json.loads(Path(path).read_text()) for path in sys.argv[1:]]
    if len(runs) == 2:
        _two(*runs)
    else:
        _side_by_side(runs)


def _two(several: dict, one: dict) -> None:
    threads = [_threads(run) for run in (several, one)]
    for training in (False, True):
        works = [work for work in several["microseconds"] if work.startswith(TRAINING) == training]
        peers = [peer for peer in PEERS if any(peer in several["microseconds"][work] for work in works)]
        header = ["work", f"{threads[0]}, ms", "of ceiling", *(PEERS[peer] for peer in peers), f"{threads[1]}, ms", "of ceiling", "fastest peer"]
        _print_row(header)
        _print_row(["---"] * len(header))
        for work in works:
            _print_row([work.removeprefix(TRAINING), *_of_all(several, work, peers), *_of_fastest(one, work)])
        print()


def _side_by_side(runs: list[dict]) -> None:
    """A column for each run: our time, our share of the ceiling, the fastest peer."""
    _print_row(["work", *(f"{run['machine']['level']}, {_threads(run)}" for run in runs)])
    _print_row(["---"] * (1 + len(runs)))
    for work in runs[0]["microseconds"]:
        _print_row([work, *("; ".join(filter(None, _of_fastest(run, work))) for run in runs)])


def _threads(run: dict) -> str:
    return f"{run['machine']['threads']} thread{'s' if run['machine']['threads'] > 1 else ''}"


def _of_all(run: dict, work: str, peers: list[str]) -> list[str]:
    """Our time, our share of the ceiling, each peer's time with its ratio to ours."""
    times = run["microseconds"][work]
    beside = [f"{_milliseconds(times[peer])} ({times[peer] / times['openmps']:.2f})" if peer in times else "" for peer in peers]
    return [_milliseconds(times["openmps"]), _share(run, work), *beside]


def _of_fastest(run: dict, work: str) -> list[str]:
    """Our time, our share of the ceiling, the fastest peer's time over ours."""
    times = run["microseconds"].get(work)
    if times is None:
        return ["", "", ""]
    ratios = {peer: times[peer] / times["openmps"] for peer in PEERS if peer in times}
    fastest = min(ratios, key=lambda peer: ratios[peer], default=None)
    return [_milliseconds(times["openmps"]), _share(run, work), f"{PEERS[fastest]} ({ratios[fastest]:.2f})" if fastest else ""]


def _share(run: dict, work: str) -> str:
    share = run["shares"].get(work)
    return "" if share is None else f"{share:.2f}"


def _milliseconds(microseconds: float) -> str:
    milliseconds = microseconds / 1e3
    return f"{milliseconds:.3g}" if milliseconds < 100 else f"{milliseconds:.0f}"


def _print_row(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
