"""Starting without a checkpoint: the fold of the state table becomes the first state of each actor.

The files are written once, when a checkpoint folder is made, and never change while it lives, so that a batch that
is executed again starts from the same states.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sharegroup.actor.context import ActorContext
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.leader import Leader
from sharegroup.actor.led_partition import LedPartition
from sharegroup.actor.mailbox import ActorState
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.group_coordinator import GroupCoordinator
from sharegroup.coordinator.share_coordinator import SnapshotEpochs
from sharegroup.protocol.api_key import ActorRole
from sharegroup.state.fold import FoldedGroup, FoldedState

_FOLDER = "bootstrap"
_IDENTITY = "identity.json"


@dataclass(frozen=True, slots=True)
class CheckpointIdentity:
    """What a checkpoint folder was made for.

    Attributes:
        checkpoint_id: distinguishes it from every other checkpoint folder.
        request_topic_id: topic id of the request log.
        start_offsets: request-log partition → first offset that its query reads.
    """

    checkpoint_id: str
    request_topic_id: str
    start_offsets: Mapping[int, int]


def bootstrap_folder(checkpoint: Path) -> Path:
    """Folder of the actors' first states inside a checkpoint folder."""
    return checkpoint / _FOLDER


def read_identity(checkpoint: Path) -> CheckpointIdentity | None:
    """The identity of a checkpoint folder; None when there is no complete one."""
    path = bootstrap_folder(checkpoint) / _IDENTITY
    if not path.exists():
        return None
    fields = json.loads(path.read_text())
    starts = {int(partition): offset for partition, offset in fields["start_offsets"].items()}
    return CheckpointIdentity(fields["checkpoint_id"], fields["request_topic_id"], starts)


def write_bootstrap(
    checkpoint: Path, identity: CheckpointIdentity, folded: FoldedState, broker: BrokerConfig, time_ms: int
) -> None:
    """Write the actors' first states; the identity comes last, and makes the folder complete.

    Args:
        checkpoint: the checkpoint folder.
        identity: what it is made for.
        folded: all groups.
        broker: defaults and bounds of all groups.
        time_ms: time of the last batch in the state table; the actors' time never goes back behind it.
    """
    folder = bootstrap_folder(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    for group in folded.groups.values():
        for role, state in recovered_states(group, broker, time_ms).items():
            bootstrap_path(folder, group.group_id, role).write_bytes(state.encoded())
    # In one step: a processor that is killed here must leave no identity, or a whole one.
    written = folder / f"{_IDENTITY}.new"
    written.write_text(json.dumps(asdict(identity)))
    written.replace(folder / _IDENTITY)


def bootstrap_state(folder: Path, group_id: str, role: ActorRole) -> ActorState:
    """The first state of an actor: what a recovery wrote, or nothing."""
    path = bootstrap_path(folder, group_id, role)
    return ActorState.decoded(path.read_bytes()) if path.exists() else ActorState()


def recovered_states(group: FoldedGroup, broker: BrokerConfig, time_ms: int) -> dict[ActorRole, ActorState]:
    """Both actors' states from a folded group: members and locks are back, share sessions are not."""
    context = ActorContext(group.group_id, request_partition=-1, leader_epoch=-1, broker=broker)
    partitions = [
        LedPartition(
            folded.topic,
            folded.topic_id,
            folded.partition,
            folded.share_partition,
            SnapshotEpochs(folded.snapshot_epoch, folded.updates_since_snapshot),
            rejected=folded.rejected,
        )
        for folded in group.partitions.values()
    ]
    coordinator = Coordinator(context, GroupCoordinator(group.metadata, broker))
    leader = Leader(context, group.metadata.config_overrides, partitions)
    plain = {ActorRole.COORDINATOR: coordinator.to_plain(), ActorRole.LEADER: leader.to_plain()}
    return {role: ActorState(plain[role], time_ms, group.failures.get(role, "")) for role in ActorRole}


def bootstrap_path(folder: Path, group_id: str, role: ActorRole) -> Path:
    """File of an actor's first state in that folder."""
    # Group ids may hold any character and be long; a hash is a file name everywhere.
    digest = hashlib.sha256(group_id.encode()).hexdigest()
    return folder / f"{digest}.{role.value}.state"
