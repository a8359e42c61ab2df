"""The wheel of this checkout, and an interpreter that has its requirements but neither it nor the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def build_wheel(folder: Path) -> Path:
    """Build it from a copy of what it is made of: a build leaves files beside its sources."""
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "sharegroup", source / "sharegroup", ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([*_PIP, "wheel", *options, str(source)], check=True)
    (built,) = folder.glob("*.whl")
    return built


def new_environment(folder: Path) -> Path:
    """Make an environment beside the locked packages; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    # The .pth files in the locked packages, one of which names the checkout, are not read from there.
    (packages_of(python) / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def install(python: Path, wheel: Path) -> None:
    """Install a wheel into an environment."""
    options = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*_PIP, *options, str(wheel)], check=True)


def install_with_dependencies(python: Path, wheel: Path, extra: str) -> None:
    """Install a wheel with an extra and all that they require, as a user does."""
    subprocess.run([*_PIP, "--python", str(python), "install", "--quiet", f"{wheel}[{extra}]"], check=True)


def packages_of(python: Path) -> Path:
    """Return the folder of an environment's own packages."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    output = subprocess.run([python, "-I", "-c", program], check=True, capture_output=True, text=True).stdout
    return Path(output.strip())
