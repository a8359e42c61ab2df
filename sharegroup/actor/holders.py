"""Members that hold records, and the processes that they run in.

Members of one process die together, so suspects (`core/suspects.py`) are delivered to a process that holds nothing
else of the group, not to a member that does.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from typing import NamedTuple

from sharegroup.core.records import PartitionKey


class Process(NamedTuple):
    """A process of members; one that a member does not name is its own.

    Attributes:
        name: host and process id, as its members named them at joining; "" when they did not.
        member_id: the member, when it named no process.
    """

    name: str
    member_id: str = ""


class Holders:
    """Holders of a leader's records, with an index for each query of a cut.

    Args:
        process_names: member → host and process id.
        limit: maximum number of members whose process is known; the oldest go when there are too many.
    """

    def __init__(self, process_names: Mapping[str, str], limit: int) -> None:
        self._limit = limit
        self._names: dict[str, str] = {}
        self._members: dict[Process, dict[str, None]] = {}
        """Process → its members, in the order in which they joined."""
        self._keys: dict[str, set[PartitionKey]] = {}
        self._suspects: dict[str, set[PartitionKey]] = {}
        """Member → share-partitions in which it holds suspects."""
        self._holding: dict[Process, set[str]] = {}
        self._holding_suspects: dict[Process, set[str]] = {}
        self._new: set[str] = set()
        self._lighter: set[Process] = set()
        for member_id, name in process_names.items():
            self.record_join(member_id, name)

    @property
    def member_ids(self) -> KeysView[str]:
        """The members that hold records."""
        return self._keys.keys()

    @property
    def are_suspects_held(self) -> bool:
        """True if any member holds suspects."""
        return bool(self._suspects)

    def keys_of(self, member_id: str) -> list[PartitionKey]:
        """Return the share-partitions in which a member holds records, in order."""
        return sorted(self._keys.get(member_id, ()))

    def process_of(self, member_id: str) -> Process:
        """Return the process of a member."""
        name = self._names.get(member_id, "")
        return Process(name) if name else Process("", member_id)

    def members_of(self, process: Process) -> Iterable[str]:
        """Return the members of a process that are known, in the order in which they joined."""
        return self._members.get(process, ()) or ([process.member_id] if process.member_id else [])

    def holds_nothing(self, process: Process) -> bool:
        """Return True if no member of a process holds records."""
        return process not in self._holding

    def holds_suspects(self, process: Process) -> bool:
        """Return True if a member of a process holds suspects."""
        return process in self._holding_suspects

    def record_join(self, member_id: str, process_name: str) -> None:
        """Record the process of a member that joins, "" when it names none; what it holds moves with it."""
        self._move(member_id, process_name)
        if len(self._names) > self._limit:
            self._move(next(iter(self._names)), "")

    def forget(self, member_id: str) -> None:
        """Forget the process of a member that leaves."""
        self._move(member_id, "")

    def hold(self, member_id: str, key: PartitionKey, *, are_suspects: bool) -> None:
        """Record that a member holds records of a share-partition, and whether suspects are among them."""
        process = self.process_of(member_id)
        keys = self._keys.get(member_id)
        if keys is None:
            self._keys[member_id] = {key}
            self._holding.setdefault(process, set()).add(member_id)
            self._new.add(member_id)
        else:
            keys.add(key)
        if are_suspects:
            self._suspects.setdefault(member_id, set()).add(key)
            self._holding_suspects.setdefault(process, set()).add(member_id)
        elif member_id in self._suspects:
            self._release(self._suspects, self._holding_suspects, member_id, key)

    def release(self, member_id: str, key: PartitionKey) -> None:
        """Record that a member holds nothing of a share-partition."""
        if member_id in self._keys:
            self._release(self._keys, self._holding, member_id, key)
        if member_id in self._suspects:
            self._release(self._suspects, self._holding_suspects, member_id, key)

    def take_new(self) -> list[str]:
        """Return the members that hold records and held none before the last call, in the order of their ids."""
        new, self._new = self._new, set()
        return sorted(new)

    def take_lighter(self) -> list[str]:
        """Return the members of processes that hold nothing, or no suspects, and did at the last call."""
        lighter, self._lighter = self._lighter, set()
        return [member_id for process in sorted(lighter) for member_id in self.members_of(process)]

    def _release(
        self,
        keys_of: dict[str, set[PartitionKey]],
        members_of: dict[Process, set[str]],
        member_id: str,
        key: PartitionKey,
    ) -> None:
        keys_of[member_id].discard(key)
        if not keys_of[member_id]:
            del keys_of[member_id]
            self._leave(members_of, self.process_of(member_id), member_id)

    def _leave(self, members_of: dict[Process, set[str]], process: Process, member_id: str) -> None:
        members_of[process].discard(member_id)
        if not members_of[process]:
            del members_of[process]
            self._lighter.add(process)

    def _move(self, member_id: str, process_name: str) -> None:
        before = self.process_of(member_id)
        if member_id in self._names:
            self._members[before].pop(member_id)
            if not self._members[before]:
                del self._members[before]
            del self._names[member_id]
        if process_name:
            self._names[member_id] = process_name
            self._members.setdefault(Process(process_name), {})[member_id] = None
        after = self.process_of(member_id)
        if after == before:
            return
        for keys, members_of in ((self._keys, self._holding), (self._suspects, self._holding_suspects)):
            if member_id in keys:
                self._leave(members_of, before, member_id)
                members_of.setdefault(after, set()).add(member_id)
