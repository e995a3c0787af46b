"""``openmps.inference`` has the names of ``paddle.inference``, takes its place on device mps, and refuses what is wrong by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from networks import feed, files, ours, results
from openmps import inference


def test_handles(programs) -> None:
    predictor = ours(programs, "encoder")
    assert len(predictor.get_input_names()) == 1 and len(predictor.get_output_names()) == 2
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    assert (handle.shape(), handle.type()) == ([-1, -1], inference.DataType.INT64)
    data = feed("encoder", 2, 32, 0)
    by_list = predictor.run([data])
    assert all(result.flags.writeable and result.base is not None for result in by_list), "handed over, not copied"
    handle.share_external_data(data)
    assert handle.shape() == [2, 16] and predictor.run() is True
    for name, expected in zip(predictor.get_output_names(), by_list, strict=True):
        output = predictor.get_output_handle(name)
        np.testing.assert_array_equal(output.copy_to_cpu(), expected)
        assert output.type() is inference.DataType.FLOAT32 and output.shape() == list(expected.shape)
    copy = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    copy[:] = 0
    assert predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu().any(), "a copy is the caller's own"
    assert predictor.try_shrink_memory() >= 0


def test_configs(programs, tmp_path) -> None:
    program, parameters = files(programs, "encoder")
    config = inference.Config()
    config.set_model(program, parameters)
    config.enable_memory_optim()
    config.switch_ir_optim(False)
    config.set_cpu_math_library_num_threads(2)
    config.enable_custom_device("mps", 0)
    assert (config.prog_file(), config.params_file(), config.use_gpu()) == (program, parameters, False)
    assert "mps:0" in config.summary()
    for file, ending in ((program, ".json"), (parameters, ".pdiparams")):
        (tmp_path / f"inference{ending}").write_bytes(Path(file).read_bytes())
    in_memory = inference.Config()
    contents = [Path(file).read_bytes() for file in (program, parameters)]
    in_memory.set_model_buffer(contents[0], len(contents[0]), contents[1], len(contents[1]))
    data = feed("encoder", 1, 32, 0)
    expected = results(inference.create_predictor(config), data)
    for other in (inference.Config(tmp_path), in_memory):
        for result, wanted in zip(results(inference.create_predictor(other), data), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
    pool = inference.PredictorPool(config, 3)
    assert results(pool.retrieve(2), data)[0].shape == expected[0].shape


def test_wrong_use_is_refused_by_name(programs, tmp_path) -> None:
    predictor = ours(programs, "resnet18")
    handle = predictor.get_input_handle("x")
    with pytest.raises(RuntimeError, match="x was not given"):
        predictor.run()
    with pytest.raises(RuntimeError, match="run the predictor first"):
        predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    with pytest.raises(ValueError, match="no input 'y'"):
        predictor.get_input_handle("y")
    with pytest.raises(ValueError, match="float32, the array float64"):
        handle.copy_from_cpu(np.zeros((1, 3, 32, 32)))
    with pytest.raises(ValueError, match=r"\[-1, 3, -1, -1\], not \[1, 4, 8, 8\]"):
        handle.reshape([1, 4, 8, 8])
    for shape in ((1, 4, 32, 32), (3, 32, 32)):
        handle.copy_from_cpu(np.zeros(shape, np.float32))
        with pytest.raises(ValueError, match="input x: its shape is"):
            predictor.run()
    handle.copy_from_cpu(np.zeros((1, 3, 32, 32), np.float32))
    assert predictor.run(), "after errors it runs as before"
    with pytest.raises(ValueError, match="npu"):
        inference.Config().enable_custom_device("npu")
    with pytest.raises(FileNotFoundError):
        inference.create_predictor(inference.Config("nowhere.json", "nowhere.pdiparams"))
    with pytest.raises(FileNotFoundError, match="holds 0 programs"):
        inference.Config(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere is no folder"):
        inference.Config("nowhere")
    image = np.zeros((1, 3, 32, 32), np.float32)
    with pytest.raises(ValueError, match="2 arrays, the program has 1 inputs"):
        predictor.run([image, image])
    with pytest.raises(TypeError, match="not ndarray"):
        predictor.run(image)
    with pytest.raises(ValueError, match="no TensorRT"):
        inference.Config().enable_tensorrt_engine(1 << 20)


def changed(program: str, change) -> bytes:
    """A program of the new representation with a change."""
    content = json.loads(Path(program).read_text())
    change(content, content["program"]["regions"][0]["blocks"][0]["ops"])
    return json.dumps(content).encode()


def load(program: bytes, parameters: bytes):
    config = inference.Config()
    config.set_model_buffer(program, len(program), parameters, len(parameters))
    return inference.create_predictor(config)


def test_broken_models_are_refused_with_the_reason(programs, legacy_programs) -> None:
    program, parameters = files(programs, "encoder")
    text, weights = Path(program).read_bytes(), Path(parameters).read_bytes()

    def rename(content, operations):
        operations[-3]["#"], operations[-5]["#"] = "1.no_such_operation", "1.nor_this"

    with pytest.raises(NotImplementedError, match="no_such_operation, nor_this"):
        load(changed(program, rename), weights)
    with pytest.raises(ValueError, match="version 99"):
        load(changed(program, lambda content, _: content["base_code"].update(version=99)), weights)
    with pytest.raises(ValueError, match="magic"):
        load(changed(program, lambda content, _: content["base_code"].update(magic="other")), weights)
    with pytest.raises(ValueError, match="the file ends after"):
        load(text, weights[:-1])
    with pytest.raises(ValueError, match="1 bytes more"):
        load(text, weights + b"0")
    with pytest.raises(ValueError, match="the program says"):
        other = files(programs, "detector")[1]
        load(text, Path(other).read_bytes())
    with pytest.raises(ValueError, match="malformed"):
        load(text[: len(text) // 2], weights)
    legacy = Path(files(legacy_programs, "resnet18")[0]).read_bytes()
    with pytest.raises(ValueError, match="malformed|the file ends after"):
        load(legacy[: len(legacy) // 2], weights)
    with pytest.raises(ValueError):
        load(b"", b"")


def test_unknown_operations_of_a_legacy_program_are_named(legacy_programs) -> None:
    program, _ = files(legacy_programs, "formulas")
    broken = Path(program).read_bytes().replace(b"softsign", b"nosuchop").replace(b"asinh", b"axinh")
    with pytest.raises(NotImplementedError, match=r"axinh \(legacy\), nosuchop \(legacy\)|nosuchop \(legacy\), axinh \(legacy\)"):
        load(broken, b"")


def test_a_network_without_weights_needs_one_file(legacy_programs) -> None:
    program, parameters = files(legacy_programs, "formulas")
    data = feed("formulas", 1, 8, 8)
    alone = inference.create_predictor(inference.Config(program, ""))
    both = inference.create_predictor(inference.Config(program, parameters))
    for found, expected in zip(results(alone, data), results(both, data), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="the file ends after|parameter"):
        inference.create_predictor(inference.Config(files(legacy_programs, "resnet18")[0], ""))


def test_paddle_inference_comes_here(programs) -> None:
    import paddle.inference

    config = paddle.inference.Config(*files(programs, "detector"))
    config.enable_custom_device("mps", 0)
    config.enable_memory_optim()
    predictor = paddle.inference.create_predictor(config)
    assert isinstance(predictor, inference.Predictor)
    data = feed("detector", 1, 32, 32)
    for result, expected in zip(results(predictor, data), results(ours(programs, "detector"), data), strict=True):
        np.testing.assert_array_equal(result, expected)
    by_list = predictor.run([paddle.to_tensor(data)])
    for result, expected in zip(by_list, predictor.run([data]), strict=True):
        assert isinstance(result, paddle.Tensor) and isinstance(expected, np.ndarray)
        np.testing.assert_array_equal(result.numpy(), expected)
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    assert output.type() == paddle.inference.DataType.FLOAT32
    plain = paddle.inference.Config(*files(programs, "detector"))
    plain.disable_gpu()
    plain.disable_mkldnn()  # Paddle's passes for oneDNN end the process on this program
    assert not isinstance(paddle.inference.create_predictor(plain), inference.Predictor)


TAKEN = """
    import logging, sys
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    import paddle, paddle.inference
    from openmps import inference
    config = paddle.inference.Config(*sys.argv[1:3])
    config.enable_custom_device("mps", 0)
    config.disable_glog_info()
    print("available", paddle.mps.is_available())
    try:
        predictor = paddle.inference.create_predictor(config)
        print("ours" if isinstance(predictor, inference.Predictor) else "paddle's")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_the_setting_chooses_the_executor(programs, program) -> None:
    assert program(TAKEN, *files(programs, "detector"), OPENMPS_EXECUTOR="paddle").splitlines()[-1] == "paddle's"


