"""Exports of a package that are imported on their first use, listed once: as the imports that type checkers read."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module, util

_IMPORT = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_exports(package: str) -> tuple[Callable[[str], object], list[str]]:
    """Return `__getattr__` and `__all__` of a package, for the imports under `if TYPE_CHECKING` in its source."""
    spec = util.find_spec(package)
    assert spec is not None
    source = spec.loader.get_source(package)  # type: ignore[union-attr]
    module_of = {name: module for module, name in _IMPORT.findall(source)}

    def export(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return export, list(module_of)
