"""Members work where PySpark is not installed; the Spark layer says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

_HIDE_PYSPARK = "import sys; sys.modules['pyspark'] = None; "


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _HIDE_PYSPARK + program], capture_output=True, text=True)


def test_a_member_needs_no_pyspark() -> None:
    result = _run("from sharegroup import AdminClient, ShareConsumer, open_log; print('imported')")
    assert (result.stdout, result.returncode) == ("imported\n", 0), result.stderr


def test_the_spark_layer_names_the_extra_to_install() -> None:
    result = _run("import sharegroup.spark")
    assert result.returncode == 1
    assert "pip install 'sharegroup[spark]'" in result.stderr
