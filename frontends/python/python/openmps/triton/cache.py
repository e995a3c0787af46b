"""Triton's cache of compiled kernels, whose files a crash or a full disk may have left empty or cut: such kernels are compiled again."""

from __future__ import annotations

import hashlib
import json
import pathlib

from openmps.triton import entry

entry.before_triton(__name__)

from triton import knobs
from triton.runtime.cache import FileCacheManager


def text_hash(text: bytes) -> str:
    """What a kernel's metadata says of its text."""
    return hashlib.sha256(text).hexdigest()


class CheckedCache(FileCacheManager):
    """Hands out kernels of this backend only whole; those of others as they are."""

    def get_group(self, filename: str) -> dict[str, str] | None:
        try:
            group = super().get_group(filename)
        except ValueError:  # no JSON
            return None
        return group if group and _is_whole(group, filename) else None


def _is_whole(group: dict[str, str], filename: str) -> bool:
    try:
        metadata = json.loads(pathlib.Path(group[filename]).read_bytes())
        if metadata["target"]["backend"] != "mps":
            return True
        text = next(path for name, path in group.items() if name.endswith(".ttirtext"))
        return metadata["text_hash"] == text_hash(pathlib.Path(text).read_bytes())
    except (OSError, LookupError, TypeError, ValueError, StopIteration):
        return False


def install() -> None:
    """Becomes Triton's cache, where nobody has chosen another one."""
    if knobs.cache.manager_class in (None, FileCacheManager):
        knobs.cache.manager_class = CheckedCache
