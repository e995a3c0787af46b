"""A short soak: `soak.py` runs for longer."""

from __future__ import annotations

from soak import ALLOWED_GROWTH, soak


def test_memory_is_flat(device: str) -> None:
    soak(8, device)  # what is made once and kept: thread pools, tables, the allocator's first heap
    report = soak(120, device)
    assert report.growth <= ALLOWED_GROWTH, report
    assert report.leaked <= 0, report
    assert report.allocated_during > report.allocated_before or device == "cpu", report  # the figure measures something
