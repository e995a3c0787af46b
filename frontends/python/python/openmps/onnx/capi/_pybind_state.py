"""The same names as :mod:`openmps.onnx.capi.onnxruntime_pybind11_state`."""

from openmps.onnx import get_available_providers, get_device, set_default_logger_severity
from openmps.onnx.capi.onnxruntime_pybind11_state import *  # noqa: F403

__all__ = ["get_available_providers", "get_device", "set_default_logger_severity"]
