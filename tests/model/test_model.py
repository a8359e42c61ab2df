"""The protocol of open writes, in all schedules of small sizes: no rule is broken, and each rule is needed."""

from __future__ import annotations

import pytest

from tests.model.search import search
from tests.model.variants import FURTHER, SMALLEST, Variant


@pytest.mark.parametrize("variant", SMALLEST, ids=str)
def test_a_small_variant_breaks_what_it_should(variant: Variant) -> None:
    _check(variant)


@pytest.mark.long("millions of states")
@pytest.mark.parametrize("variant", FURTHER, ids=str)
def test_a_variant_breaks_what_it_should(variant: Variant) -> None:
    _check(variant)


def _check(variant: Variant) -> None:
    findings = search(variant.rules)
    traces = "\n".join(f"{rule}:\n  " + "\n  ".join(trace) for rule, trace in findings.traces.items())
    assert sorted(findings.traces) == ([variant.broken_rule] if variant.broken_rule else []), traces
