"""The folder of a member of the Spark source; no Spark."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from sharegroup.errors import ConfigurationError
from sharegroup.spark.source.folder import MemberFolder

TIMEOUT_S = 0.0


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that temporary files are in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def member_path(temporary: Path) -> Path:
    return temporary / "sharegroup-member"


def test_it_is_created_for_this_user_only(member_path: Path) -> None:
    folder = MemberFolder("member")
    assert folder.acquire(TIMEOUT_S)
    assert member_path.stat().st_mode & 0o777 == 0o700
    assert not MemberFolder("member").acquire(TIMEOUT_S)
    folder.release(keeps_acknowledgements=True)
    assert MemberFolder("member").acquire(TIMEOUT_S)


def test_a_folder_of_another_user_is_refused(member_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member_path.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: member_path.stat().st_uid + 1)
    with pytest.raises(
        ConfigurationError, match=rf"{member_path} belongs to user \d+, not to {os.geteuid()}\..*TMPDIR"
    ):
        MemberFolder("member").acquire(TIMEOUT_S)
    assert list(member_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_that_others_may_write_to_is_refused(member_path: Path, mode: int) -> None:
    member_path.mkdir()
    member_path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"{member_path} has mode {mode:o}: other users may write to it"):
        MemberFolder("member").acquire(TIMEOUT_S)


def test_a_link_to_a_folder_is_refused(member_path: Path, temporary: Path) -> None:
    (temporary / "elsewhere").mkdir(mode=0o700)
    member_path.symlink_to(temporary / "elsewhere")
    with pytest.raises(ConfigurationError, match=f"{member_path} is no folder"):
        MemberFolder("member").acquire(TIMEOUT_S)


def test_a_file_in_its_place_is_refused(member_path: Path) -> None:
    member_path.touch()
    with pytest.raises(ConfigurationError, match=f"{member_path} is no folder"):
        MemberFolder("member").acquire(TIMEOUT_S)
