"""A process that evaluates cases on one device. Paddle's CPU has one of its own: what it does to its memory must not be taken for ours."""

from __future__ import annotations

import os
import warnings
from multiprocessing.connection import Connection


def serve(connection: Connection, device: str, errors: str) -> None:
    """Answers requests (source, gradients, how many noisy evaluations in float64 or none) with results, until the other end closes."""
    os.environ.update(FLAGS_enable_api_kernel_fallback="0", GLOG_minloglevel="3")
    log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    warnings.simplefilter("ignore")
    from .evaluate import evaluate  # loads Paddle

    while True:
        try:
            text, gradients, noisy = connection.recv()
        except EOFError:
            return
        results = [evaluate(text, device, gradients)]
        if noisy is not None:
            results.append(evaluate(text, device, gradients, double=True))
            results += [evaluate(text, device, gradients, double=True, perturbed=k) for k in range(noisy)]
        connection.send(results)
