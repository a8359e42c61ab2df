"""A cluster of two workers, the wheel, and a processor on a broker: what a user of a cluster has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.config.kafka import KafkaConfig
from tests.cluster.submitted import Submission
from tests.kafka.site import KafkaSite
from tests.support.kafka_broker import KafkaBroker
from tests.support.spark_cluster import SparkCluster
from tests.support.wheel import build_wheel, new_environment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with SparkCluster(folder / "spark", new_environment(folder / "python")) as cluster:
        yield cluster


@pytest.fixture
def site(tmp_path: Path, kafka_4_3_1: KafkaBroker) -> Iterator[KafkaSite]:
    """A processor that runs in the test's process."""
    site = KafkaSite(tmp_path / "site", kafka=KafkaConfig(bootstrap_servers=kafka_4_3_1.bootstrap_servers))
    site.start()
    yield site
    site.close()


@pytest.fixture
def submission(tmp_path: Path, cluster: SparkCluster, wheel: Path, site: KafkaSite) -> Iterator[Submission]:
    """Programs of a user who has the wheel and the jars, in a folder without the checkout."""
    submission = Submission(tmp_path / "user", cluster, wheel, site)
    yield submission
    submission.close()