def test_what_cannot_run_here_goes_paddles_way_and_says_so(programs, tmp_path, program) -> None:
    """An activation is renamed to an operation that Paddle has and the executor has not."""
    text, parameters = files(programs, "detector")

    def rename(content, operations):
        relu = next(operation for operation in operations if operation["#"].startswith("1.relu"))
        relu["#"] = "1.digamma"

    other = tmp_path / "other.json"
    other.write_bytes(changed(text, rename))
    printed = program(TAKEN, str(other), parameters)
    assert "runs on Paddle's executor: the program has operations that openmps cannot run: digamma" in printed
    assert printed.splitlines()[-1] == "paddle's"
    printed = program(TAKEN, str(other), parameters, OPENMPS_EXECUTOR="openmps")
    assert "NotImplementedError" in printed.splitlines()[-1] and "digamma" in printed


def test_a_paddle_without_plugins(programs, program, tmp_path) -> None:
    """As on a Mac: nothing is found where Paddle looks for plug-ins. The same call still runs the program."""
    printed = program(TAKEN, *files(programs, "detector"), CUSTOM_DEVICE_ROOT=str(tmp_path)).splitlines()
    assert printed == ["available False", "ours"]


@pytest.fixture
def paddlex(tmp_path, monkeypatch):
    """A package that names its devices where PaddleX 3.7 does."""
    modules = {
        "utils/device.py": 'SUPPORTED_DEVICE_TYPE = ["cpu", "gpu"]\n',
        "inference/models/runners/paddle_static/config/pp_option.py": "class PaddlePredictorOption:\n    SUPPORT_DEVICE = ('gpu', 'cpu')\n",
        "inference/models/runners/paddle_static/runner.py": (
            "def get_model_paths(folder, prefix):\n    return {'paddle': (folder / f'{prefix}.json', folder / f'{prefix}.pdiparams')}\n"
            "class PaddleStaticRunner:\n    def __init__(self, folder, prefix, config):\n"
            "        self.model_dir, self.model_file_prefix, self._config = folder, prefix, config\n        self.predictor = self._create()\n"
            "    def _create(self):\n        return 'its own'\n"
        ),
    }
    for name, text in modules.items():
        path = tmp_path / "paddlex" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "paddlex"]:
        del sys.modules[name]


