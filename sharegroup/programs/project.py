"""`sharegroup init`: the files of a new project."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from sharegroup.errors import ConfigurationError

FILES = ("sharegroup.yaml", "handler.py")
"""The files of a project, with the names of their templates."""

NEXT_STEPS = """\
  sharegroup processor                # in a terminal of its own, until Ctrl-C
  sharegroup worker handler:handle    # in another one
  sharegroup topics create --topic orders --partitions 3 --if-not-exists
  echo '{"id": 1, "total": 9.5}' | sharegroup topics produce --topic orders
  sharegroup groups describe --group orders"""
"""Commands to run in the folder of a project."""


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def init(folder: Path) -> None:
    """Write sharegroup.yaml and a handler into a folder, this one by default.

    All commands that run in the folder read sharegroup.yaml. handler.py has the function of a worker. Nothing that is
    there already is written over.

    \b
    Example:
      sharegroup init
      sharegroup init orders
    """
    write_project(folder)
    in_folder = "" if folder == Path() else f" in {folder}"
    click.echo(f"Wrote {' and '.join(FILES)}{in_folder}. Next{in_folder}:\n\n{NEXT_STEPS}")


def write_project(folder: Path) -> None:
    """Write the files of a project into a folder, which is made if it is missing.

    Raises:
        ConfigurationError: one of them is there already, or cannot be written; then none is written.
    """
    existing = [name for name in FILES if (folder / name).exists()]
    if existing:
        raise ConfigurationError(
            f"{' and '.join(existing)} is there already, in {folder.absolute()}.", "Name another folder."
        )
    templates = files("sharegroup.programs").joinpath("templates")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).write_bytes(templates.joinpath(name).read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"The folder {folder.absolute()} cannot be written: {error.strerror}.", "Name another folder."
        ) from error
