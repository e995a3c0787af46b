"""What a predictor is made of: the model's files and the device."""

from __future__ import annotations

import enum
import os
from pathlib import Path

__all__ = ["Config", "DataType", "PlaceType", "PrecisionType"]

# Settings of Paddle's executor that change no result and have no meaning here: they are taken, and do nothing.
_WITHOUT_MEANING = (
    "collect_shape_range_info",
    "delete_pass",
    "disable_glog_info",
    "disable_mkldnn",
    "disable_mkldnn_fc_passes",
    "disable_onednn",
    "disable_onednn_fc_passes",
    "enable_cinn",
    "enable_memory_optim",
    "enable_mkldnn",
    "enable_new_executor",
    "enable_new_ir",
    "enable_onednn",
    "enable_profile",
    "enable_save_optim_model",
    "set_cpu_math_library_num_threads",
    "set_mkldnn_cache_capacity",
    "set_onednn_cache_capacity",
    "set_optim_cache_dir",
    "set_optimization_level",
    "switch_ir_debug",
    "switch_ir_optim",
    "switch_specify_input_names",
    "switch_use_feed_fetch_ops",
)


class DataType(enum.Enum):
    """The element types of inputs and outputs."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"


class PlaceType(enum.Enum):
    """Where a tensor lies."""

    UNK = "unknown"
    CPU = "cpu"
    GPU = "gpu"
    XPU = "xpu"
    CUSTOM = "mps"


class PrecisionType(enum.Enum):
    """The element type that a program computes in. Here it is always the program's own."""

    Float32 = "float32"
    Half = "float16"
    Bfloat16 = "bfloat16"
    Int8 = "int8"


class Config:
    """``Config(program, parameters)`` or ``Config(folder)``, whose files are then ``inference.*``, ``model.*`` or the only ones there. The
    parameters of a network without weights are ``""``. A model of ONNX is one file, ``Config("NAME.onnx")``.
    """

    def __init__(self, program: str | os.PathLike | None = None, parameters: str | os.PathLike | None = None):
        self._program, self._parameters = "", ""
        self._buffers: tuple[bytes, bytes] | None = None
        self._device = 0
        if program is not None:
            self.set_model(program, parameters)

    def set_model(self, program: str | os.PathLike, parameters: str | os.PathLike | None = None) -> None:
        """The model's two files, or the folder that they are in."""
        self._buffers = None
        if Path(program).suffix == ".onnx":
            if parameters:
                raise ValueError(f"{program} holds its parameters, {parameters} is one file too many")
            self._program, self._parameters = os.fspath(program), ""
        elif parameters is not None:
            self._program, self._parameters = os.fspath(program), os.fspath(parameters)
        else:
            self._program, self._parameters = map(str, _files_of(Path(program)))

    def set_prog_file(self, program: str | os.PathLike) -> None:
        """The file of the program alone."""
        self._program, self._buffers = os.fspath(program), None

    def set_params_file(self, parameters: str | os.PathLike) -> None:
        """The file of the parameters alone."""
        self._parameters, self._buffers = os.fspath(parameters), None

    def set_model_buffer(self, program: bytes, program_size: int, parameters: bytes, parameters_size: int) -> None:
        """Both files' contents."""
        self._buffers = (bytes(program[:program_size]), bytes(parameters[:parameters_size]))

    def prog_file(self) -> str:
        """The file of the program."""
        return self._program

    def params_file(self) -> str:
        """The file of the parameters."""
        return self._parameters

    def model_dir(self) -> str:
        """The folder of the program."""
        return os.path.dirname(self._program)

    def model_from_memory(self) -> bool:
        """Whether the model was given as its files' contents."""
        return self._buffers is not None

    def enable_custom_device(self, device_type: str, device_id: int = 0, *_: object) -> None:
        """The device: ``mps`` is the only kind."""
        if device_type != "mps":
            raise ValueError(f"device {device_type!r} is not one of openmps, whose devices are called 'mps'")
        self._device = int(device_id)

    def disable_gpu(self) -> None:
        """Does nothing: the device is the one that openmps computes on, also without this."""

    def enable_use_gpu(self, *_: object, **__: object) -> None:
        """There is no CUDA device of Paddle here."""
        raise ValueError("openmps.inference has no device 'gpu': which device 'mps' is, the setting OPENMPS_DEVICE says")

    def enable_tensorrt_engine(self, *_: object, **__: object) -> None:
        """There is no other engine here than openmps' own executor."""
        raise ValueError("openmps.inference has no TensorRT: programs run on its own executor")

    def enable_onnxruntime(self) -> None:
        """There is no other engine here than openmps' own executor."""
        raise ValueError("openmps.inference has no ONNX Runtime: programs run on its own executor")

    def use_gpu(self) -> bool:
        """Whether a CUDA device of Paddle is used: never."""
        return False

    def gpu_device_id(self) -> int:
        """The number of Paddle's CUDA device, which is never used."""
        return 0

    def tensorrt_engine_enabled(self) -> bool:
        """Whether TensorRT is used: never."""
        return False

    def onnxruntime_enabled(self) -> bool:
        """Whether ONNX Runtime is used: never."""
        return False

    def ir_optim(self) -> bool:
        """Whether the program is optimised before it runs: always."""
        return True

    def glog_info_disabled(self) -> bool:
        """Whether Paddle's log is silent: there is none."""
        return True

    def custom_device_id(self) -> int:
        """The number of the device."""
        return self._device

    def summary(self) -> str:
        """What was asked for, as a text."""
        model = "in memory" if self._buffers else f"{self._program}, {self._parameters}"
        return f"model: {model}\ndevice: mps:{self._device}\nexecutor: openmps"

    def contents(self) -> tuple[bytes, bytes | Path]:
        """The program, and its parameters or their file, which stays open: they are read when a run with new shapes needs them."""
        if self._buffers is not None:
            return self._buffers
        if not self._program:
            raise ValueError("a Config needs a program and its parameters: Config('inference.json', 'inference.pdiparams')")
        # A network without weights has no second file; a program that wants weights says which are missing.
        parameters = Path(self._parameters) if self._parameters else b""
        return Path(self._program).read_bytes(), parameters


def _without_meaning(name: str):
    def setting(self, *_: object, **__: object) -> None:
        pass

    setting.__name__ = name
    setting.__qualname__ = f"Config.{name}"
    setting.__doc__ = "A setting of Paddle's executor; here it does nothing."
    return setting


for _name in _WITHOUT_MEANING:
    setattr(Config, _name, _without_meaning(_name))


def _files_of(folder: Path) -> tuple[Path, str]:
    """Program and parameters of a folder; no parameters where the folder's one program has none, as that of a network without weights."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder: name the program and its parameters, or the folder that holds both")
    for name in ("inference", "model", "__model__"):
        for ending in (".json", ".pdmodel", ""):
            program, parameters = folder / f"{name}{ending}", folder / f"{name}.pdiparams"
            if program.is_file() and parameters.is_file():
                return program, str(parameters)
    programs = [*folder.glob("*.json"), *folder.glob("*.pdmodel")]
    complete = [program for program in programs if program.with_suffix(".pdiparams").is_file()]
    if len(complete) == 1:
        return complete[0], str(complete[0].with_suffix(".pdiparams"))
    if len(programs) == 1 and not any(folder.glob("*.pdiparams")):
        return programs[0], ""
    raise FileNotFoundError(f"{folder} holds {len(programs)} programs, {len(complete)} with parameters beside them, expected one: name both files")
