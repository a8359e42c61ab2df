"""The check of the words: a table of names and texts, refused and right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.words import ROOT, Vocabulary

VOCABULARY = Vocabulary(ROOT / "tools" / "words.toml")


def refused(source: str, path: str = "sharegroup/core/module.py") -> list[str]:
    """Return the refused words with their lines, without the suggestions."""
    return [finding.removeprefix(f"{path}:").partition(": write ")[0] for finding in VOCABULARY.findings(path, source)]


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("found = 1", '1: "found"'),
        ("for found in ():\n    pass", '1: "found"'),
        ("[1 for _, found in ()]", '1: "found"'),
        ("if (found := 1):\n    pass", '1: "found"'),
        ("def f(said: str) -> None: ...", '1: "said"'),
        ("x = lambda told: 1", '1: "told"'),
        ("def _as_told() -> None: ...", '1: "told" in "_as_told"'),
        ("class GivenOffsets: ...", '1: "given" in "given_offsets"'),
        ("self.is_ripe = True", '1: "ripe" in "is_ripe"'),
        ("def _heed() -> None: ...", '1: "heed" in "_heed"'),
        ("import a as plain", '1: "plain"'),
        ("try:\n    pass\nexcept OSError as fact:\n    pass", '3: "fact"'),
        ("\nletters = dead_letters", '2: "letters"'),
        ('"""What was logged."""', '1: "What"'),
        ('"""A module."""\n\nx = 1\n"""Whether it is one."""', '4: "Whether"'),
        ('def f() -> None:\n    """Who holds it."""', '2: "Who"'),
        ('"""A summary.\n\nThe rest, of what is\nsaid of it.\n"""', '3: "what is said"'),
        ("# Nothing is told of it.", '1: "is told"'),
        ("# Members are not told.", '1: "are not told"'),
        ('raise ValueError("Group packers goes on.")', '1: "Group packers goes on"'),
        ('x = f"a wish of {1}"', '1: "wish"'),
        ("def test_a_topic_is_told() -> None: ...", '1: "is told"'),
        ("_LOOK_S = 1", '1: "look" in "_look_s"'),
        ("self._last_looks = {}", '1: "looks" in "_last_looks"'),
        ("looked_ms = 1", '1: "looked" in "looked_ms"'),
        ("answers = channel.receive()", '1: "answers"'),
        ("def _starts_anew() -> None: ...", '1: "anew" in "_starts_anew"'),
        ('"""Describe the topic; one look proves nothing."""', '1: "one look"'),
        ("# It looks at the end offsets once a second.", '1: "looks at the end offsets"'),
        ('"""Return the answer to a fetch."""', '1: "the answer"'),
        ('"""Wait.\n\nThe client waits for its\nanswer.\n"""', '3: "its answer"'),
        ('"""Findings of strays without a chain."""', '1: "strays"'),
    ],
)
def test_refused_words_of_programs(source: str, finding: str) -> None:
    assert finding in refused(source)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("# Title\n\nWhat nothing was said of is released.", '3: "nothing was said"'),
        ("Who needs more time acknowledges it with RENEW.", '1: "Who needs more time acknowledges it with RENEW."'),
        ("With RENEW its lock lasts anew.", '1: "lasts anew"'),
        ("records whose\nletters were written", '1: "whose letters"'),
        ("The processor begins anew.", '1: "anew"'),
        ("Whoever can append to it can change any group.", '1: "Whoever"'),
        ("A deleted record cannot be told\nfrom a gap.", '1: "cannot be told from"'),
        ("A copy has new lineage headers.", '1: "lineage headers"'),
        ("After each look nothing is read.", '1: "each look"'),
        ("One look-up takes 60 ns.", '1: "look-up"'),
        ("Members drop an answer of a lower epoch.", '1: "an answer"'),
    ],
)
def test_refused_words_of_documents(text: str, finding: str) -> None:
    assert finding in refused(text, "docs/page.md")


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("class GroupIdNotFoundError(Exception): ...", "sharegroup/errors.py"),
        ("is_not_found = True", "sharegroup/errors.py"),
        ('raise ValueError("Group packers not found.")', "sharegroup/errors.py"),
        ("from hypothesis import given\n\n\n@given(1)\ndef test_all() -> None: ...", "tests/unit/test_all.py"),
        ("self.is_given_up = True", "sharegroup/spark/module.py"),
        ("def finish_dead_letters() -> None: ...", "sharegroup/core/module.py"),
        ('"""Records that their members told apart by key."""', "sharegroup/core/module.py"),
        ('"""Values of random letters."""', "sharegroup/cli/module.py"),
        ("# A topic name has 249 letters, digits and dots.", "sharegroup/cli/module.py"),
        ("import os\n\nos.link(a, b)", "sharegroup/state/module.py"),
        ("link = os.link", "tests/state/test_writer.py"),
        ("def plain_stream() -> None: ...", "benchmarks/kafka_to_delta.py"),
        ("def test_a_damaged_state_is_found() -> None: ...", "tests/unit/test_state.py"),
        ('"""Return what the log has beyond the applied messages."""', "sharegroup/core/module.py"),
        ('"""True if it is known who holds it."""', "sharegroup/core/module.py"),
        ("Who decides? The coordinator.", "docs/page.md"),
        ("Without a look for its file, a deleted record looks like a gap.", "docs/page.md"),
        ("Look at the members, and look up the error.", "docs/page.md"),
        ("The answer is complete from this commit on.", "docs/audits.md"),
        ("answers: list[int] = []", "sharegroup/core/transition_rules.py"),
        ('"""Find the records.\n\n    Args:\n        orphan_rows: orphan rows.\n"""', "sharegroup/audit/module.py"),
    ],
)
def test_right_words(source: str, path: str) -> None:
    assert refused(source, path) == []


def test_a_finding_has_its_suggestion() -> None:
    assert list(VOCABULARY.findings("tools/module.py", "x = 1\nfound = 2")) == [
        'tools/module.py:2: "found": write the noun of what it is: partition, record, finding'
    ]


def test_a_module_is_a_name() -> None:
    assert refused("", "sharegroup/core/facts.py") == ['1: "facts"']


def test_its_own_examples_are_excluded() -> None:
    path = str(Path(__file__).relative_to(ROOT))
    assert list(VOCABULARY.findings(path, Path(__file__).read_text(encoding="utf-8"))) == []
