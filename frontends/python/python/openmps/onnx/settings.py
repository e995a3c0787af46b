"""Settings by ONNX Runtime's names: each has its default there and may be set; those of its own engine do nothing here."""

from __future__ import annotations

import enum


class GraphOptimizationLevel(enum.IntEnum):
    """How much a graph is changed before it runs: always as far as openmps can."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether steps that do not need each other run side by side: openmps decides."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """The order of steps: openmps decides."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Entries:
    """Settings that are pairs of texts."""

    def __init__(self):
        self._entries: dict[str, str] = {}

    def _add(self, key: str, value: str) -> None:
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"there is no setting {key!r}: {sorted(self._entries)}")
        return self._entries[key]


class SessionOptions(_Entries):
    """Settings of a session. ``OPENMPS_NUM_THREADS`` says how many threads compute."""

    def __init__(self):
        super().__init__()
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """An entry that was added."""
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Does nothing: a run's arrays say how large a dimension is."""

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Does nothing: a run's arrays say how large a dimension is."""

    def register_custom_ops_library(self, path: str) -> None:
        """There are no operators here but openmps's own."""
        raise NotImplementedError(f"openmps.onnx runs no operators from libraries: {path}")


class RunOptions(_Entries):
    """Settings of a run, which do nothing."""

    def __init__(self):
        super().__init__()
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self.training_mode = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """An entry that was added."""
        return self._get(key)
