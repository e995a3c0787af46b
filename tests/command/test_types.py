"""The types of the native module, which are written by hand, name what it has, and nothing else."""

import ast
from pathlib import Path

from paddle_custom_device import openmps_native

STUB = Path(__file__).parents[2] / "frontends/python/python/paddle_custom_device/openmps_native.pyi"


def _names(body: list[ast.stmt]) -> set[str]:
    """What a body declares, without imports and aliases of types."""
    declared = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    return declared | {each.target.id for each in body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}


def _public(names) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_what_the_native_module_has() -> None:
    body = ast.parse(STUB.read_text()).body
    assert _public(_names(body)) == _public(vars(openmps_native))
    classes = [each for each in body if isinstance(each, ast.ClassDef)]
    assert len(classes) >= 3
    for declared in classes:
        assert _public(_names(declared.body)) == _public(vars(getattr(openmps_native, declared.name))), declared.name
