"""The documents are right: their programs run as they are printed, the sample is what is shown, links lead to files."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from rich.console import Console

from examples.flights.report import Account, render
from sharegroup import AdminClient
from sharegroup.audit.history.group_history import GroupHistory, group_history
from sharegroup.audit.sinks.reconcile import SinkVerification
from sharegroup.audit.verification.findings import Verification
from sharegroup.config.loader import load_settings
from sharegroup.core.record_state import Cause
from sharegroup.errors import StateTableError, UnknownTopicError
from sharegroup.exit_code import MEANINGS
from sharegroup.logs.local import LocalLog
from sharegroup.state.reader import StateTableReader
from tests.support import leash
from tests.support.eventually import DEADLINE_S, eventually
from tests.support.working_folder import in_folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
EXAMPLES = {
    name: program
    for text in TEXTS.values()
    for name, program in re.findall(r"<!-- example: (\S+) -->\n```python\n(.*?)```", text, re.DOTALL)
}
COMMANDS = {
    command[1]: command
    for name in ("README.md", "spark_source.md", "worker.md")
    for line in re.findall(r"^(?:sharegroup|python) .+$", TEXTS[name], re.M)
    if (command := shlex.split(line))
}
"""Command of sharegroup, or program → its command line as printed."""
PROJECT = ROOT / "sharegroup" / "programs" / "templates"
SETTINGS = load_settings(PROJECT / "sharegroup.yaml", {}).processor


def new_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder of a reader after `sharegroup init`, with the examples as files."""
    folder = tmp_path_factory.mktemp("readme")
    for name, program in EXAMPLES.items():
        (folder / name).write_text(program, encoding="utf-8")
    run(folder, *COMMANDS["init"])
    return folder


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orders]:
    folder = new_folder(tmp_path_factory)
    with running(folder, *COMMANDS["processor"]) as processor:
        orders = Orders(folder)
        until(orders.has_processor, "the processor has made its topics", [processor])
        yield orders
    assert processor.returncode == 0


