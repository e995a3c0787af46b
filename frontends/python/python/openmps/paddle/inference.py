"""``paddle.inference`` on device ``mps``.

A plug-in device starts with an empty list of passes: batch normalisation, scalar factors and activations would run as operators of
their own. So a program that is placed on ``mps`` is fused before its predictor is made (:mod:`openmps.paddle.fusion`); what cannot
be fused there gets the passes of Paddle that help. ``OPENMPS_FUSION=0`` switches the fusion off.
"""

from __future__ import annotations

import logging
import weakref
from pathlib import Path

_PASSES = (
    "conv_bn_fuse_pass",
    "conv_eltwiseadd_bn_fuse_pass",
    "conv_transpose_bn_fuse_pass",
    "conv_transpose_eltwiseadd_bn_fuse_pass",
)
_FUSED_KERNELS = ("fused_conv2d_add_act", "fc", "pixel_shuffle")
_logger = logging.getLogger("openmps")


def passes() -> tuple[str, ...]:
    """The passes that run on a program for device ``mps``, in order: each folds operators into others that the device has."""
    return _PASSES


def fused(config):
    """A copy of an ``inference.Config`` whose program is fused, or the same config where its program cannot be."""
    import paddle.inference

    from openmps import native
    from openmps.paddle.fusion import fuse
    from openmps.paddle.program import UnsupportedProgram

    if native.setting("OPENMPS_FUSION") == "0" or not _has_fused_kernels() or config.model_from_memory():
        return config
    model, parameters = Path(config.prog_file()), Path(config.params_file())
    if not (model.is_file() and parameters.is_file()):
        return config
    try:
        program = fuse(model.read_bytes(), parameters.read_bytes())
    except UnsupportedProgram as reason:
        _logger.info("%s runs without fusion: %s", model, reason)
        return config
    copy = paddle.inference.Config(config)
    copy.set_model_buffer(program[0], len(program[0]), program[1], len(program[1]))
    return copy


def _has_fused_kernels() -> bool:
    """Whether the plug-in has the kernels that a fused program asks for."""
    from paddle.base import core

    kernels = core._get_all_register_op_kernels("phi")
    return all(any("Place(mps" in key for key in kernels.get(name, ())) for name in _FUSED_KERNELS)


def install(paddle) -> None:
    """Lets ``Config.enable_custom_device('mps')`` fill the list of passes, to which passes that the program has asked for belong, and
    ``create_predictor`` fuse the program of such a config."""
    import paddle.inference

    config, create = paddle.inference.Config, paddle.inference.create_predictor
    place = config.enable_custom_device
    placed = weakref.WeakSet()

    def enable_custom_device(self, device_type, device_id=0, *args, **kwargs):
        place(self, device_type, device_id, *args, **kwargs)
        if device_type == "mps":
            placed.add(self)
            builder = self.pass_builder()
            present = set(builder.all_passes())
            for name in passes():
                if name not in present:
                    builder.append_pass(name)

    def create_predictor(config):
        return create(fused(config) if config in placed else config)

    enable_custom_device.__doc__ = place.__doc__
    create_predictor.__doc__ = create.__doc__
    config.enable_custom_device = enable_custom_device
    paddle.inference.create_predictor = create_predictor
