"""The queue of session ends against a look at every member."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sharegroup.coordinator.session_deadlines import SessionDeadlines

_MEMBERS = st.sampled_from(["anna", "ben", "cleo"])
_CALLS = st.one_of(
    st.tuples(st.just("set"), _MEMBERS, st.integers(0, 20)),
    st.tuples(st.just("discard"), _MEMBERS, st.just(0)),
    st.tuples(st.just("end"), st.just(""), st.integers(0, 20)),
)


@given(st.lists(_CALLS, max_size=40))
def test_it_ends_what_a_look_at_every_member_would_end(calls: list[tuple[str, str, int]]) -> None:
    sessions, expected = SessionDeadlines(), dict[str, int]()
    for call, member_id, time_ms in calls:
        if call == "set":
            sessions.set(member_id, time_ms)
            expected[member_id] = time_ms
        elif call == "discard":
            sessions.discard(member_id)
            expected.pop(member_id, None)
        else:
            due = sorted((deadline, member) for member, deadline in expected.items() if deadline <= time_ms)
            assert sessions.end_due(time_ms) == [member for _, member in due]
            expected = {member: deadline for member, deadline in expected.items() if deadline > time_ms}
        assert sessions.earliest_ms == min(expected.values(), default=None)
        assert len(sessions) == len(expected)
        assert all(member in sessions for member in expected)