class Orders:
    """The groups of the examples, as their log and their state table show them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def produce(self) -> None:
        subprocess.run([sys.executable, "produce.py"], cwd=self.folder, env=activated(), check=True, timeout=DEADLINE_S)

    def has_processor(self) -> bool:
        with self._opened_log() as log:
            return {SETTINGS.request_topic_name, SETTINGS.response_topic_name} <= {t.name for t in log.topics()}

    def are_all_finished(self, group_id: str = "orders") -> bool:
        """Return True if the start offset of each share-partition has reached the end of its log."""
        return bool(self.history(group_id).partitions) and not self.unfinished_count(group_id)

    def unfinished_count(self, group_id: str = "orders") -> int:
        """Return how many records a group has not finished."""
        with self._opened_log() as log:
            ends = {partition: offsets.end_offset for partition, offsets in log.offsets("orders").items()}
        starts: list[int] = []
        # The table may not be made yet.
        with suppress(StateTableError):
            starts = [offsets.start_offset for offsets in self.history(group_id).partitions.values()]
        return sum(ends.values()) - sum(starts)

    def history(self, group_id: str = "orders") -> GroupHistory:
        return group_history(group_id, StateTableReader(str(in_folder(self.folder, SETTINGS.state_table_path))).rows())

    def accepted_count(self, group_id: str = "orders") -> int:
        try:
            return self.history(group_id).record_count(Cause.ACCEPT)
        except StateTableError:
            # Not made yet.
            return 0

    def _opened_log(self) -> LocalLog:
        return LocalLog(in_folder(self.folder, SETTINGS.log_path))


@pytest.mark.core
@pytest.mark.long("programs with JVMs of their own")
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "valid_count"),
    [
        (COMMANDS["stream.py"], 30),
        (("python", "consumer.py"), 27),
        (COMMANDS["worker"], 27),
    ],
    ids=["stream.py", "consumer.py", "worker"],
)
def test_a_member_finishes_what_was_produced(orders: Orders, member: tuple[str, ...], valid_count: int) -> None:
    orders.produce()
    # Those that were produced for other groups are this group's, too.
    batch_count = orders.unfinished_count() // 30
    accepted = orders.accepted_count()
    with running(orders.folder, *member) as process:
        until(orders.are_all_finished, f"{member} has finished all records", [process])
    assert orders.accepted_count() - accepted == batch_count * valid_count, "of 30 records each tenth is invalid"


@pytest.mark.long("a program with a JVM of its own")
@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_with_a_sink_writes_each_record_once(orders: Orders) -> None:
    (line,) = re.findall(r"^sharegroup worker .+$", TEXTS["exactly_once.md"], re.M)
    orders.produce()
    with AdminClient({"log.path": in_folder(orders.folder, SETTINGS.log_path)}) as admin:
        earliest = {"share.auto.offset.reset": "earliest", "share.exactly.once.enable": "true"}
        admin.alter_group_config("totals", earliest)
    columns = {"topic": [""], "partition": [0], "offset": [0], "id": [0], "total": [0.0]}
    types = {"partition": pa.int32(), "offset": pa.int64(), "id": pa.int32()}
    schema = pa.schema([(name, types.get(name, pa.array(value).type)) for name, value in columns.items()])
    path = orders.folder / "data" / "totals"
    DeltaTable.create(path, schema)
    with running(orders.folder, *shlex.split(line)) as process:
        until(lambda: orders.are_all_finished("totals"), "the worker has finished all records", [process])
    offsets = DeltaTable(path).to_pyarrow_table().select(["partition", "offset"]).to_pylist()
    assert len(offsets) == len({tuple(row.values()) for row in offsets}) == orders.accepted_count("totals")
    assert len(offsets) % 27 == 0, "of 30 records each tenth is invalid"


@pytest.mark.core
@pytest.mark.long("programs with JVMs of their own")
@pytest.mark.spark
@pytest.mark.slow
def test_a_query_with_a_sink_enters_each_order_once(orders: Orders) -> None:
    orders.produce()
    run(orders.folder, *COMMANDS["groups"])
    with running(orders.folder, *COMMANDS["ledger.py"]) as process:
        until(lambda: orders.are_all_finished("ledger"), "the ledger has all orders", [process])
    run(orders.folder, *COMMANDS["audit"])
    entered = DeltaTable(orders.folder / "data" / "ledger").to_pyarrow_table(columns=["id", "partition", "offset"])
    assert (
        entered.num_rows == len(set(zip(*entered.to_pydict().values(), strict=True))) == orders.accepted_count("ledger")
    )
    assert all(number % 10 for number in entered["id"].to_pylist()), "invalid orders are rejected"


@pytest.mark.core
@pytest.mark.long("a program with a JVM of its own")
@pytest.mark.spark
@pytest.mark.slow
def test_a_notebook_runs_both_in_one_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    orders = Orders(new_folder(tmp_path_factory))
    orders.produce()
    run(orders.folder, sys.executable, "notebook.py")
    assert orders.are_all_finished()
    assert orders.accepted_count() == 27


def test_every_example_is_run() -> None:
    marked = {name: len(re.findall(r"<!-- example: \S+ -->\n```python\n", text)) for name, text in TEXTS.items()}
    others = {name: text.count("```python\n") - marked[name] for name, text in TEXTS.items()}
    # Those are run by tests of their own.
    assert {name: count for name, count in others.items() if count} == {"admin.md": 4, "exactly_once.md": 1}
    members = {"stream.py", "ledger.py", "consumer.py", "orders.py", "totals.py"}
    assert set(EXAMPLES) == {"produce.py", "notebook.py", *members}
    # `quickstart` is run by a test of its own.
    assert set(COMMANDS) == {"quickstart", "init", "processor", "stream.py", "groups", "ledger.py", "audit", "worker"}


def test_every_exit_code_is_explained() -> None:
    operations = TEXTS["operations.md"]
    assert [code for code, meaning in MEANINGS.items() if f"| {code.value} | {meaning} |" not in operations] == []


def test_the_sample_has_the_figures_that_the_example_shows() -> None:
    shown = Console(width=100, no_color=True)
    with shown.capture() as captured:
        shown.print(render(Account(GroupHistory("flights"), Verification(), SinkVerification())))
    (sample,) = re.findall(r"<!-- sample: summary -->\n```\n(.*?)```", README, re.DOTALL)
    assert titles(sample) == titles(captured.get())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings_that_are_there(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", document.read_text(encoding="utf-8"))
    targets = [((document.parent / path).resolve() if path else document, heading) for path, heading in links]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [(path, heading) for path, heading in targets if heading and heading not in anchors(path)] == []


def test_named_files_are_there() -> None:
    named = {path for text in TEXTS.values() for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|md|yaml|toml))`", text)}
    assert [path for path in named if not any((folder / path).exists() for folder in (ROOT, ROOT / "sharegroup"))] == []


def test_every_document_is_linked_from_the_readme() -> None:
    assert [path.name for path in DOCUMENTS if path.name != "README.md" and f"{path.name})" not in README] == []


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-").lower() for heading in headings}


def titles(table: str) -> list[str]:
    """The first column of the rows that have one figure."""
    return re.findall(r"^│ ([^│]*?) +│[^│]+│ *$", table, re.MULTILINE)


def activated() -> dict[str, str]:
    """The environment of a terminal in which the virtual environment is activated."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SHAREGROUP_"))
    }
    return {**environment, "PATH": os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])}


def run(folder: Path, *command: str) -> None:
    """Run a program that ends by itself, without an error."""
    leash.run(command, timeout_s=DEADLINE_S, cwd=folder, env=activated()).check_returncode()


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the block ends; then it is interrupted as by Ctrl-C."""
    with (folder / f"{Path(command[1]).name}.log").open("wb") as output:
        process = leash.start(
            command,
            cwd=folder,
            env=activated(),
            stdout=output,
            stderr=subprocess.STDOUT,
            # A terminal's Ctrl-C is heard; a test run in the background would hand down that it is ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(DEADLINE_S)
            # What Spark has started may end later: the process of a stream leaves its share group first.
            eventually(lambda: process.pid not in leash.running_sessions(), f"{command} has left nothing behind")
        finally:
            leash.end(process)


def until(condition: Callable[[], bool], what: str, processes: list[subprocess.Popen[bytes]]) -> None:
    """As `eventually`, but a process that is needed and has ended ends the wait."""

    def checked() -> bool:
        is_so = holds(condition)
        for process in () if is_so else processes:
            assert process.poll() is None, f"not any more: {what}, because {process.args!r} ended"
        return is_so

    eventually(checked, what, pause_s=0.2)


def holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (StateTableError, UnknownTopicError):
        # Not made yet.
        return False
