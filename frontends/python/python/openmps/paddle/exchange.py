"""Tensors of device mps for other libraries: ``numpy.from_dlpack(x)``, ``torch.from_dlpack(x)``, ``paddle.to_dlpack(x)``, and back.

Paddle's exchange by DLPack knows CPUs, CUDA and XPU. DLPack has no name for memory that other libraries could not read as the CPU's, so that a tensor
goes out as a copy on the CPU; what comes back stays there unless ``device='mps'`` is said.
"""

from __future__ import annotations

import functools

from openmps.paddle.devices import _is_mps, index_of


def install(paddle) -> None:
    """Wraps the two methods of tensors and the two functions, wherever Paddle has bound them publicly."""
    from paddle.utils import dlpack

    tensor = paddle.Tensor
    tensor.__dlpack__ = _exported(tensor.__dlpack__)
    tensor.__dlpack_device__ = _described(tensor.__dlpack_device__, dlpack.DLDeviceType.kDLCPU)
    wrapped = {"to_dlpack": _to(dlpack.to_dlpack, tensor), "from_dlpack": _from(paddle, dlpack.from_dlpack)}
    for name, function in wrapped.items():
        original = getattr(dlpack, name)
        for module in (paddle, dlpack, getattr(paddle, "compat", None)):
            if getattr(module, name, None) is original:
                setattr(module, name, function)


def _exported(original):
    @functools.wraps(original)
    def export(self, *, copy=None, **options):
        if not _is_mps(self.place):
            return original(self, copy=copy, **options)
        if copy is False:
            raise BufferError("a tensor of device mps is copied to the CPU for other libraries, and copy=False forbids that")
        # The copy is nobody else's already.
        return original(self.cpu(), **options)

    return export


def _described(original, cpu):
    @functools.wraps(original)
    def describe(self):
        return (cpu, 0) if _is_mps(self.place) else original(self)

    return describe


def _to(original, tensor):
    @functools.wraps(original)
    def to_dlpack(x):
        return original(x.cpu() if isinstance(x, tensor) and _is_mps(x.place) else x)

    return to_dlpack


def _from(paddle, original):
    @functools.wraps(original)
    def from_dlpack(dlpack, *, device=None, copy=None):
        place = None if device is None else paddle.base.framework._get_paddle_place(device)
        is_own = isinstance(dlpack, paddle.Tensor) and _is_mps(dlpack.place)
        to_mps = is_own if place is None else _is_mps(place)
        if not to_mps:
            return original(dlpack, device=device, copy=copy)
        if is_own and (place is None or index_of(place) == index_of(dlpack.place)):
            return dlpack.detach().clone() if copy else dlpack.detach()
        if copy is False:
            raise BufferError(f"what comes from elsewhere is copied to {place}, and copy=False forbids that")
        return original(dlpack).to(place)

    return from_dlpack
