"""Add compiled modules to the archive from which Spark starts its Python processes: compile_pyspark.py SPARK_HOME.

A stream of a Python source runs in a process of its own, which imports PySpark from the archive. Python keeps nothing
of what it compiles from an archive, so each such process would compile PySpark again, for more than a second of
processor time; and Spark gives up on a process that has not connected after ten seconds.
"""

from __future__ import annotations

import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path

UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
"""Nobody asks whether the source is newer: nothing changes within the archive."""


def compile_archive(archive: Path) -> None:
    """Replace an archive of Python modules by one that has them compiled, too; one that has is left alone."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        unpacked = Path(folder, "modules")
        with zipfile.ZipFile(archive) as given:
            names = given.namelist()
            if any(name.endswith(".pyc") for name in names):
                return
            given.extractall(unpacked)
        made = Path(folder, archive.name)
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as compiled:
            for name in names:
                compiled.write(unpacked / name, name)
                if name.endswith(".py"):
                    source, target = str(unpacked / name), str(unpacked / f"{name}c")
                    py_compile.compile(source, target, name, doraise=True, invalidation_mode=UNCHECKED)
                    compiled.write(target, f"{name}c")
        made.replace(archive)


if __name__ == "__main__":
    for found in Path(sys.argv[1], "python", "lib").glob("*.zip"):
        compile_archive(found)