def test_paddlex_knows_the_device(paddlex, programs, capfd) -> None:
    from paddlex.inference.models.runners.paddle_static.config.pp_option import PaddlePredictorOption
    from paddlex.inference.models.runners.paddle_static.runner import PaddleStaticRunner
    from paddlex.utils.device import SUPPORTED_DEVICE_TYPE

    assert "mps" in SUPPORTED_DEVICE_TYPE and "mps" in PaddlePredictorOption.SUPPORT_DEVICE
    runner = PaddleStaticRunner(programs, "detector", {"device_type": "mps", "device_id": None})
    data = feed("detector", 1, 32, 32)
    assert len(results(runner.predictor, data)) == 4
    assert PaddleStaticRunner(programs, "detector", {"device_type": "cpu"}).predictor == "its own"
    assert capfd.readouterr() == ("", "")


def saved(folder: Path, network, *specs):
    """A predictor of a network of Paddle."""
    import paddle

    network.eval()
    paddle.jit.save(network, str(folder / "network"), input_spec=list(specs))
    return inference.create_predictor(inference.Config(folder))


def test_inputs_without_dimensions_and_of_lists(tmp_path) -> None:
    import paddle
    from paddle.static import InputSpec

    class Twice(paddle.nn.Layer):
        def forward(self, x):
            return x * 2

    scalar = saved(tmp_path / "scalar", Twice(), InputSpec([]))
    (result,) = scalar.run([np.array(3.0, "float32")])
    assert result.shape == () and result == 6
    plain = saved(tmp_path / "plain", Twice(), InputSpec([None, 2]))
    plain.get_input_handle(plain.get_input_names()[0]).copy_from_cpu([[1.0, 2.5]])
    assert plain.run() and plain.get_output_handle(plain.get_output_names()[0]).copy_to_cpu().tolist() == [[2, 5]]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
@pytest.mark.parametrize("direction", ["forward", "bidirect"])
def test_sequences_of_different_lengths(tmp_path, kind, direction) -> None:
    import paddle
    from paddle.static import InputSpec

    class Recurrent(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.cells = getattr(paddle.nn, kind)(4, 3, num_layers=2, direction=direction)

        def forward(self, x, lengths):
            y, states = self.cells(x, sequence_length=lengths)
            return [y, *(states if isinstance(states, (tuple, list)) else [states])]

    network = Recurrent()
    predictor = saved(tmp_path, network, InputSpec([None, None, 4]), InputSpec([None], "int64"))
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype("float32")
    for lengths in ([5, 5, 5], [2, 5, 1], [3, 4, 2]):
        results = predictor.run([x, np.array(lengths)])
        with paddle.no_grad():
            expected = network(paddle.to_tensor(x), paddle.to_tensor(lengths))
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-5, atol=1e-6)
