"""The index of due times against a check of every key."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from sharegroup.core.due_times import DueTimes

_KEYS = st.sampled_from(["anna", "ben", "cleo"])
_CALLS = st.one_of(
    st.tuples(st.just("set"), _KEYS, st.integers(0, 20)),
    st.tuples(st.just("remove"), _KEYS, st.just(0)),
    st.tuples(st.just("take"), st.just(""), st.integers(0, 20)),
)


@given(st.lists(_CALLS, max_size=40))
def test_it_takes_what_a_check_of_every_key_would_take(calls: list[tuple[str, str, int]]) -> None:
    due_times: DueTimes[str] = DueTimes()
    expected = dict[str, int]()
    for call, key, time_ms in calls:
        if call == "set":
            due_times.set(key, time_ms)
            expected[key] = time_ms
        elif call == "remove":
            due_times.set(key, None)
            expected.pop(key, None)
        else:
            due = sorted((due_ms, name) for name, due_ms in expected.items() if due_ms <= time_ms)
            assert due_times.take_due(time_ms) == [name for _, name in due]
            expected = {name: due_ms for name, due_ms in expected.items() if due_ms > time_ms}
        assert due_times.earliest_ms == min(expected.values(), default=None)
        assert len(due_times) == len(expected)
        assert all(name in due_times for name in expected)


def test_replaced_times_are_not_kept_for_ever() -> None:
    due_times: DueTimes[str] = DueTimes()
    for due_ms in range(10_000):
        due_times.set("a", due_ms)
    assert len(pickle.dumps(due_times)) < 2_000
    assert due_times.take_due(9_999) == ["a"]
