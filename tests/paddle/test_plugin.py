"""The plug-in itself: refused with a reason where Paddle is another one, silent where Paddle is absent, gone where it is not wanted."""

import sys
from pathlib import Path


def test_a_refused_plugin_says_why(failing_program):
    done = failing_program(
        """
        import paddle
        assert paddle.is_compiled_with_mps()
        assert not paddle.mps.is_available()
        print(paddle.mps.unavailable_reason())
        print(paddle.ones([2]).place)
        """,
        OPENMPS_PADDLE_REFUSE="a test",
    )
    assert done.returncode == 0, done.stderr
    assert "a test" in done.stdout and "cpu" in done.stdout
    assert "device mps is not available" in done.stderr


def test_another_version_of_the_interface_is_refused(program):
    output = program(
        """
        import ctypes, importlib.util
        path = importlib.util.find_spec("paddle_custom_device.openmps_native").origin
        module = ctypes.CDLL(path)
        params = (ctypes.c_size_t * 16)()
        params[0] = 104
        module.InitPlugin(ctypes.byref(params))
        from paddle_custom_device import openmps_native
        print(openmps_native.plugin_state())
        params[0] = 96
        """
    )
    assert "refused" in output and "104 bytes" in output and "96" in output


def test_another_size_of_the_device_interface_is_refused(program):
    output = program(
        """
        import ctypes, importlib.util
        path = importlib.util.find_spec("paddle_custom_device.openmps_native").origin
        interface = (ctypes.c_size_t * 200)()
        interface[0] = 1136
        params = (ctypes.c_size_t * 16)()
        params[0], params[1] = 96, ctypes.addressof(interface)
        ctypes.CDLL(path).InitPlugin(ctypes.byref(params))
        from paddle_custom_device import openmps_native
        print(openmps_native.plugin_state(), list(interface[1:10]))
        """
    )
    assert "refused" in output and "1136 bytes" in output and "[0, 0, 0, 0, 0, 0, 0, 0, 0]" in output


def test_the_module_loads_without_paddle(program):
    output = program(
        """
        import sys
        from paddle_custom_device import openmps_native
        import openmps
        assert "paddle" not in sys.modules
        print(openmps.__version__, openmps.native.device_count(), openmps_native.plugin_state())
        """
    )
    assert "not loaded" in output


def test_python_starts_without_loading_anything(program):
    output = program(
        """
        import sys
        print([name for name in sys.modules if "paddle" in name or "numpy" in name or name.startswith("openmps")])
        """
    )
    assert output.strip() == "['openmps', 'openmps._hook']"


def test_a_missing_paddle_is_python_s_own_error(failing_program, tmp_path):
    done = failing_program(
        """
        import sys
        sys.path[:] = [path for path in sys.path if "site-packages" not in path]
        import paddle
        """
    )
    assert done.returncode == 1 and "ModuleNotFoundError: No module named 'paddle'" in done.stderr


def test_import_paddle_mps_needs_nothing_before(program):
    assert program("import paddle.mps as mps; print(mps.device_count() > 0)").strip() == "True"
    assert program("from paddle.mps import memory_allocated; print(memory_allocated() >= 0)").strip() == "True"


def test_a_broken_half_in_python_leaves_paddle_alive(failing_program):
    done = failing_program(
        """
        import sys
        sys.modules["openmps.paddle"] = None
        import warnings; warnings.simplefilter("always")
        import paddle
        print(paddle.to_tensor([1.0], place="cpu").numpy())
        """
    )
    assert done.returncode == 0 and "[1.]" in done.stdout and "openmps" in done.stderr


def test_slow_reads_give_the_same(program):
    """With the probed layout switched off, every read goes through the C interface."""
    text = """
        import numpy as np, paddle
        x = paddle.to_tensor(np.arange(24, dtype="float32").reshape(2, 3, 4)).transpose([2, 0, 1])
        print((x + x).contiguous().numpy().tolist())
    """
    assert program(text) == program(text, OPENMPS_PADDLE_LAYOUT="0")


def test_the_plugin_lies_where_paddle_looks():
    import paddle_custom_device.openmps_native as native

    assert Path(native.__file__).parent.name == "paddle_custom_device"
    assert "paddle_custom_device" in sys.modules
