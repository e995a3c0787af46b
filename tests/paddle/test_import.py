"""`paddle.mps` is there after `import paddle`, whatever came before it; and where there is no device, everything says why."""

from __future__ import annotations

import pytest


def test_looking_before_threads_and_reloads(program):
    output = program(
        """
        import importlib, importlib.util, sys, threading
        spec = importlib.util.find_spec("paddle")
        assert spec.origin.endswith("__init__.py") and spec.loader.get_source("paddle"), spec
        threads = [threading.Thread(target=importlib.import_module, args=("paddle",)) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        import paddle
        print(type(paddle.__loader__).__name__, paddle.__spec__.loader is paddle.__loader__)
        for _ in range(2):
            print(paddle.mps.is_available(), paddle.is_compiled_with_mps(), paddle.MPSPlace(0))
            importlib.reload(paddle)
        """
    )
    assert output.splitlines() == ["SourceFileLoader True", "True True Place(mps:0)", "True True Place(mps:0)"]


def test_a_first_import_that_fails(program):
    output = program(
        """
        import sys
        class Fails:
            def find_spec(self, name, path=None, target=None):
                if name == "paddle.base":
                    raise ImportError("not yet")
        sys.meta_path.insert(0, Fails())
        try:
            import paddle
        except ImportError as error:
            print(error)
        sys.meta_path.pop(0)
        import paddle
        print(paddle.mps.is_available())
        """
    )
    assert output.splitlines() == ["not yet", "True"]


FOREIGN = """
    import importlib, os, sys
    sys.path.insert(0, sys.argv[1])
    for name in ("paddle", "triton"):
        before = dict(os.environ)
        module = importlib.import_module(name)
        assert module.__file__.startswith(sys.argv[1]), module
        assert module.environment == before == dict(os.environ), "the environment is another's"
        assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__ == "SourceFileLoader"
        assert not hasattr(module, "mps") and not hasattr(module, "is_compiled_with_mps")
        importlib.reload(module)
    loaded = sorted(name for name in sys.modules if name.startswith("openmps") or name.startswith("paddle_custom"))
    print(loaded)
"""


@pytest.mark.parametrize("form", ["module", "package"])
def test_other_people_s_modules_are_left_alone(form: str, program, tmp_path):
    for name in ("paddle", "triton"):
        file = tmp_path / f"{name}.py" if form == "module" else tmp_path / name / "__init__.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("import os\nenvironment = dict(os.environ)\n")
    assert program(FOREIGN, str(tmp_path)).strip() == "['openmps', 'openmps._hook']"


def test_a_device_that_is_not_there(failing_program):
    done = failing_program(
        """
        import paddle
        print(paddle.mps.is_available(), paddle.mps.device_count(), paddle.mps.unavailable_reason())
        print((paddle.ones([2]) + 1).numpy(), paddle.mps.empty_cache(), paddle.mps.manual_seed(1))
        tries = [
            "paddle.set_device('mps')", "paddle.device.set_device('mps:0')", "paddle.mps.set_device(0)", "paddle.MPSPlace(0)",
            "paddle.to_tensor([1.0], place='mps')", "paddle.randn([2], place='mps')", "paddle.ones([2]).to('mps')",
            "paddle.mps.Stream()", "paddle.mps.Event()", "paddle.mps.current_stream()", "paddle.mps.get_rng_state()",
            "paddle.mps.memory_allocated()", "paddle.mps.memory_stats()", "paddle.mps.synchronize()", "paddle.mps.get_device_properties()",
        ]
        for text in tries:
            try:
                print("NO ERROR", text, eval(text))
            except (RuntimeError, ValueError) as error:
                print("refused" if "is not available: no device: OPENMPS_DEVICE" in str(error) else f"WITHOUT REASON {text}: {error}")
        print(len(tries))
        """,
        OPENMPS_DEVICE="gpu",
    )
    assert done.returncode == 0, done.stderr
    first, second, *tried, count = done.stdout.splitlines()
    assert first.startswith('False 0 no device: OPENMPS_DEVICE="gpu" is not allowed: host, cuda, metal, metal-emulated'), first
    assert second == "[2. 2.] None None" and tried == ["refused"] * int(count), done.stdout
    assert done.stderr.count("\nopenmps: OPENMPS_DEVICE=") + done.stderr.startswith("openmps: OPENMPS_DEVICE=") == 1, done.stderr


@pytest.mark.parametrize("device", ["cuda", "metal"])
def test_a_device_that_this_machine_lacks(device: str, program):
    output = program(
        """
        import sys
        from paddle_custom_device import openmps_native
        try:
            openmps_native.device_properties(0)
            print("there is one")
        except RuntimeError as error:
            print(error)
            import paddle
            print(paddle.mps.is_available(), paddle.mps.unavailable_reason() in str(error) or str(error))
        """,
        OPENMPS_DEVICE=device,
    )
    assert "there is one" in output or (output.startswith("no device: ") and "False True" in output), output
