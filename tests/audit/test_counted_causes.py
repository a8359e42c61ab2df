"""The reports that count by cause leave none out by oversight."""

from __future__ import annotations

from sharegroup.audit.live.minute_statistics import COUNTED
from sharegroup.audit.statistics.stats import COUNTED_CAUSES
from sharegroup.cli.pictures.texts import CAUSE_COLOURS, CAUSE_TEXTS
from sharegroup.core.cause_rules import ACKNOWLEDGE_CAUSE, CAUSE_RULES, DELIVERIES, ENDS_OF_DELIVERIES, RETURNS, Author
from sharegroup.core.record_state import Cause

START_OFFSET_MOVES = {Cause.LOG_START, Cause.OFFSET_RESET}


def test_a_member_has_a_figure_for_its_deliveries_and_each_acknowledgement() -> None:
    assert set(COUNTED_CAUSES.values()) == DELIVERIES | set(ACKNOWLEDGE_CAUSE.values()) | {Cause.LOCK_TIMEOUT}


def test_a_minute_counts_every_begin_and_end_of_a_delivery_and_what_administrators_give_back() -> None:
    administrators = {cause for cause, rule in CAUSE_RULES.items() if rule.author is Author.ADMINISTRATOR}
    expected = DELIVERIES | ENDS_OF_DELIVERIES | administrators
    assert set(COUNTED) == expected - START_OFFSET_MOVES


def test_only_returns_that_the_application_did_not_ask_for_share_a_figure() -> None:
    shared = {cause for cause, column in COUNTED.items() if list(COUNTED.values()).count(column) > 1}
    rules = {cause: CAUSE_RULES[cause] for cause in RETURNS}
    assert shared == {cause for cause, rule in rules.items() if not rule.is_answer and not rule.needs_deadline}


def test_every_end_of_a_lock_has_a_text_and_a_colour() -> None:
    ends = {cause.value for cause in ENDS_OF_DELIVERIES} | {"in_doubt", "still_held", "state_removed"}
    assert set(CAUSE_TEXTS) == ends
    assert set(CAUSE_COLOURS) == ends
