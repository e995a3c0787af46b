"""Runs that were kept, one for each kind of machine: what a later run is compared with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "recorded"
# Ratios of one row move by a tenth from one run to the next.
ALLOWED = 0.8


def record(result: dict) -> Path:
    """Keeps a run's ratios; the last one of the same machine goes."""
    FOLDER.mkdir(exist_ok=True)
    ratios = {work: round(ratio, 3) for work, ratio in _ratios(result).items()}
    path = _path(result)
    path.write_text(json.dumps({"machine": result["machine"], "versions": result["versions"], "ratios": ratios}, indent=1) + "\n")
    return path


def slower(result: dict) -> Iterator[str]:
    """A line for each work that is slower beside its fastest peer than it was; a warning of its own kind where GitHub runs this."""
    if not _path(result).exists():
        return
    before = json.loads(_path(result).read_text())["ratios"]
    prefix = "::warning::" if os.environ.get("GITHUB_ACTIONS") else "slower than recorded: "
    for work, ratio in _ratios(result).items():
        if work in before and ratio < ALLOWED * before[work]:
            yield f"{prefix}{work}: {ratio:.2f} of the fastest peer, {before[work]:.2f} before"


def _ratios(result: dict) -> dict[str, float]:
    """Work -> the fastest peer's time over ours."""
    times = result["microseconds"].items()
    peers = {work: [time for library, time in row.items() if library != "openmps"] for work, row in times}
    return {work: min(peers[work]) / row["openmps"] for work, row in times if peers[work]}


def _path(result: dict) -> Path:
    machine = result["machine"]
    name = f"{machine['processor']} {machine['threads']} threads {machine['level']}"
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-').lower()}.json"
