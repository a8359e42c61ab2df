"""Notices to members that hold records where another member's fetch waits.

A member reads ahead for its application. While the application does not poll, what was read ahead is locked to it, and
others may wait for it. So when a fetch has waited for a moment, and then once a second for as long as it waits, those
that hold records of its share-partitions get a notice. They return the records that their application does not come for
(`client/member_protocol.py`).

A notice is a response without a request. Nothing of it is stored: after a takeover members fetch again.
Where no fetch waits, or nobody else holds records, there is no notice and no Tick for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sharegroup.actor.effects import Address, Respond, response_to
from sharegroup.actor.holders import Holders
from sharegroup.actor.led_partitions import LedPartitions
from sharegroup.actor.share_session import ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import constructed
from sharegroup.protocol.share_fetch import NOTICE_INTERVAL_MS, ShareFetchResponse

FIRST_NOTICE_MS = 200
"""A fetch waits for this time before its first notice: most get records sooner, since applications poll."""

_NO_REQUEST = -1


class HolderNotices:
    """Notices of one group's leader."""

    def __init__(
        self, sessions: ShareSessions, partitions: LedPartitions, holders: Holders, group_id: str, leader_epoch: int
    ) -> None:
        self._sessions = sessions
        self._partitions = partitions
        self._holders = holders
        self._group_id = group_id
        self._leader_epoch = leader_epoch
        self._sent_ms: dict[str, int] = {}
        """Holder → time of its last notice; those of the last second."""

    def schedule(self, new_fetches: Iterable[str], now_ms: int) -> None:
        """Set the time of the first notice for each new fetch that waits, epoch ms.

        Args:
            new_fetches: members whose fetch came in this cut; some have their response by now.
        """
        for member_id in new_fetches:
            session = self._sessions.get(member_id)
            if session is not None and session.pending is not None and self._others_hold(member_id):
                self._sessions.notice_times.set(member_id, now_ms + FIRST_NOTICE_MS)

    def take_due(self, now_ms: int, *, is_paused: bool) -> list[Respond]:
        """Return the notices of fetches that have waited long enough by now, epoch ms; at most one for each holder.

        A holder gets no other one within a second. A paused group has none, since nobody can acquire records.
        """
        due = self._sessions.notice_times.take_due(now_ms)
        if not due or is_paused:
            return []
        self._sent_ms = {
            holder: at_ms for holder, at_ms in self._sent_ms.items() if now_ms < at_ms + NOTICE_INTERVAL_MS
        }
        holders: set[str] = set()
        for member_id in due:
            session = self._sessions.get(member_id)
            if session is not None and self._others_hold(member_id):
                holders.update(self._holders_at(session))
                self._sessions.notice_times.set(member_id, now_ms + NOTICE_INTERVAL_MS)
        notices = list(self._notices(sorted(holders.difference(self._sent_ms))))
        self._sent_ms.update((notice.address.member_id, now_ms) for notice in notices)
        return notices

    def _others_hold(self, member_id: str) -> bool:
        holders = self._holders.member_ids
        return len(holders) > (member_id in holders)

    def _holders_at(self, session: ShareSession) -> Iterator[str]:
        """Yield the other members that hold records of a session's share-partitions."""
        for key in session.partitions:
            led = self._partitions.get(key)
            if led is not None:
                yield from (holder for holder in led.share_partition.runs.member_ids if holder != session.member_id)

    def _notices(self, member_ids: Iterable[str]) -> Iterator[Respond]:
        body = constructed(ShareFetchResponse, other_member_waits=True)
        for member_id in member_ids:
            session = self._sessions.get(member_id)
            if session is not None and session.reply_partition >= 0:
                address = Address(session.reply_partition, ApiKey.SHARE_FETCH, _NO_REQUEST, self._group_id, member_id)
                yield response_to(address, body, self._leader_epoch)
