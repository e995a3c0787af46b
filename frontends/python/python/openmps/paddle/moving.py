"""``Tensor.cuda``: where there are plug-in devices Paddle takes the last one's place for CUDA's, but makes it without the device's name, a TypeError."""

from __future__ import annotations

import functools

from openmps.paddle.devices import DEVICE_TYPE


def install(paddle) -> None:
    """Lets ``x.cuda(0)`` bring a tensor to ``mps:0``, and ``x.cuda()`` where the CPU is the current device."""
    original = paddle.Tensor.cuda

    @functools.wraps(original)
    def cuda(self, device_id=None, blocking=True):
        is_named = isinstance(device_id, int) or (device_id is None and paddle.device.get_device() == "cpu")
        if not is_named or paddle.device.get_all_device_type()[-1] != DEVICE_TYPE:
            return original(self, device_id, blocking)
        place = paddle.MPSPlace(device_id or 0)
        if self.place._equals(place):
            return self
        moved = self._copy_to(place, blocking)
        moved.stop_gradient, moved.persistable = self.stop_gradient, self.persistable
        return moved

    paddle.Tensor.cuda = cuda
