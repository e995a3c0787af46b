"""The compiler, where Triton looks for it."""

from openmps.triton import entry

entry.before_triton(__name__)

from triton.backends.compiler import BaseBackend

MPSBackend = entry.part(BaseBackend, "openmps.triton.backend", "MPSBackend")
