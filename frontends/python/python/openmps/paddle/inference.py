"""``paddle.inference`` on device ``mps``: programs run on the executor of openmps.

``Config.enable_custom_device('mps')`` marks a config, and ``create_predictor`` of a marked one makes a predictor of
:mod:`openmps.inference`, whether or not this Paddle has plug-ins. A program that the executor cannot run goes Paddle's way, which a
message says once. ``OPENMPS_EXECUTOR`` is ``openmps``, ``paddle``, or not set for this choice.
"""

from __future__ import annotations

import logging
import weakref

_logger = logging.getLogger("openmps")

# Passes of Paddle that help where the program runs on Paddle's executor; a plug-in device starts without any.
_PASSES = (
    "conv_bn_fuse_pass",
    "conv_eltwiseadd_bn_fuse_pass",
    "conv_transpose_bn_fuse_pass",
    "conv_transpose_eltwiseadd_bn_fuse_pass",
)


def install(paddle, *, has_device: bool) -> None:
    """Takes the two functions over; without the device (a Paddle that has no plug-ins) only the executor of openmps can run."""
    import paddle.inference

    config, create = paddle.inference.Config, paddle.inference.create_predictor
    place, set_buffer = config.enable_custom_device, config.set_model_buffer
    placed: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    buffers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def enable_custom_device(self, device_type, device_id=0, *args, **kwargs):
        if device_type != "mps":
            return place(self, device_type, device_id, *args, **kwargs)
        placed[self] = int(device_id)
        if has_device:
            place(self, device_type, device_id, *args, **kwargs)
            builder = self.pass_builder()
            present = set(builder.all_passes())
            for name in _PASSES:
                if name not in present:
                    builder.append_pass(name)

    def set_model_buffer(self, program, program_size, parameters, parameters_size):
        set_buffer(self, program, program_size, parameters, parameters_size)
        buffers[self] = (program, program_size, parameters, parameters_size)

    def create_predictor(config):
        if config not in placed:
            return create(config)
        return _ours(config, placed[config], buffers.get(config), has_device) or create(config)

    enable_custom_device.__doc__ = place.__doc__
    set_model_buffer.__doc__ = set_buffer.__doc__
    create_predictor.__doc__ = create.__doc__
    config.enable_custom_device = enable_custom_device
    config.set_model_buffer = set_model_buffer  # pyright: ignore[reportAttributeAccessIssue]  (Paddle has no type for it)
    paddle.inference.create_predictor = create_predictor


def _ours(config, device: int, buffers, has_device: bool):
    """A predictor of openmps, or None where Paddle's executor is to run the program."""
    from openmps import inference, native

    wanted = native.setting("OPENMPS_EXECUTOR")
    if wanted == "paddle" and has_device:
        return None
    own = inference.Config()
    own.enable_custom_device("mps", device)
    if buffers is not None:
        own.set_model_buffer(*buffers)
    elif config.model_dir() and not config.prog_file():
        own.set_model(config.model_dir())
    else:
        own.set_model(config.prog_file(), config.params_file())
    try:
        import paddle.inference

        return inference.Predictor(own, types=paddle.inference.DataType)
    except NotImplementedError as reason:
        if wanted == "openmps" or not has_device:
            raise
        _logger.warning("%s runs on Paddle's executor: %s", config.prog_file() or "a program in memory", reason)
        return None
