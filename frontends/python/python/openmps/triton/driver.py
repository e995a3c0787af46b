"""The driver, where Triton looks for it."""

from openmps.triton import entry

entry.before_triton(__name__)

from triton.backends.driver import DriverBase  # noqa: E402

MPSDriver = entry.part(DriverBase, "openmps.triton.launch", "MPSDriver")
