"""Errors by ONNX Runtime's names; each is also the error of Python that openmps raises elsewhere."""

from __future__ import annotations


class Fail(RuntimeError):
    """A run that failed."""


class RuntimeException(RuntimeError):
    """ONNX Runtime's name for an error within a step."""


class EPFail(RuntimeError):
    """ONNX Runtime's name for an error of a provider."""


class InvalidArgument(ValueError):
    """What a run is given does not fit the model."""


class InvalidGraph(ValueError):
    """A model that cannot be read."""


class InvalidProtobuf(InvalidGraph):
    """ONNX Runtime's name for a file that is no model."""


class NoSuchFile(FileNotFoundError):
    """A model's file that is not there."""


class NotImplemented(NotImplementedError):
    """Operators that openmps does not have."""
