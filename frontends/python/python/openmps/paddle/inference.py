"""``paddle.inference`` on device ``mps``: a plug-in device starts with an empty list of passes, so that batch normalisation and
activations would run as operators of their own. :func:`passes` is the list that ``Config.enable_custom_device`` fills in."""

from __future__ import annotations

_PASSES = (
    "conv_bn_fuse_pass",
    "conv_eltwiseadd_bn_fuse_pass",
    "conv_transpose_bn_fuse_pass",
    "conv_transpose_eltwiseadd_bn_fuse_pass",
)


def passes() -> tuple[str, ...]:
    """The passes that run on a program for device ``mps``, in order: each folds operators into others that the device has."""
    return _PASSES


def install(paddle) -> None:
    """Lets ``Config.enable_custom_device('mps')`` fill the list of passes. Passes that the program has asked for stay."""
    import paddle.inference

    config = paddle.inference.Config
    original = config.enable_custom_device

    def enable_custom_device(self, device_type, device_id=0, *args, **kwargs):
        original(self, device_type, device_id, *args, **kwargs)
        if device_type == "mps":
            builder = self.pass_builder()
            present = set(builder.all_passes())
            for name in passes():
                if name not in present:
                    builder.append_pass(name)

    enable_custom_device.__doc__ = original.__doc__
    config.enable_custom_device = enable_custom_device
