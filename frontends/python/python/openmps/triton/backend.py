"""From Triton's IR to a program of openmps: Triton's own passes, then its text, which the native module reads."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import ModuleType

from openmps import __version__
from openmps.triton import entry

entry.before_triton(__name__)

from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget, Language

from openmps.triton import limits
from openmps.triton.cache import text_hash


@dataclass(frozen=True)
class MPSOptions:
    """What Triton's front end reads, and ``set_kernel_config``'s limits."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 2
    warp_size: int = 32
    arch: str = "host"
    backend_name: str = "mps"
    debug: bool = False
    sanitize_overflow: bool = False
    enable_fp_fusion: bool = True
    supported_fp8_dtypes: tuple = ("fp8e4b15", "fp8e4nv", "fp8e5")
    deprecated_fp8_dot_operand_dtypes: tuple = ()
    default_dot_input_precision: str = "ieee"
    # Each of them is computed in float32, which none is more exact than.
    allowed_dot_input_precisions: tuple = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    extern_libs: dict | None = field(default=None, hash=False)
    # Passed by Triton whatever the backend is.
    instrumentation_mode: str = ""
    fpsan_homomorphic_casts: bool = False
    ir_override: str | None = None
    launch_cooperative_grid: bool = False
    # Advice to NVIDIA's and AMD's compilers, which kernels and `triton.Config` carry along: nothing depends on it here.
    maxnreg: int | None = None
    launch_pdl: bool = False
    enable_reflect_ftz: bool = True
    ptx_version: int | None = None
    ptx_options: str | None = None
    min_shared_mem: int = 0
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    allow_flush_denorm: bool = False
    schedule_hint: str = "none"
    # openmps's own: the most threads and bytes of threadgroup memory that a kernel may use on a GPU.
    # None leaves it to the device.
    max_threads: int | None = None
    shared_memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_threads", "shared_memory"):
            if (value := getattr(self, name)) is not None:
                limits.check(name, value)
        warps, (_, most) = self.num_warps, limits.RANGES["num_warps"]
        assert 0 < warps <= most and warps & (warps - 1) == 0, f"num_warps must be a power of 2 up to {most}, not {warps}"

    def hash(self) -> str:
        return hashlib.sha256(repr(sorted(self.__dict__.items(), key=lambda item: item[0])).encode()).hexdigest()


@functools.cache
def _libdevice_hash() -> str:
    """Of the functions that a kernel takes from there Triton's key of the kernel knows no text."""
    texts = [path.read_bytes() for path in sorted(Path(__file__).with_name("libdevice").glob("*.py"))]
    return hashlib.sha256(b"".join(texts)).hexdigest()


class MPSBackend(BaseBackend):
    """Compiles for the target ``mps``."""

    binary_ext = "ttirtext"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == "mps"

    def hash(self) -> str:
        return f"openmps-{__version__}-{self.target.arch}-{_libdevice_hash()}"

    def parse_options(self, options: dict) -> MPSOptions:
        from openmps.triton.launch import MPSDriver

        known = {entry.name for entry in fields(MPSOptions)}
        given = {name: value for name, value in options.items() if name in known and value is not None}
        return MPSOptions(**{**MPSDriver.kernel_config, **given})

    def pack_metadata(self, metadata) -> tuple:
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    def get_codegen_implementation(self, options: MPSOptions) -> dict:
        from openmps.triton import float8

        return {"min_dot_size": lambda left, right: (1, 1, 1), "convert_custom_types": float8.convert}

    def get_module_map(self) -> dict[str, ModuleType]:
        from openmps.triton import libdevice

        return {"triton.language.extra.libdevice": libdevice, "triton.language.extra.cuda.libdevice": libdevice}

    def load_dialects(self, context) -> None:
        """The text needs none."""

    @staticmethod
    def make_ttir(module, metadata: dict, options: MPSOptions):
        """Triton's passes that know no GPU."""
        manager = ir.pass_manager(module.context)
        manager.enable_debug()
        passes.common.add_inliner(manager)
        if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):  # before Triton 3.8 pointers of blocks are types of their own
            passes.ttir.add_rewrite_tensor_pointer(manager)
        passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
        passes.common.add_canonicalizer(manager)
        passes.ttir.add_combine(manager)
        passes.ttir.add_reorder_broadcast(manager)
        passes.common.add_cse(manager)
        passes.common.add_symbol_dce(manager)
        passes.ttir.add_triton_licm(manager)
        passes.ttir.add_loop_unroll(manager)
        try:
            manager.run(module, "make_ttir")
        except TypeError:  # before Triton 3.6
            manager.run(module)
        return module

    @staticmethod
    def make_text(module, metadata: dict, options: MPSOptions) -> bytes:
        """The text, once the native module has read it and found nothing that it does not cover."""
        from paddle_custom_device import openmps_native

        # Here, not in the stage before: Triton leaves that one out for a kernel in a file of TTIR.
        metadata["shared"] = 0
        metadata["cluster_dims"] = (1, 1, 1)  # Triton 3.5 reads it
        metadata["name"] = module.get_entry_func_name()
        metadata["tensordesc_meta"] = None
        text = limits.written(str(module), options)
        openmps_native.triton_compile(text, **limits.read(text))
        metadata["text_hash"] = text_hash(text.encode())
        return text.encode()

    def add_stages(self, stages: dict, options: MPSOptions, language: Language) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if language != Language.TRITON:
            raise NotImplementedError("mps: Gluon writes a GPU's layouts out, which are openmps's to choose")
        stages["ttir"] = lambda module, metadata: self.make_ttir(module, metadata, options)
        stages[self.binary_ext] = lambda module, metadata: self.make_text(module, metadata, options)
