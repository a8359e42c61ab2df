"""The variants of the protocol: the present one in several sizes, and each rule left out, with what breaks then."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.rules import Check, Intended, Parts, Rules, Slot, Wait
from tests.model.search import DELIVERED_AGAIN, GIVEN_UP, STUCK, TWICE, WITHOUT_RESULT


@dataclass(frozen=True)
class Variant:
    """A variant and the rule that it breaks first; "" if it breaks none."""

    name: str
    rules: Rules
    broken_rule: str = ""

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


REFUSED = "a healthy write is refused"
_ALL = "RUJG"

SMALLEST = (
    Variant("one record, two writes", Rules()),
    Variant("one record, two writes, all outcomes", Rules(given_up=_ALL, has_mixed_outcomes=True)),
    Variant("a second run", Rules(has_second_run=True, has_mixed_outcomes=True)),
    Variant("the limit applies when a write is decided", Rules(limit=2, writes=3, given_up="RU")),
    Variant("the log start waits", Rules(log_start=Wait.WAITS)),
    Variant("a resolver only looks", Rules(fences=False), DELIVERED_AGAIN),
    Variant("a release is applied at once", Rules(intended=Intended.AT_ONCE), DELIVERED_AGAIN),
    Variant("a write that has begun says that it has not", Rules(says_begun=False), DELIVERED_AGAIN),
    Variant(
        "a run says what it decided",
        Rules(has_second_run=True, says_own_decision=True, has_mixed_outcomes=True),
        GIVEN_UP,
    ),
    Variant("the limit applies at the end of a lock", Rules(limit=1, limit_at_lock_end=True), GIVEN_UP),
)

FURTHER = (
    Variant("two records, two writes", Rules(records=2)),
    Variant("two records, two writes, all outcomes", Rules(records=2, given_up="R", has_mixed_outcomes=True)),
    Variant("one record, three writes", Rules(writes=3, given_up="RUJ", has_mixed_outcomes=True)),
    Variant("two records, a second run", Rules(records=2, has_second_run=True)),
    Variant("anybody reports a commit", Rules(records=2, anybody_reports=True)),
    Variant("parts, the last one says all", Rules(records=2, parts=Parts.UNION)),
    Variant("parts, a second run stops", Rules(records=2, parts=Parts.UNION, has_second_run=True)),
    Variant("parts, anybody reports one", Rules(records=2, parts=Parts.UNION, anybody_reports=True)),
    Variant("two resolvers", Rules(resolvers=2, has_mixed_outcomes=True)),
    Variant("offsets are reset when no write is open", Rules(writes=3, reset=Wait.WAITS)),
    Variant("two records, the log start waits", Rules(records=2, log_start=Wait.WAITS)),
    Variant("nobody reads back", Rules(records=2, reads_back=False), WITHOUT_RESULT),
    Variant(
        "a resolution names the application id only", Rules(writes=3, resolve_names_version=False), DELIVERED_AGAIN
    ),
    Variant(
        "an acknowledgement names no version", Rules(writes=3, acknowledgement_names_version=False), DELIVERED_AGAIN
    ),
    Variant("a writer checks no transaction", Rules(check=Check.NONE), DELIVERED_AGAIN),
    Variant("a writer checks another snapshot", Rules(check=Check.OF_AN_EARLIER_LOAD), DELIVERED_AGAIN),
    Variant("an application id is free before its write is closed", Rules(records=2, slot=Slot.WHILE_ACQUIRED), STUCK),
    Variant("one application id for the group", Rules(records=2, slot=Slot.FOR_EVER_THE_GROUP_S), STUCK),
    Variant("parts, the last one says its own", Rules(records=2, parts=Parts.OWN_RECORDS_ONLY), DELIVERED_AGAIN),
    Variant("parts, the last one is below the fence", Rules(records=2, parts=Parts.BELOW_THE_FENCE), REFUSED),
    Variant(
        "parts, a second run goes on",
        Rules(records=2, parts=Parts.UNION, has_second_run=True, second_run_stops=False),
        TWICE,
    ),
    Variant("the log start forgets a write", Rules(records=2, log_start=Wait.AT_ONCE), GIVEN_UP),
    Variant("offsets are reset at once", Rules(reset=Wait.AT_ONCE), DELIVERED_AGAIN),
    Variant("writes are handed out with records only", Rules(hands_out_always=False), STUCK),
)
