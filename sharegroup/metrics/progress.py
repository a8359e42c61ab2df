"""The figures of the processor's loop that the progress of its streaming query shows."""

from __future__ import annotations

from collections.abc import Mapping

OBSERVATION = "sharegroup"
"""Name of the observed metrics."""

LOOP_FIGURES: Mapping[str, str] = {
    "messages": "Messages of the request log that were applied.",
    "commits": "Commits to the state table.",
    "answers": "Answers that were published.",
    "take_ms": "Age of the first message of each cut when the cut was taken, added up.",
    "apply_ms": "Time spent in applying messages.",
    "commit_ms": "Time spent in commits to the state table.",
    "publish_ms": "Time spent in publishing answers and internal messages.",
    "cuts": "Cuts that were applied: messages that were taken together.",
    "undecodable_messages": "Messages that could not be read, and did not name whom to answer.",
    "unanswerable_answers": "Answers to a partition that the response log does not have.",
    "upkeep_failures": "Runs of the state table's upkeep that failed.",
}
"""Name → meaning; each is a sum over one micro-batch."""
