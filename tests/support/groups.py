"""Which tests share a process when `make test` divides them: those on one broker, or in one Spark session."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

_FOLDERS = {
    # Its workloads take all the processor time there is.
    "tests/crash/": "crash",
    # Each starts several programs with a JVM of their own.
    "tests/examples/": "programs",
    "tests/jobs/": "programs",
    "tests/test_documents": "programs",
    "tests/test_notebooks": "spark",
    "tests/wheel/": "programs",
    "tests/kafka/": "kafka",
    "tests/logs/": "kafka",
    "tests/processor/test_kafka": "kafka",
    "tests/spark/": "spark",
    "tests/stores/": "stores",
}
_KAFKA_AND_SPARK = tuple(f"tests/kafka/test_{name}.py" for name in ("jobs", "outage", "processor", "refusals"))
_KAFKA_AND_SPARK += ("tests/benchmarks/test_kafka_forms.py", "tests/cluster/", "tests/crash/test_mixed_sinks")


class GroupScheduling(LoadScopeScheduling):
    """Sends each group to one process: by what they share, else by file."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_KAFKA_AND_SPARK):
            return "kafka and spark"
        # Simulated schedules compute for long, and share nothing.
        if nodeid.startswith("tests/simulation/"):
            return nodeid
        groups = (group for start, group in _FOLDERS.items() if nodeid.startswith(start))
        return next(groups, nodeid.partition("::")[0])
