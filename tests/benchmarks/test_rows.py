"""The benchmark's rows: their programs exist, results are kept, and the page has what was measured and no more."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.__main__ import PAGE, main, measure, parser
from benchmarks.page import NOT_MEASURED, page_text, plot_folder
from benchmarks.report import FIGURES_VARIABLE, Figure, print_rounds
from benchmarks.row_results import RowResult, RowResults
from benchmarks.row_runner import BusyMachineError, await_quiet, run_row
from benchmarks.rows import ROWS, Program, Row, row_of

RESULT = RowResult.of(
    "T3",
    [
        Figure("share_consumers.locks_2000.rate", 100, "records/s", peer=400),
        Figure("share_consumers.locks_2000.ratio", 0.25, "x", 0.5, False),
        Figure("share_consumers.locks_2000.rate", 300, "records/s", peer=200),
        Figure("share_consumers.locks_2000.ratio", 1.5, "x", 0.5, False),
        Figure("share_consumers.locks_2000.rate", 120, "records/s", peer=300),
        Figure("share_consumers.locks_2000.ratio", 0.4, "x", 0.5, False),
    ],
    ["rounds=3"],
)


def test_each_row_has_programs_that_exist() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.name for row in ROWS} == {*(f"T{number}" for number in range(1, 14)), "T17", "T7-long"}
    for program in (program for row in ROWS for program in row.programs):
        assert find_spec(f"benchmarks.{program.module}") is not None, program.module


def test_long_rows() -> None:
    assert [row.name for row in ROWS if row.is_long] == ["T10", "T12", "T13", "T7-long"]


def test_figures_have_the_names_of_the_row_and_the_median_of_all_rounds() -> None:
    assert RESULT.lines == [
        "T3.locks_2000.rate 120.0 records/s peer 300.0 records/s",
        "T3.locks_2000.ratio 0.4 x target 0.5 short",
    ]
    assert RESULT.figures[0].values == (100, 300, 120)
    assert RESULT.figures[0].ratio == pytest.approx(0.4)
    assert RESULT.figures[1].ratio is None


@pytest.mark.long("a benchmark in processes of its own")
@pytest.mark.slow
def test_a_row_is_measured_by_its_programs_in_processes_of_their_own(tmp_path: Path) -> None:
    short = "--log local --load idle --duration 1 --warm-up 0.5"
    row = Row(name="T7", title="", target="", programs=(Program("round_trip", short),))
    result = run_row(row, tmp_path)
    assert [line.split()[0] for line in result.lines][:2] == ["T7.local.idle.p50", "T7.local.idle.p99"]


def test_results_are_kept(tmp_path: Path) -> None:
    results = RowResults(tmp_path / "new", tmp_path)
    assert results.read("T3") is None
    results.write(RESULT)
    assert results.read("T3") == RESULT


def test_the_page_has_figures_of_measured_rows_only() -> None:
    text = page_text([(row_of("T3"), RESULT), (row_of("T4"), None)], "benchmarks")
    measured, unmeasured = text.partition("## T4")[::2]
    assert "| `T3.locks_2000.rate` | records/s | 100.0 | 120.0 | 300.0 | 3 | 300.0 | 0.40 |  |  |" in measured
    assert "| `T3.locks_2000.ratio` | x | 0.25 | 0.4 | 1.50 | 3 |  |  | 0.5 | short |" in measured
    assert "![T3](benchmarks/T3.svg)" in measured
    assert NOT_MEASURED not in measured
    assert NOT_MEASURED in unmeasured
    assert "|" not in unmeasured


def test_the_document_of_the_project_is_that_of_its_results(tmp_path: Path) -> None:
    folder = plot_folder(PAGE)
    results = RowResults(folder, tmp_path)
    text = page_text([(row, results.read(row.name)) for row in ROWS], folder.name)
    assert PAGE.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_plots_are_the_same_for_the_same_result(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="there is no matplotlib; run make setup, which installs it")
    from benchmarks.plots import draw

    for name in ("one.svg", "other.svg"):
        draw(RESULT, tmp_path / name)
    one = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert one == (tmp_path / "other.svg").read_text(encoding="utf-8")
    assert "T3.locks_2000.rate peer" in one


def test_rounds_are_recorded_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures"
    monkeypatch.setenv(FIGURES_VARIABLE, str(file))
    print_rounds([[Figure("a.b", 1, "s", peer=3)], [Figure("a.b", 2, "s", peer=4)], [Figure("a.b", 9, "s", peer=5)]])
    assert capsys.readouterr().out.splitlines()[0] == "a.b 2.00 s peer 4.00 s"
    assert [json.loads(line)["value"] for line in file.read_text().splitlines()] == [1, 2, 9]


def test_a_quiet_machine_is_awaited() -> None:
    loads = iter([2.0, 0.31, 0.3])
    await_quiet(lambda: next(loads), interval_s=0.001)
    assert next(loads, None) is None


def test_a_machine_that_stays_busy_is_refused() -> None:
    with pytest.raises(BusyMachineError, match=r"load average is 2\.00 after 0 s.*--any-load"):
        await_quiet(lambda: 2.0, longest_s=0, interval_s=0.001)


@pytest.mark.slow
def test_rows_are_measured_and_an_interrupted_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    works = Program("runs_benchmark", "--runs 1000 --repetitions 1", starts=2)
    first = Row(name="T8", title="", target="", programs=(works,), is_long=True)
    failing = Row(name="T9", title="", target="", programs=(Program("runs_benchmark", "--unknown"),), is_long=True)
    options = parser().parse_args(["--long", "--any-load", "--folder", str(tmp_path)])
    results = RowResults(tmp_path / "results", tmp_path)
    assert measure(options, [first, failing], results) == 1
    output = capsys.readouterr()
    assert "unrecognized arguments: --unknown" in output.err
    assert [line.split()[0] for line in output.out.splitlines()][:2] == [
        "T8.acknowledge_one.runs_1000",
        "T8.acknowledge_one.runs_100",
    ]
    result = results.read("T8")
    assert result is not None
    assert {len(measured.values) for measured in result.figures} == {2}
    assert any("runs=1000" in settings for settings in result.settings)
    assert (tmp_path / "T8.log").read_text().count(f"$ {works.command}\n") == 2
    # The next run measures what is missing only, and ends the run.
    (tmp_path / "T8.log").unlink()
    assert measure(options, [first], results) == 0
    assert not (tmp_path / "T8.log").exists()
    assert results.finished_rows() == []


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "python -m benchmarks --row T4" in text
    assert all(f"  {row.name} " in text for row in ROWS)


def test_the_page_can_be_written_without_a_measurement(tmp_path: Path) -> None:
    page = tmp_path / "docs" / "benchmarks.md"
    assert main(["--write-page", "--folder", str(tmp_path / "results"), "--page", str(page)]) == 0
    assert page.read_text().count(NOT_MEASURED) == len(ROWS)
    assert not page.with_suffix("").exists()
