//! The table. A new setting is a row here; README, docs/settings.md and `openmps info` follow.

use crate::kind::{AnOrder, Choice, FolderOrNone, Log, Most, Number, Path, Size, Switch, Text};
use crate::setting::{Audience, Row, Setting};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

macro_rules! settings {
    ($($name:ident: $type:ty = $kind:expr, $default:literal $(or else $instead:literal)?, $reader:literal, $audience:ident, $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub static $name: Setting<$type> = Setting {
                name: concat!("OPENMPS_", stringify!($name)),
                kind: $kind,
                default: $default,
                instead: concat!("" $(, $instead)?),
                reader: $reader,
                audience: Audience::$audience,
                meaning: $meaning,
                table: || TABLE,
                value: OnceLock::new(),
                reported: AtomicBool::new(false),
            };
        )*
        /// All settings.
        pub static TABLE: &[&'static dyn Row] = &[$(&$name),*];
    };
}

// Name and kind, default (and what a wrong value does where that is another thing), who reads it, whom it is for, what it changes.
settings! {
    DEVICE: Choice = Choice(&["host", "cuda", "metal", "metal-emulated"]), "host" or else "no device", "crates/runtime", Everyone,
        "what computes: the CPU, NVIDIA's GPUs, Apple's, or Apple's language on the CPU";
    HOST_DEVICES: Number = Number(Most::Is(64)), "1", "crates/runtime", Everyone,
        "how many logical devices the CPU is";
    NUM_THREADS: Number = Number(Most::ForEachCpu { times: 4, at_least: 16 }), "one for each CPU", "crates/host", Everyone,
        "threads of one kernel";
    SPIN: Switch = Switch, "1", "crates/host", Everyone,
        "whether the threads of the host device stay awake for some 50 microseconds after a kernel, for the next one";
    HOST_LEVEL: Choice = Choice(&["portable", "neon", "avx2", "avx512", "amx"]), "what the CPU has", "crates/host", Everyone,
        "the highest vector level to use";
    MEMORY_LIMIT: Size = Size, "the device's memory", "crates/runtime", Everyone,
        "the most memory a device hands out";
    CACHE_LIMIT: Number = Number(Most::Is(1 << 20)), "2048", "crates/graph", Everyone,
        "kernels of openmps's own operators kept in memory, before a device compiles them";
    TRACE: Path = Path("file.json"), "no trace", "crates/runtime", Everyone,
        "a Chrome/Perfetto trace of every command";
    EXECUTOR: Choice = Choice(&["openmps", "paddle"]), "openmps, and paddle for what it cannot run", "frontends/python", Everyone,
        "what runs inference programs of PaddlePaddle on device mps";
    TRITON: Switch = Switch, "1 where no other backend is active", "frontends/python", Everyone,
        "whether Triton's kernels run here";
    TRANSPORT: Choice = Choice(&["auto", "shared", "tcp", "mpi", "nccl", "jaccl"]), "auto", "crates/collective", Everyone,
        "how the processes of a job reach each other; auto is shared memory within a host and TCP between hosts; mpi and jaccl are reserved, and refused with an error";
    COLLECTIVE_TIMEOUT: Number = Number(Most::Is(86_400)), "600", "crates/collective", Everyone,
        "seconds that a collective operation waits without any progress before it names the rank that is to blame";
    COLLECTIVE_ADDRESS: Text = Text, "the address of Paddle's endpoint, else 127.0.0.1", "frontends/paddle", Everyone,
        "the address of this machine at which the first rank of a communicator listens";
    COLLECTIVE_SOCKETS: Number = Number(Most::Is(16)), "1", "crates/collective", Everyone,
        "TCP connections between two ranks; the same for all";
    COLLECTIVE_ALGORITHM: Choice = Choice(&["gathered", "doubling", "direct", "ring"]), "by size and ranks", "crates/collective", Everyone,
        "how all-reduce is done; the same for all";
    NCCL: Path = Path("libnccl.so.2"), "what the library path has", "crates/collective", Everyone,
        "NVIDIA's collectives between GPUs, for the transport nccl";
    NVRTC: Path = Path("libnvrtc.so"), "what the library path has", "crates/runtime", Everyone,
        "CUDA's run-time compiler";
    SANITIZE: Switch = Switch, "0", "crates/runtime", KernelAuthors,
        "kernels of the host device run through the interpreter, on a memory that checks every access";
    DUMP: Path = Path("folder"), "nowhere", "crates/runtime", KernelAuthors,
        "where each kernel is written in every language";
    LOG: Log = Log, "off", "frontends/python", Everyone,
        "what is logged on standard error; from info on also what Paddle computed on its CPU for want of a kernel";
    METAL_ENGINE: Choice = Choice(&["kernels", "mps", "mpsgraph"]), "as a table decides", "crates/metal", Metal,
        "what computes wherever it can: own kernels, Metal Performance Shaders, MPSGraph";
    METAL_TENSOR_OPERATIONS: Switch = Switch, "1 from the M5 and macOS 26.2 on", "crates/runtime", Metal,
        "whether own kernels multiply half types by Metal 4's tensor operations, where GPU and macOS have them";
    PIPELINE_LIMIT: Number = Number(Most::Is(1 << 20)), "1024", "crates/runtime", Metal,
        "kernels compiled for Metal kept in memory";
    GRAPH_LIMIT: Number = Number(Most::Is(1 << 20)), "256", "crates/runtime", Metal,
        "compiled graphs of MPSGraph kept in memory";
    CACHE_DIR: FolderOrNone = FolderOrNone, "~/Library/Caches/openmps; for CUDA ~/.cache/openmps/cuda", "crates/metal, crates/runtime", Everyone,
        "where kernels compiled for Metal and CUDA are kept on disk";
    EMULATOR_GPU: Choice = Choice(&["m2", "m5"]), "m2", "crates/metal", Metal,
        "the GPU that the emulator stands in for; m5 is one under macOS 26.2, which multiplies half types by tensor operations";
    EMULATOR_SCHEDULE: AnOrder = AnOrder, "ascending", "crates/metal", Metal,
        "the emulator's order of threads, and of dispatches that no barrier orders; a number shuffles";
    EMULATOR_COUNT: Path = Path("file"), "nothing is counted", "crates/metal", Metal,
        "a file to which the emulator adds a line for each dispatch: accesses to memory, barriers, products, operations, registers, and the least time on M1 to M5";
    EMULATOR_CACHE: Path = Path("folder"), "~/.cache/openmps/emulator", "crates/emulator", Metal,
        "where the emulator keeps what it has compiled and loads it from; a folder that others can change is refused";
    CLANG: Path = Path("clang"), "the package ziglang of the active environment, or clang on the PATH", "crates/emulator", Metal,
        "the emulator's compiler, of version 19 or newer";
    PADDLE_REFUSE: Text = Text, "not set", "frontends/paddle", Tests,
        "the plug-in refuses to register, for this reason";
    PADDLE_LAYOUT: Switch = Switch, "1", "frontends/paddle", Tests,
        "whether tensors are read where they lie, or through the C interface";
    TEST_BREADTH: Choice = Choice(&["kernels", "whole"]), "kernels", "crates/graph/tests", Tests,
        "how many cases of each operator are tested";
    TEST_DEVICE: Choice = Choice(&["cpu", "mps"]), "mps", "tests/ocr", Tests,
        "the device of the text recognition tests";
    TEST_ALL_ARCHITECTURES: Switch = Switch, "0", "tests/paddle", Tests,
        "whether every architecture of paddle.vision.models is tested, which takes minutes and gigabytes";
    TEST_TRITON_VERSIONS: Path = Path("folder"), "not set", "tests/triton", Tests,
        "the folder of Triton's versions with which the import is tried; tests/triton/versions.py fills it";
    TEST_RANKS: Text = Text, "2", "tests/distributed", Tests,
        "how many ranks the jobs of the distributed tests have, one after the other: 2 4 8";
    BENCH_DEVICE: Choice = Choice(&["cpu", "mps"]), "cpu", "benches", Tests,
        "the device that is measured";
    BENCH_PYTHON: Path = Path("python"), "that of .venv", "frontends/candle/benches", Tests,
        "the interpreter that has PyTorch";
    MINILM: Path = Path("folder"), "that of .venv", "frontends/candle, xtask", Tests,
        "the folder of MiniLM's weights";
}
