"""Programs on our executor: the numbers of Paddle's CPU, at several shapes; what is compiled, shared and given back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import openmps
from networks import LEGACY, NETWORKS, VISION, feed, files, on_cpu, ours, results

SHAPES = [(1, 64, 64), (4, 64, 96), (1, 96, 64)]
# Its classifiers are made for one size only; its pooling for no smaller one.
ONLY = {"googlenet": [(1, 224, 224)], "inception_v3": [(1, 96, 128)], "alexnet": [(1, 224, 224)], "vgg11": [(1, 224, 224)]}


def check(folder, name: str) -> None:
    predictor, cpu = ours(folder, name), on_cpu(folder, name)
    for batch, height, width in ONLY.get(name, SHAPES):
        data = feed(name, batch, height, width)
        for result, expected in zip(results(predictor, data), results(cpu, data), strict=True):
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            largest = max(np.abs(expected).max(initial=0), 1e-6)
            assert np.abs(result.astype(np.float64) - expected).max(initial=0) <= 1e-4 * largest, (name, batch, height, width)


@pytest.mark.parametrize("name", [*NETWORKS, *VISION])
def test_same_numbers_as_the_cpu(name: str, programs) -> None:
    check(programs, name)


@pytest.mark.parametrize("name", [*LEGACY, *VISION])
def test_same_numbers_of_a_legacy_program(name: str, legacy_programs) -> None:
    check(legacy_programs, name)


def test_clones_compute_the_same_in_threads(programs) -> None:
    first = ours(programs, "detector")
    inputs = [feed("detector", 1 + i % 3, 32, 32 + 32 * (i % 4)) for i in range(24)]
    expected = [results(first, data) for data in inputs]
    barrier = threading.Barrier(8)

    def work(number: int) -> list[list[np.ndarray]]:
        clone = first.clone()
        barrier.wait()
        return [results(clone, data) for data in inputs[number:] + inputs[:number]]

    with ThreadPoolExecutor(8) as pool:
        for number, found in enumerate(pool.map(work, range(8))):
            for result, wanted in zip(found, expected[number:] + expected[:number], strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(result, wanted, strict=True))


def test_memory_stays_flat_over_many_shapes(programs) -> None:
    """More shapes than are kept: no memory is lost, and an old shape computes the same again."""
    predictor = ours(programs, "detector")
    data = feed("detector", 1, 32, 32)
    expected = results(predictor, data)
    allocated = []
    for number in range(180):
        results(predictor, feed("detector", 1, 32 + 4 * (number % 15), 32 + 4 * (number // 15)))
        allocated.append(openmps.native.memory_statistics(0)["allocated"])
    assert max(allocated[90:]) <= max(allocated[:90])
    assert all(np.array_equal(a, b) for a, b in zip(results(predictor, data), expected, strict=True))


@pytest.mark.parametrize("name", ["detector", "encoder", "resnet18"])
def test_a_run_needs_no_more_memory_than_what_is_alive_at_once(name: str, programs) -> None:
    """The allocator's peak is that of the plan, which no arrangement in one arena could be below."""
    from openmps.inference.commands import _given

    predictor, data = ours(programs, name), feed(name, 2, 64, 96)
    results(predictor, data)
    _, memory = predictor._model.plan(_given(predictor, [data]))
    idle = openmps.native.memory_statistics(0)["allocated"]
    openmps.native.reset_peak_allocated(0)
    results(predictor, data)
    between = openmps.native.memory_statistics(0)["peak_allocated"] - idle - data.nbytes - memory["results"]
    assert 0 < memory["peak"] < memory["sum"]
    assert abs(between - memory["peak"]) <= 4096, (between, memory)


def test_a_loop_over_what_is_computed_is_run_anew_each_time(programs) -> None:
    predictor, cpu = ours(programs, "decoder"), on_cpu(programs, "decoder")
    rounds = set()
    for scale in (0.01, 1.0, 30.0):
        data = scale * feed("decoder", 2, 32, 48)
        for result, expected in zip(results(predictor, data), results(cpu, data), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        rounds.add(int(predictor.get_output_handle(predictor.get_output_names()[1]).copy_to_cpu()[0]))
    assert len(rounds) > 1, "the inputs were to end the loop at different rounds"


def test_operations_are_fused_and_folded(programs, program, tmp_path) -> None:
    """Of the detector's batch norms, activations, gates and biases nothing is a kernel of its own; attention is one."""
    path = tmp_path / "trace.json"
    text = """
        import json, sys
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from networks import feed, ours, results
        from openmps import native
        predictor = ours(Path(sys.argv[2]), sys.argv[3])
        data = feed(sys.argv[3], 1, 32, 32)
        results(predictor, data)
        native.trace_start(sys.argv[4])
        results(predictor, data)
        native.trace_stop()
        names = [event["name"] for event in json.loads(Path(sys.argv[4]).read_text())["traceEvents"] if event.get("ph") == "X"]
        print(json.dumps(names))
    """
    import json
    from pathlib import Path

    def names(model: str) -> list[str]:
        return json.loads(program(text, str(Path(__file__).parent), str(programs), model, str(path)).splitlines()[-1])

    resnet = names("resnet18")
    assert not {"add", "multiply", "relu", "rsqrt", "scale"} & set(resnet), resnet
    encoder = names("encoder")
    assert encoder.count("attention") == 2 and not {"softmax", "gelu"} & set(encoder), encoder


@pytest.mark.parametrize("name", ["encoder", "decoder", "resnet18"])
def test_no_paddle_is_needed(name: str, programs, program) -> None:
    """The same bits in a process that has no Paddle."""
    text = """
        import sys
        sys.modules["paddle"] = None
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        import numpy as np
        from networks import feed, ours, results
        for result in results(ours(Path(sys.argv[2]), sys.argv[3]), feed(sys.argv[3], 1, 64, 64)):
            print(result.tobytes().hex())
    """
    from pathlib import Path

    printed = program(text, str(Path(__file__).parent), str(programs), name).split()
    assert printed == [result.tobytes().hex() for result in results(ours(programs, name), feed(name, 1, 64, 64))]


def test_all_names_of_operations_are_listed(programs) -> None:
    from openmps import native

    supported = native.supported_operations()
    assert supported == sorted(set(supported)) and len(supported) > 150
    assert native.unsupported_operations(Path(files(programs, "decoder")[0]).read_bytes()) == []
