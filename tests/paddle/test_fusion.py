"""The fusion of inference programs is the same function: on models, and on random programs of what it knows."""

from __future__ import annotations

import numpy as np
import pytest
from openmps.paddle.fusion import Epilogue, fuse
from openmps.paddle.graph import make_operator
from openmps.paddle.program import Program, UnsupportedProgram
from paddle import inference
from paddle.base.proto import framework_pb2 as pb

GEOMETRY = {"dilations": (1, 1), "padding_algorithm": "EXPLICIT", "data_format": "NCHW"}


class Builder:
    """Writes a legacy program of one image operator by operator, at 1 x channels x 12 x 16."""

    def __init__(self, seed: int, channels: int = 6) -> None:
        self.rng = np.random.default_rng(seed)
        self.program = Program(pb.ProgramDesc(), {})
        self.program.desc.blocks.add(idx=0, parent_idx=-1)
        self.channels, self.count = channels, 0
        for name, kind in (("feed", pb.VarType.FEED_MINIBATCH), ("fetch", pb.VarType.FETCH_LIST)):
            var = self.program.block.vars.add(name=name, persistable=True)
            var.type.type = kind
        self.now = self.variable("x", (-1, channels, -1, -1))
        self.operator("feed", {"X": "feed"}, {"Out": "x"}, {"col": 0})
        self.shape = (-1, channels, -1, -1)

    def variable(self, name: str, dims: tuple[int, ...], persistable: bool = False) -> str:
        var = self.program.block.vars.add(name=name, persistable=persistable)
        var.type.type = pb.VarType.DENSE_TENSOR
        var.type.dense_tensor.tensor.data_type = pb.VarType.FP32
        var.type.dense_tensor.tensor.dims.extend(dims)
        return name

    def parameter(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        self.count += 1
        name = self.variable(f"p{self.count}", shape, persistable=True)
        self.program.parameters[name] = self.rng.uniform(low, high, shape).astype(np.float32)
        return name

    def operator(self, kind: str, inputs: dict, outputs: dict, attributes: dict) -> None:
        self.program.block.ops.append(make_operator(kind, inputs, outputs, attributes))

    def step(self, kind: str, inputs: dict, attributes: dict, slot: str = "Out", shape: tuple[int, ...] | None = None, **more: str) -> str:
        """An operator whose result is the feature map from now on."""
        self.count += 1
        self.shape = shape or self.shape
        self.now = self.variable(f"v{self.count}", self.shape)
        self.operator(kind, inputs, {slot: self.now, **more}, attributes)
        return self.now

    def finish(self) -> tuple[bytes, bytes]:
        self.operator("fetch", {"X": self.now}, {"Out": "fetch"}, {"col": 0})
        return self.program.serialise()

    # what a random program is made of

    def convolution(self) -> None:
        size = int(self.rng.choice([1, 3]))
        filters = self.parameter(self.channels, self.channels, size, size, low=-0.4, high=0.4)
        attributes = GEOMETRY | {"strides": (1, 1), "paddings": (size // 2,) * 2, "groups": 1}
        self.step("conv2d", {"Input": self.now, "Filter": filters}, attributes, "Output")

    def depthwise(self) -> None:
        filters = self.parameter(self.channels, 1, 5, 5)
        attributes = GEOMETRY | {"strides": (1, 1), "paddings": (2, 2), "groups": self.channels}
        self.step("depthwise_conv2d", {"Input": self.now, "Filter": filters}, attributes, "Output")

    def transposed(self) -> None:
        filters = self.parameter(self.channels, self.channels, 2, 2)
        attributes = GEOMETRY | {"strides": (2, 2), "paddings": (0, 0), "groups": 1, "output_padding": (), "output_size": ()}
        self.step("conv2d_transpose", {"Input": self.now, "Filter": filters}, attributes, "Output")
        filters = self.parameter(self.channels, self.channels, 2, 2)
        attributes = GEOMETRY | {"strides": (2, 2), "paddings": (0, 0), "groups": 1}
        self.step("conv2d", {"Input": self.now, "Filter": filters}, attributes, "Output")

    def bias(self) -> None:
        self.step("elementwise_add", {"X": self.now, "Y": self.parameter(self.channels)}, {"axis": 1})

    def scalar_product(self) -> None:
        self.step("elementwise_mul", {"X": self.parameter(1, low=0.5, high=1.5), "Y": self.now}, {"axis": -1})

    def scalar_sum(self) -> None:
        self.step("elementwise_add", {"X": self.now, "Y": self.parameter(1)}, {"axis": -1})

    def scale(self) -> None:
        after = bool(self.rng.integers(2))
        self.step("scale", {"X": self.now}, {"scale": 0.75, "bias": 0.5, "bias_after_scale": after})

    def batch_norm(self) -> None:
        names = {slot: self.parameter(self.channels) for slot in ("Scale", "Bias", "Mean")}
        names["Variance"] = self.parameter(self.channels, low=0.5, high=1.5)
        attributes = {"is_test": True, "epsilon": 1e-5, "momentum": 0.9, "data_layout": "NCHW", "use_global_stats": False}
        attributes["trainable_statistics"] = False
        saved = {slot: self.variable(f"{slot}{self.count}", (self.channels,)) for slot in ("SavedMean", "SavedVariance")}
        more = saved | {"MeanOut": names["Mean"], "VarianceOut": names["Variance"]}
        self.step("batch_norm", {"X": self.now, **names}, attributes, "Y", **more)

    def activation(self) -> None:
        kind, attributes = [
            ("relu", {}),
            ("sigmoid", {}),
            ("swish", {"beta": 1.0}),
            ("hard_sigmoid", {"slope": 0.2, "offset": 0.5}),
            ("hard_swish", {"threshold": 6.0, "scale": 6.0, "offset": 3.0}),
            ("tanh", {}),  # nothing that an epilogue has: it stays
        ][self.rng.integers(6)]
        self.step(kind, {"X": self.now}, attributes)

    def dropout(self) -> None:
        mask = self.variable(f"mask{self.count}", self.shape)
        attributes = {"dropout_prob": 0.1, "is_test": True, "dropout_implementation": "upscale_in_train"}
        self.step("dropout", {"X": self.now}, attributes, Mask=mask)

    def residual(self) -> None:
        source = self.now
        self.convolution()
        self.bias()
        pair = (source, self.now) if self.rng.integers(2) else (self.now, source)
        self.step("elementwise_add", {"X": pair[0], "Y": pair[1]}, {"axis": -1})

    def doubled(self) -> None:
        self.step("elementwise_add", {"X": self.now, "Y": self.now}, {"axis": -1})

    def gate(self) -> None:
        """Squeeze and excitation, with the sum behind it or without."""
        source, shape = self.now, self.shape
        pool = {"ksize": (1, 1), "strides": (1, 1), "paddings": (0, 0), "adaptive": True, "pooling_type": "avg", "data_format": "NCHW"}
        pool |= {"padding_algorithm": "EXPLICIT", "exclusive": True, "global_pooling": False, "ceil_mode": False}
        self.step("pool2d", {"X": source}, pool, shape=(-1, self.channels, 1, 1))
        self.convolution()
        self.bias()
        self.step("hard_sigmoid", {"X": self.now}, {"slope": 0.2, "offset": 0.5})
        product = self.step("elementwise_mul", {"X": source, "Y": self.now}, {"axis": -1}, shape=shape)
        if self.rng.integers(2):
            self.step("elementwise_add", {"X": source, "Y": product}, {"axis": -1})


STEPS = [
    *(Builder.convolution, Builder.convolution, Builder.depthwise, Builder.transposed, Builder.residual, Builder.doubled, Builder.gate),
    *(Builder.bias, Builder.scalar_product, Builder.scalar_sum, Builder.scale, Builder.batch_norm, Builder.dropout),
    *(Builder.activation, Builder.activation),
]


def random_program(seed: int, length: int = 14) -> tuple[bytes, bytes]:
    builder = Builder(seed)
    for index in builder.rng.integers(len(STEPS), size=length):
        STEPS[index](builder)
        if index in (4, 5, 6):  # keep numbers near one, but leave chains behind convolutions
            builder.step("tanh", {"X": builder.now}, {})
    return builder.finish()


def predict(files: tuple[bytes, bytes], data: np.ndarray, device: str) -> np.ndarray:
    """Runs a program from memory, which the hook leaves as it is."""
    config = inference.Config()
    config.set_model_buffer(files[0], len(files[0]), files[1], len(files[1]))
    config.disable_gpu()
    config.disable_mkldnn()
    config.switch_ir_optim(False)
    if device != "cpu":
        config.enable_custom_device(device, 0)
    predictor = inference.create_predictor(config)
    handle = predictor.get_input_handle(predictor.get_input_names()[0])
    handle.copy_from_cpu(data)
    predictor.run()
    return predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()


def kinds(files: tuple[bytes, bytes]) -> list[str]:
    return [operator.type for operator in pb.ProgramDesc.FromString(files[0]).blocks[0].ops]


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (2, 6, 12, 16)).astype(np.float32)


def assert_close(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=0, atol=5e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize("seed", range(40))
def test_folding_keeps_the_function(seed: int) -> None:
    files = random_program(seed)
    folded = fuse(*files, fused=False)
    assert_close(predict(folded, image(seed), "cpu"), predict(files, image(seed), "cpu"))


@pytest.mark.parametrize("seed", range(40))
def test_fused_on_the_device(seed: int) -> None:
    files = random_program(seed)
    assert_close(predict(fuse(*files), image(seed), "mps"), predict(files, image(seed), "cpu"))


def test_a_block_of_pp_ocr_is_one_operator() -> None:
    builder = Builder(0)
    builder.depthwise()
    for step in (builder.bias, builder.scalar_product, builder.scalar_sum):
        step()
    builder.step("hard_swish", {"X": builder.now}, {"threshold": 6.0, "scale": 6.0, "offset": 3.0})
    builder.scalar_product()
    builder.scalar_sum()
    assert kinds(fuse(*builder.finish())) == ["feed", "fused_conv2d_add_act", "fetch"]


def test_what_others_read_stays() -> None:
    """The result of a convolution with two readers is not fused away."""
    builder = Builder(0)
    builder.convolution()
    source = builder.now
    builder.step("relu", {"X": source}, {})
    builder.step("elementwise_mul", {"X": builder.now, "Y": source}, {"axis": -1})
    files = builder.finish()
    assert kinds(fuse(*files)) == kinds(files)


def test_what_is_fetched_stays() -> None:
    builder = Builder(0)
    builder.convolution()
    builder.operator("fetch", {"X": builder.now}, {"Out": "fetch"}, {"col": 1})
    builder.step("relu", {"X": builder.now}, {})
    files = builder.finish()
    assert kinds(fuse(*files)) == kinds(files)


def test_parameters_are_kept_to_the_bit() -> None:
    files = random_program(3)
    assert Program.parse(*files).serialise() == files


def test_programs_that_are_refused() -> None:
    model, parameters = random_program(1)
    with pytest.raises(UnsupportedProgram, match="JSON"):
        fuse(b'{"program": {}}', parameters)
    with pytest.raises(UnsupportedProgram, match="file of parameters"):
        fuse(model, parameters[:-1])
    with pytest.raises(UnsupportedProgram, match="more than the program names"):
        fuse(model, parameters + b"\0")
    branched = pb.ProgramDesc.FromString(model)
    branched.blocks.add(idx=1, parent_idx=0)
    with pytest.raises(UnsupportedProgram, match="control flow"):
        fuse(branched.SerializeToString(), parameters)


def test_epilogue_as_text() -> None:
    assert str(Epilogue()) == "identity"
    assert str(Epilogue("relu")) == "relu"
    assert str(Epilogue("hardsigmoid", 0.2, 0.5)) == "hardsigmoid 0.2 0.5 1.0 0.0"
    assert str(Epilogue("hardswish").then(2.0, 1.0).then(0.5, 0.25)) == "hardswish 0.0 0.0 1.0 0.75"
