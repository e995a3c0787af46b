"""Random kernels against Triton's interpreter: a bounded part of `cargo xtask differential triton`, and what that command itself must do."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import triton

import versions
from differential.triton.case import Buffer, Statement
from differential.triton.compare import difference
from differential.triton.elements import SIGNED, bfloat16_bits
from differential.triton.generate import case
from differential.triton.runs import Sides, explore, smallest
from differential.triton.worker import GUARD

I64 = SIGNED[-1]

#: Before 3.7 it converts arrays of one element as NumPy 2.4 no longer does, before 3.9 a histogram's last bin counts the number behind it too.
needs_interpreter = versions.needs(tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9), "interpreter that can be compared with")


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    both = Sides(tmp_path_factory.mktemp("kernels"))
    yield both
    both.end()


@needs_interpreter
@pytest.mark.parametrize("seed", [20260701, random.SystemRandom().randrange(2**32)], ids=["fixed", "fresh"])
def test_random_kernels_do_what_the_interpreter_does(sides, seed):
    report = explore(12.0, seed, sides, most=150, most_failures=1)
    shown = "\n".join(kernel.text() for _, _, kernel in report.failures)
    assert not report.problems(), f"seed {seed}: {report.problems()}\n{report.refusals}\n{report.unusable}\n{shown}"


@needs_interpreter
def test_a_wrong_kernel_is_found_and_made_small(sides):
    kernel = case(20260701, 2)
    number = len(kernel.buffers)
    # What the two sides do differently: a loop's variable is an int32 when compiled, and a number of Python's when interpreted.
    lines = ["small = tl.full([], 127, tl.int8)", "for step in range(0, 1):", "    tl.store(wrong, (small + (step + 1)).to(tl.int64))"]
    wrong = replace(
        kernel,
        parameters=[*kernel.parameters, ("wrong", (number, 0))],
        buffers=[*kernel.buffers, Buffer(I64, 4, "zero", 0)],
        statements=[*kernel.statements, Statement(lines)],
    )
    outcome, what = sides.try_case(wrong, "wrong")
    assert (outcome, what.split(":")[0]) == ("failed", f"buffer {number} (int64)"), what
    small, _ = smallest(sides, wrong, what, 30)
    assert len(small.statements) == 1
    assert "[0] 128 instead of -128" in sides.try_case(small, "small")[1]


def test_the_text_of_a_kernel_is_one_of_its_seed():
    assert case(3, 4).text() == case(3, 4).text() != case(3, 5).text()


def _memory(values: np.ndarray) -> bytes:
    return bytes(GUARD) + values.tobytes() + bytes(GUARD)


@pytest.mark.parametrize(
    ("name", "ours", "theirs", "tolerance", "says"),
    [
        ("float32", [1.0, np.nan], [1.0, np.nan], 0, None),
        ("float32", [0.0, 1.0], [-0.0, 1.0], 0, "1 of 2 differ: [0] 0.0 instead of -0.0"),
        ("float32", [1.0, np.nextafter(np.float32(1), np.float32(2))], [1.0, 1.0], 0, "1 of 2 differ"),
        ("float32", [1.0, np.nextafter(np.float32(1), np.float32(2))], [1.0, 1.0], 1, None),
        ("float32", [1.0, 1.001], [1.0, 1.0], 4, "1 of 2 differ"),
        ("float64", [np.inf, 1.0], [np.nan, 1.0], 4, "[0] inf instead of nan"),
        ("int8", [3, -1], [3, 1], 0, "[1] -1 instead of 1"),
    ],
)
def test_values_are_compared_to_the_last_bit_or_to_a_tolerance(name, ours, theirs, tolerance, says):
    found = difference([(name, 2, "zero", 0, tolerance)], [_memory(np.array(ours, name))], [_memory(np.array(theirs, name))])
    assert (found is None) if says is None else says in found, found


def test_written_guards_are_found():
    clean = _memory(np.zeros(2, "int32"))
    for at, says in ((GUARD - 1, "1 bytes before it"), (GUARD + 8, "1 bytes behind it")):
        found = difference([("int32", 2, "zero", 0, 0)], [clean[:at] + b"\x01" + clean[at + 1 :]], [clean])
        assert says in found


def test_bfloat16_is_rounded_to_the_nearest_with_ties_to_even():
    values = np.array([1.0, 1.00390625, 1.01171875, np.inf, np.nan, 3.4e38], np.float32)
    assert bfloat16_bits(values).tolist() == [0x3F80, 0x3F80, 0x3F82, 0x7F80, 0x7FC0, 0x7F80]


def test_the_suite_is_where_the_command_looks_for_it():
    package = Path(__file__).parents[1] / "differential"
    assert (package / "__main__.py").exists() and (package / "triton" / "__init__.py").exists()
