"""Relative paths of a configuration, as a program has them that runs in another folder than the tests."""

from __future__ import annotations

from pathlib import Path


def in_folder(folder: Path, path: str | Path | None) -> Path:
    """Return the place of a path in the folder where a program runs.

    Args:
        path: a relative path of a configuration that was loaded here, which makes it absolute.
    """
    assert path is not None
    return folder / Path(path).relative_to(Path.cwd())
