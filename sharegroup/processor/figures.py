"""Figures of the loop since the processor's start."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace


@dataclass(slots=True)
class LoopFigures:
    """Sums since the processor's start; the loop's thread writes them, other threads may read them at any time.

    Attributes:
        messages: messages of the request log that were applied.
        commits: commits to the state table.
        answers: answers that were published.
        take_ms: age of the first message of each cut when it was taken.
        apply_ms: time spent in applying them.
        commit_ms: time spent in commits.
        publish_ms: time spent in publishing.
        cuts: cuts that were applied.
        undecodable_messages: messages that could not be read, and did not name whom to answer.
        unanswerable_answers: answers to a partition that the response topic does not have.
        upkeep_failures: runs of the state table's upkeep that failed.
    """

    messages: int = 0
    commits: int = 0
    answers: int = 0
    take_ms: float = 0.0
    apply_ms: float = 0.0
    commit_ms: float = 0.0
    publish_ms: float = 0.0
    cuts: int = 0
    undecodable_messages: int = 0
    unanswerable_answers: int = 0
    upkeep_failures: int = 0

    def copy(self) -> LoopFigures:
        """Return the figures as they are now."""
        return replace(self)

    def since(self, earlier: LoopFigures) -> LoopFigures:
        """Return what was added since an earlier copy."""
        return LoopFigures(
            **{field.name: getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)}
        )

    def named(self) -> dict[str, float]:
        """Return name → value, as `sharegroup.metrics.progress.LOOP_FIGURES` lists them."""
        return asdict(self)
