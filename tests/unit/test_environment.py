"""Missing programs are named, with a remedy, before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.environment import check_java, check_python, claim_folder
from sharegroup.errors import EnvironmentNotReadyError

HOLDS_A_FOLDER_UNTIL_SIGNALLED = """
import sys
from pathlib import Path
from sharegroup.environment import claim_folder

with claim_folder(Path(sys.argv[1])):
    print("claimed", flush=True)
    sys.stdin.read()
"""


def install_java(home: Path, *lines: str, exit_code: int = 0) -> Path:
    """A `java` that prints the lines where Java prints its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines) + f"exit {exit_code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("running", [(3, 11), (3, 12), (4, 0)])
def test_python_is_new_enough(running: tuple[int, int]) -> None:
    check_python(running)


@pytest.mark.parametrize("running", [(2, 7), (3, 9), (3, 10)])
def test_an_old_python_is_named_with_the_version_that_is_needed(running: tuple[int, int]) -> None:
    with pytest.raises(EnvironmentNotReadyError) as caught:
        check_python(running)
    assert f"{running[0]}.{running[1]}" in caught.value.message
    assert "3.11" in caught.value.remedy


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(['openjdk version "17.0.15" 2025-04-15'], id="17"),
        pytest.param(['openjdk version "21" 2023-09-19', "OpenJDK Runtime Environment"], id="21 without minor"),
        pytest.param(['java version "25-ea" 2025-09-16'], id="early access"),
        pytest.param(["Picked up JAVA_TOOL_OPTIONS: -Xss8m", 'openjdk version "17.0.15"'], id="options first"),
    ],
)
def test_java_of_java_home_wins_over_path(lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install_java(tmp_path / "home", *lines)
    old_java = install_java(tmp_path / "old", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{old_java.parent}{os.pathsep}{os.environ['PATH']}")
    assert check_java() == str(java)


@pytest.mark.parametrize("java_home", [None, ""])
def test_without_java_home_java_comes_from_path(
    java_home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = install_java(tmp_path, 'openjdk version "17.0.15"')
    if java_home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", java_home)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    assert check_java() == str(java)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_an_old_java_is_named_with_its_version(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install_java(tmp_path, f'openjdk version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError) as caught:
        check_java()
    assert str(java) in caught.value.message
    assert version in caught.value.message
    assert "17" in caught.value.remedy


def test_the_oldest_java_that_will_do_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_java(tmp_path, 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match="21"):
        check_java(minimum=21)


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(EnvironmentNotReadyError) as caught:
        check_java()
    assert f"JAVA_HOME={tmp_path / 'nowhere'}" in caught.value.message


def test_no_java_on_path_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match="on PATH"):
        check_java()


@pytest.mark.parametrize(
    ("lines", "exit_code"),
    [
        pytest.param(["Unable to locate a Java Runtime."], 1, id="a stub that only asks for an installation"),
        pytest.param(['openjdk version "17.0.15"'], 1, id="fails after its version"),
        pytest.param(["hello"], 0, id="another program"),
    ],
)
def test_a_java_that_does_not_run_counts_as_missing(
    lines: list[str], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_java(tmp_path, *lines, exit_code=exit_code)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match="does not run"):
        check_java()


def hold_from_another_process(folder: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_FOLDER_UNTIL_SIGNALLED, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "claimed\n"
    return holder


def test_a_folder_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with hold_from_another_process(folder) as holder:
        with pytest.raises(EnvironmentNotReadyError) as caught, claim_folder(folder):
            pytest.fail("two runs hold one folder")
        holder.communicate("")
    assert str(folder) in caught.value.message
    assert f"process {holder.pid}." in caught.value.message
    assert caught.value.remedy


def test_a_holder_that_is_killed_frees_its_folder(tmp_path: Path) -> None:
    with hold_from_another_process(tmp_path) as holder:
        holder.kill()
        holder.wait()
    with claim_folder(tmp_path):
        pass


def test_one_process_cannot_claim_a_folder_twice(tmp_path: Path) -> None:
    with (
        claim_folder(tmp_path),
        pytest.raises(EnvironmentNotReadyError, match=f"process {os.getpid()}"),
        claim_folder(tmp_path),
    ):
        pytest.fail("two runs hold one folder")


def test_a_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claim_folder(tmp_path / "run"):
        raise ZeroDivisionError
    with claim_folder(tmp_path / "run"):
        pass


def test_other_folders_stay_free(tmp_path: Path) -> None:
    with claim_folder(tmp_path / "one"), claim_folder(tmp_path / "two"):
        assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "file" / "run"
    folder.parent.touch()
    with pytest.raises(EnvironmentNotReadyError) as caught, claim_folder(folder):
        pytest.fail("claimed what is not a folder")
    assert str(folder) in caught.value.message
