"""One library's works, measured in a process of its own on request: so no thread pool disturbs another library's.

Reads lines of JSON (``{"work": NAME, "seconds": S}``) and answers each with the durations of single runs in microseconds; ``{"work": null}`` with
the machine's ceilings.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module

Work = Callable[[], object]
# Threads of OpenMP spin for 0.2 seconds after their last work: so long the library before this one takes a core.
QUIET = 0.25
WARM = 0.02


def durations(work: Work, synchronize: Work, seconds: float) -> list[float]:
    """Microseconds of one run each, over `seconds` and at least five samples; short works are timed in groups of a millisecond."""
    time.sleep(QUIET)
    # The first call may compile; it must not decide how many are timed together.
    start = time.perf_counter()
    while time.perf_counter() - start < WARM:
        work()
    synchronize()
    group = 1
    while True:
        start = time.perf_counter()
        for _ in range(group):
            work()
        synchronize()
        if time.perf_counter() - start > 1e-3 or group > 10_000:
            break
        group *= 2
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(group):
            work()
        synchronize()
        samples.append((time.perf_counter() - start) / group * 1e6)
    return samples


def serve(library: str) -> None:
    """Answers requests until the input ends."""
    module = import_module(f"libraries.{library}")
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print must not be taken for an answer
    works = module.works()
    print(json.dumps({"works": list(works), "version": module.version()}), file=answers, flush=True)
    made: dict[str, Work] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["work"]
        if name is None:
            print(json.dumps(module.ceilings()), file=answers, flush=True)
            continue
        if name not in made:
            made.clear()  # the last work's tensors must not crowd this one's
            made[name] = works[name]()
        samples = durations(made[name], getattr(module, "synchronize", lambda: None), request["seconds"])
        print(json.dumps(samples), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
