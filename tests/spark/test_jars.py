"""The sets of jars, and the cache that they are retrieved into."""

from __future__ import annotations

import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home

from sharegroup.environment import check_java
from sharegroup.errors import EnvironmentNotReadyError
from sharegroup.spark.jar_retrieval import cache_folder, retrieved_jars
from sharegroup.spark.jar_sets import DELTA, KAFKA, LOCAL_FILES, PROOFS, JarSet, jar_set, known_spark_versions
from sharegroup.spark.submit_settings import SubmitSettings
from tests.support.jar_repository import new_repository

SPARK_HOME = Path(_find_spark_home())
NO_JAVA = "/there/is/no/java"


def the_set(kind: str) -> JarSet:
    jars = jar_set(kind)
    assert jars is not None
    return jars


FILES = the_set(LOCAL_FILES)


def submitted(**values: str) -> SubmitSettings:
    return SubmitSettings({f"spark.jars.{name}": value for name, value in values.items()}, (), (), Path("conf"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a machine without proxies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return tmp_path / "cache" / "sharegroup" / "jars"


def test_every_known_spark_has_all_sets() -> None:
    assert known_spark_versions()
    sets = [jar_set(kind, version) for version in known_spark_versions() for kind in (DELTA, LOCAL_FILES, KAFKA)]
    assert None not in sets
    # A set in which nothing has changed keeps its folder; sets of two versions never share one.
    names = {jars.folder_name for jars in sets if jars is not None}
    assert len(names) == 2 * len(known_spark_versions()) + 1


@pytest.mark.parametrize("kind", [DELTA, KAFKA])
def test_an_unknown_spark_has_no_jars(kind: str) -> None:
    assert jar_set(kind, "3.5") is None


@pytest.mark.parametrize(
    ("kind", "name", "is_named"),
    [
        (DELTA, "delta-spark_2.13-4.0.0.jar", True),
        (DELTA, "delta-spark_4.2_2.13-4.4.0.jar", True),
        (DELTA, "delta-storage-4.4.0.jar", False),
        (KAFKA, "spark-sql-kafka-0-10_2.13-4.2.0.jar", True),
        (KAFKA, "kafka-clients-3.9.2.jar", False),
        (LOCAL_FILES, "hadoop-bare-naked-local-fs-0.1.0.jar", True),
        (LOCAL_FILES, "hadoop-client-api-3.5.0.jar", False),
    ],
)
def test_the_first_module_is_known_by_its_name_in_any_version(kind: str, name: str, is_named: bool) -> None:
    assert the_set(kind).is_named(name) is is_named


def test_a_jar_of_another_name_is_known_by_its_class(tmp_path: Path) -> None:
    jar = tmp_path / "application.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(f"{PROOFS[DELTA].replace('.', '/')}.class", b"")
    assert the_set(DELTA).is_in(jar)
    assert not the_set(KAFKA).is_in(jar)
    assert not the_set(KAFKA).is_in(tmp_path / "missing.jar")


@pytest.mark.slow
def test_jars_are_retrieved_once(tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = submitted(ivySettings=str(new_repository(tmp_path, FILES.modules)))
    with ThreadPoolExecutor(2) as pool:
        retrievals = [pool.submit(retrieved_jars, [FILES], SPARK_HOME, check_java(), settings) for _ in range(2)]
        first, second = (retrieval.result() for retrieval in retrievals)
    assert first == second == [cache / FILES.folder_name / module.jar for module in FILES.modules]
    assert all(zipfile.is_zipfile(jar) for jar in first)
    # No folder that is not complete is left, beside Ivy's own.
    assert {path.name for path in cache.iterdir()} == {".lock", "ivy", FILES.folder_name}
    shown = capfd.readouterr().err
    assert shown.count("event=retrieving_jars") == 1
    assert "event=retrieved_jar jar=hadoop-bare-naked-local-fs-0.1.0 count=1 of=1" in shown
    # Nothing is started any more.
    assert retrieved_jars([FILES], SPARK_HOME, NO_JAVA, submitted()) == first


def test_jars_that_were_put_there_by_hand_count(cache: Path) -> None:
    folder = cache / FILES.folder_name
    folder.mkdir(parents=True)
    for module in FILES.modules:
        (folder / module.jar).write_bytes(b"")
    jars = retrieved_jars([FILES], SPARK_HOME, NO_JAVA, submitted())
    assert jars == [folder / module.jar for module in FILES.modules]


@pytest.mark.slow
def test_jars_that_no_repository_has_are_named_with_their_folder(tmp_path: Path, cache: Path) -> None:
    sets = [FILES, the_set(KAFKA)]
    settings = submitted(ivySettings=str(new_repository(tmp_path, FILES.modules)))
    with pytest.raises(EnvironmentNotReadyError) as caught:
        retrieved_jars(sets, SPARK_HOME, check_java(), settings)
    kafka = the_set(KAFKA)
    missing = f"{kafka.configuration}: {kafka.modules[0].organisation}#{kafka.modules[0].name};"
    assert f"could not be retrieved from a Maven repository: {missing}" in caught.value.message
    assert f"into {cache / kafka.folder_name}: {kafka.packages}" in caught.value.remedy
    assert str(cache / FILES.folder_name) not in caught.value.remedy
    # A set that is whole stays.
    assert retrieved_jars([FILES], SPARK_HOME, NO_JAVA, submitted())


def test_proxies_and_options_of_the_user_reach_ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path / "arguments"}\nexit 1\n')
    java.chmod(0o755)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "localhost, .internal")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xmx1g -Djavax.net.ssl.trustStore=/etc/trust -Dhttps.proxyPort=8080")
    with pytest.raises(EnvironmentNotReadyError, match="Ivy ended with code 1"):
        retrieved_jars([FILES], SPARK_HOME, str(java), submitted(ivySettings="own.xml"))
    arguments = (tmp_path / "arguments").read_text().splitlines()
    options = arguments[: arguments.index("-jar")]
    assert options == [
        *("-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128", "-Dhttp.nonProxyHosts=localhost|*.internal"),
        # Of a repeated option the last one counts for Java.
        *("-Djavax.net.ssl.trustStore=/etc/trust", "-Dhttps.proxyPort=8080"),
    ]
    assert arguments[arguments.index("-settings") + 1] == "own.xml"


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentNotReadyError, match="XDG_CACHE_HOME") as caught:
        retrieved_jars([FILES], SPARK_HOME, NO_JAVA, submitted())
    assert str(cache_folder()) in caught.value.message
