"""A Maven repository that is a folder, with the jars of this checkout; its POMs name no dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sharegroup.spark.jar_sets import Module

ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = """
<ivysettings>
  <settings defaultResolver="repository"/>
  <resolvers>
    <ibiblio name="repository" m2compatible="true" root="{root}"/>
  </resolvers>
</ivysettings>
"""
_POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{module.organisation}</groupId>
  <artifactId>{module.name}</artifactId>
  <version>{module.revision}</version>
</project>
"""


def new_repository(folder: Path, modules: Iterable[Module]) -> Path:
    """Make a repository in a folder; return the file of Ivy's settings that names it, and no other."""
    built = {jar.name: jar for jar in (ROOT / "build" / "jars").glob("*/*.jar")}
    for module in modules:
        target = folder / "repository" / module.organisation.replace(".", "/") / module.name / module.revision
        target.mkdir(parents=True)
        (target / module.jar).symlink_to(built[module.jar])
        (target / module.jar).with_suffix(".pom").write_text(_POM.format(module=module), encoding="utf-8")
    settings = folder / "ivysettings.xml"
    settings.write_text(_SETTINGS.format(root=(folder / "repository").as_uri()), encoding="utf-8")
    return settings
