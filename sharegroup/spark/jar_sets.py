"""The sets of jars that PySpark does not bring: the configurations of `ivy.xml`, by Spark's minor version."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pyspark

from sharegroup.spark import cluster

IVY_FILE = cluster.package_file("spark/ivy.xml")

DELTA = "delta"
LOCAL_FILES = "files"
KAFKA = "kafka"
S3A = "s3a"

PROOFS = {
    DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    LOCAL_FILES: "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    KAFKA: "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    S3A: "org.apache.hadoop.fs.s3a.S3AFileSystem",
}
"""Kind of a set → a class of it; where it can be loaded, nothing of the set is missing."""

_STEM = re.compile(r"(?P<stem>.+?)(?:_[\d._]+)?(?:-\d.*)?\.jar")
_VERSIONED = re.compile(r"(?P<kind>\w+)-(?P<spark>\d+\.\d+)")


class Module(NamedTuple):
    """A module of a Maven repository."""

    organisation: str
    name: str
    revision: str

    @property
    def coordinate(self) -> str:
        """The module as `--packages` takes it."""
        return ":".join(self)

    @property
    def jar(self) -> str:
        """The name of its file."""
        return f"{self.name}-{self.revision}.jar"


@dataclass(frozen=True)
class JarSet:
    """A set of jars of which all are needed, or none.

    Attributes:
        kind: a key of PROOFS.
        configuration: its name in `ivy.xml`.
        modules: the first is the one that needs the others.
    """

    kind: str
    configuration: str
    modules: tuple[Module, ...]

    @property
    def folder_name(self) -> str:
        """A name that changes with the jars."""
        coordinates = "\n".join(module.coordinate for module in self.modules)
        return f"{self.configuration}-{hashlib.sha256(coordinates.encode()).hexdigest()[:8]}"

    @property
    def packages(self) -> str:
        """The modules as `--packages` takes them."""
        return ",".join(module.coordinate for module in self.modules)

    def is_named(self, file_name: str) -> bool:
        """Return True for a jar's name that is, in any version, the one of the first module."""
        return jar_stem(file_name) == jar_stem(self.modules[0].jar)

    def is_in(self, jar: Path) -> bool:
        """Return True if a jar has the set's class, whatever its name is."""
        try:
            with zipfile.ZipFile(jar) as archive:
                return f"{PROOFS[self.kind].replace('.', '/')}.class" in archive.NameToInfo
        except (OSError, zipfile.BadZipFile):
            # Spark itself says what is wrong with it.
            return False


def jar_stem(file_name: str) -> str:
    """Return the name of a jar's module without the versions of Spark, Scala and itself."""
    match = _STEM.fullmatch(file_name)
    return match["stem"] if match else file_name


def spark_minor_version() -> str:
    """Return major and minor version of the installed PySpark: `4.2`."""
    return ".".join(pyspark.__version__.split(".")[:2])


def known_spark_versions() -> list[str]:
    """Return the minor versions of Spark for which `ivy.xml` names jars."""
    return sorted({match["spark"] for name in _own_modules() if (match := _VERSIONED.fullmatch(name))})


def jar_set(kind: str, spark: str | None = None) -> JarSet | None:
    """Return the set of a kind for a minor version of Spark; None where `ivy.xml` names none.

    Args:
        spark: the installed PySpark's by default.
    """
    for name in (f"{kind}-{spark or spark_minor_version()}", kind):
        if modules := _own_modules().get(name):
            return JarSet(kind, name, tuple(modules))
    return None


def configured_modules(names: Iterable[str]) -> list[Module]:
    """Return the modules of configurations of `ivy.xml`, with those that they extend."""
    extended = {conf.attrib["name"]: conf.attrib.get("extends", "") for conf in _root().iter("conf")}
    parts = (part for name in names for part in (name, *filter(None, extended[name].split(","))))
    return [module for part in parts for module in _own_modules()[part]]


@cache
def _root() -> ElementTree.Element:
    return ElementTree.parse(IVY_FILE).getroot()


@cache
def _own_modules() -> dict[str, list[Module]]:
    """Return configuration → its modules, without those of other configurations that it extends."""
    modules: dict[str, list[Module]] = {conf.attrib["name"]: [] for conf in _root().iter("conf")}
    for dependency in _root().iter("dependency"):
        name, organisation, revision = (dependency.attrib[key] for key in ("name", "org", "rev"))
        modules[dependency.attrib["conf"].partition("->")[0]].append(Module(organisation, name, revision))
    return modules
