"""The shortest time of a call, for the scripts that `cargo bench -p openmps-candle` asks."""

import time


def shortest(run, seconds, warm_up=0.0):
    """In microseconds, of calls for so many seconds, five at least, after one call or so many seconds of them."""
    end = time.perf_counter() + warm_up
    run()
    while time.perf_counter() < end:
        run()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return min(times)
