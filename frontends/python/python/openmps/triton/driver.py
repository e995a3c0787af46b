"""The driver, where Triton looks for it."""

from openmps.triton import entry

entry.before_triton(__name__)

from triton.backends.driver import DriverBase

MPSDriver = entry.part(DriverBase, "openmps.triton.launch", "MPSDriver")
