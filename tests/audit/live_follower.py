"""The live auditor without Spark: its positions, and the text of each share-partition between two batches."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sharegroup.audit.live.live_commits import MOST_COMMITS, LiveCommits, LivePosition
from sharegroup.audit.live.live_partition import Entry, LivePartition, ResultKind
from sharegroup.config.broker import BrokerConfig


@dataclass
class LiveFollower:
    """Follows a table batch by batch; a new one with the same positions and texts is the same auditor, started again.

    Attributes:
        path: the state table.
        position: where it is; None before the first batch.
        texts: share-partition → stored text.
        findings: all findings so far.
        minutes: all minutes of statistics so far.
        progress: commit id and time of the last batch.
    """

    path: Path
    broker: BrokerConfig
    most_commits: int = MOST_COMMITS
    position: LivePosition | None = None
    texts: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    minutes: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._commits = LiveCommits(str(self.path), self.broker, self.most_commits)

    def started_again(self) -> LiveFollower:
        """Return the auditor that continues from the checkpoint of this one."""
        assert self.position is not None
        position = LivePosition.from_json(json.loads(json.dumps(self.position.to_json())))
        return LiveFollower(self.path, self.broker, self.most_commits, position, dict(self.texts))

    def follow(self, now_ms: int = 0) -> int:
        """Run batches until there is nothing new; return their number."""
        count = 0
        start = self.position or self._commits.initial(now_ms)
        while (end := self._commits.latest(start, now_ms)) != start:
            self._run(self._commits.entries(start, end))
            start, count = end, count + 1
        self.position = start
        return count

    def follow_once(self, now_ms: int = 0) -> None:
        """Run one batch."""
        start = self.position or self._commits.initial(now_ms)
        self.position = self._commits.latest(start, now_ms)
        self._run(self._commits.entries(start, self.position))

    def close_minutes(self, now_ms: int) -> None:
        """Let time pass, as a timeout of the states does."""
        for key, text in list(self.texts.items()):
            partition = LivePartition.from_text(text)
            self._take(partition.close_minute(now_ms))
            self.texts[key] = partition.to_text()

    def total(self) -> Counter[str]:
        """The sums of the statistics that can be added up."""
        sums: Counter[str] = Counter()
        for minute in self.minutes:
            sums.update({name: value for name, value in minute.items() if isinstance(value, int)})
        return sums

    def _run(self, entries: list[Entry]) -> None:
        for key, document in reversed(entries):
            text = self.texts.get(key)
            partition = LivePartition() if text is None else LivePartition.from_text(text)
            self._take(partition.advance(document, self.broker.model_dump_json()))
            if partition.is_over:
                self.texts.pop(key, None)
            else:
                self.texts[key] = partition.to_text()

    def _take(self, results: Any) -> None:
        for kind, document in results:
            fields = json.loads(document)
            if kind == ResultKind.FINDING:
                self.findings.append(fields)
            elif kind == ResultKind.STATISTICS:
                self.minutes.append(fields)
            else:
                self.progress = fields
