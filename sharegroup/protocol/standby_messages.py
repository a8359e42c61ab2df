"""Messages between standbys and the active processor: a probe, and its response.

A probe is a request without a group. It is appended to the partition of the request log that the standby's id belongs
to. The processor that applies it responds to the standby's id in the response log. A processor that folds responds,
too, and one that leaves responds to the last probes of all standbys once more. Nothing of this is kept: after a
takeover, standbys send new probes.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from sharegroup.protocol.messages import ErrorResponse, Message


class ProcessorState(StrEnum):
    """The state of the processor that responds to a probe."""

    ACTIVE = "active"
    FOLDING = "folding"
    LEAVING = "leaving"


class StandbyProbeRequest(Message):
    """Request of a standby processor for a sign of life."""


class StandbyProbeResponse(ErrorResponse):
    """Sign of life of the active processor."""

    state: ProcessorState = Field(
        default=ProcessorState.ACTIVE,
        description="What the processor does: it applies requests, folds the state table after it has taken over, or "
        "leaves.",
    )
