"""The exports of the package are imported on their first use."""

from __future__ import annotations

import subprocess
import sys


def test_the_package_alone_loads_none_of_its_modules() -> None:
    program = "import sys, sharegroup; print([name for name in sys.modules if name.startswith('sharegroup')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "['sharegroup.exports', 'sharegroup']\n"
