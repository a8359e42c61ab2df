"""Figures of deliveries, from the rows of a group."""

from __future__ import annotations

from sharegroup.audit.replay.delivery_figures import DeliveryFigures
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import DeleteGroupsRequest
from tests.actor.group_harness import Group, group_with, joined


def figures_of(group: Group) -> DeliveryFigures:
    figures = DeliveryFigures()
    for row in group.rows:
        figures.apply(row)
    return figures


def test_locks_end_with_their_state() -> None:
    group = group_with(20)
    (anna,) = joined(group, "anna")
    anna.fetch(max_records=10)
    anna.leave()
    assert figures_of(group).in_flight_peak == 10
    assert group.ask(ApiKey.DELETE_GROUPS, DeleteGroupsRequest()) == 0
    group.alter_config(share_auto_offset_reset="earliest")
    (ben,) = joined(group, "ben")
    assert ben.fetch(max_records=5).record_count == 5
    figures = figures_of(group)
    assert (figures.in_flight_peak, figures.delivery_count) == (10, 15)
