"""python -m differential SUITE: what `cargo xtask differential` runs."""

import argparse
import importlib
import random
import sys

# Each is a package beside this file with `run(seconds, seed)`, which prints what it finds and returns whether everything agreed.
SUITES = ("paddle", "triton")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--seconds", type=float, default=60, help="how long")
    parser.add_argument("--seed", type=int, help="of the random programs, to repeat a run; a fresh one when absent")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if chosen.seed is None else chosen.seed
    print(f"{chosen.suite}: seed {seed}; repeat with cargo xtask differential {chosen.suite} --seed {seed}", flush=True)
    agreed = importlib.import_module(f"differential.{chosen.suite}").run(chosen.seconds, seed)
    return 0 if agreed else 1


if __name__ == "__main__":
    sys.exit(main())
