"""The assembly of a processor that has taken over: the loop, the threads beside it, and what follows its commits."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterable, Mapping

from sharegroup.actor.effects import WatchLog, WatchTopics
from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.config.loader import Settings
from sharegroup.errors import ShareGroupError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log
from sharegroup.metrics.exposition import MetricsServer
from sharegroup.processor.commit import Commit
from sharegroup.processor.dead_letters.writer import DeadLetterWriter
from sharegroup.processor.followers.commit_events import log_commit
from sharegroup.processor.followers.followers import Followers, GroupActivity
from sharegroup.processor.followers.metrics_feed import MetricsFeed
from sharegroup.processor.groups import Groups, Rebuild
from sharegroup.processor.loop import Loop
from sharegroup.processor.output import ResponseRecords
from sharegroup.processor.part import Part
from sharegroup.processor.standby.probe_responses import append_responses
from sharegroup.processor.takeover.takeover import Takeover
from sharegroup.processor.watches.log_watch import LogWatch, MemberWatch, TopicCheck
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import AlterGroupConfigRequest
from sharegroup.protocol.internal_messages import Tick
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.state.fold import FoldedState
from sharegroup.state.reader import StateTableReader
from sharegroup.state.upkeep import UpkeepProcess, UpkeepReport

logger = logging.getLogger("sharegroup.processor")

GroupOverrides = Mapping[str, Mapping[str, str]]
"""Group id → key → value, from the section `groups` of the YAML file."""

_ACTIVITY = "activity"
_FOLLOWERS_STOP_S = 5.0
"""Time for the last commits to be logged and counted; a follower may hang, on a full pipe for example."""
_UPKEEP_AFTER_COMMITS = 50
"""Commits after which the upkeep process is started."""


class Assembly:
    """The parts of a processor that has taken over; the host of its loop.

    Args:
        log: request log, response log and all records; its operations wait while Kafka is away.
        side_log: the same for the threads beside the loop; its operations fail after seconds.
        fail: called with a part's failure.
        reached: called at each point that a commit passes.
    """

    def __init__(
        self,
        settings: Settings,
        log: Log,
        side_log: Log,
        takeover: Takeover,
        fail: Callable[[BaseException], None],
        reached: Callable[[str], None],
    ) -> None:
        config, publisher = settings.processor, takeover.publisher
        leader_epoch = takeover.position.leader_epoch
        self.takeover = takeover
        self._settings = settings
        self._log = log
        self._reached = reached
        self._metrics: MetricsFeed | None = None
        # Before the groups get the folded state: they change it.
        self._activity = GroupActivity(takeover.folded)
        self.dead_letters = self._dead_letter_writer(side_log, fail)
        self._opening = self._opening_messages()
        self._watch = LogWatch(side_log, publisher.send, leader_epoch, fail)
        locks = log.member_locks()
        self._member_watch = MemberWatch(locks, publisher.send, leader_epoch, fail) if locks else None
        self._upkeep = UpkeepProcess(
            config.state_table_path,
            snapshot_interval_ms=settings.broker.share_coordinator_cold_partition_snapshot_interval_ms,
            on_report=self._upkeep_reported,
        )
        self._has_upkeep = False
        self._topic_check = TopicCheck(publisher.check_request_topic, fail)
        self._follower = log.follow(config.request_topic_name, takeover.position.end_offsets)
        groups = Groups(takeover.beginning, settings.broker, ResponseRecords(log, config), takeover.clocks)
        self._standbys = groups.standbys
        self.loop = Loop(config, takeover, self._follower, groups, self)
        self._followers = Followers(self.loop.figures)
        self._followers.add("event log", log_commit)
        self._followers.add(_ACTIVITY, self._activity.published)
        self._followers.add("upkeep", self._start_upkeep_if_due)

    def start(self) -> None:
        """Start the threads; messages that an earlier processor had taken and not applied are applied first."""
        publisher = self.takeover.publisher
        self._followers.start()
        self.loop.start()
        unapplied = self.takeover.unapplied_records(self._log, self._settings.processor.request_topic_name)
        if unapplied:
            self.loop.apply_first(unapplied)
        if self.takeover.applies_one_by_one:
            self.loop.apply_one_by_one({p: offset + 1 for p, offset in self.takeover.announced_offsets.items()})
        publisher.send(self._opening)
        self._watch.start()
        if self._member_watch is not None:
            self._member_watch.start()
        self.dead_letters.start()
        self._topic_check.start()

    def feed_metrics(self, server: MetricsServer, load_ms: float) -> None:
        """Update metrics with each commit from now on."""
        # The groups change the takeover's own state; metrics need a separate one.
        self._metrics = MetricsFeed(
            server.registry,
            self._settings,
            self.takeover.served.of(self.takeover.fold_again()),
            lambda: self.loop.published_ends,
            self.takeover.position.leader_epoch,
            load_ms,
            self.loop.figures,
            lambda: self.dead_letters.metrics,
        )
        self._followers.add("metrics", self._metrics.published)

    def stop(self, timeout_s: float) -> None:
        """Commit and publish all applied cuts, and end all threads.

        The standbys hear of it when nothing is on its way any more.
        """
        self._topic_check.stop()
        self._watch.stop()
        if self._member_watch is not None:
            self._member_watch.stop()
        self.dead_letters.stop()
        if self.loop.stop(timeout_s):
            self._notify_standbys()
        self._followers.stop(_FOLLOWERS_STOP_S)
        self._follower.close()
        # Also when it was not started: a follower that took too long must not start it now.
        self._upkeep.stop()
        if self._metrics is not None:
            self._metrics.close()

    def idle_s(self, has_work: bool) -> float | None:
        """Return the seconds for which nothing was left to do; None while a group has a member, or work is left."""
        if not self._followers.follows(_ACTIVITY):
            return None
        return self._activity.idle_s(has_work or not self._followers.have_caught_up)

    # The host of the loop.

    def reached(self, point: str) -> None:
        """Note a point that a commit has passed."""
        self._reached(point)

    def update_watches(self, effects: Iterable[WatchLog | WatchTopics]) -> None:
        """Take the watches of a published commit."""
        self._watch.update(effects)

    def published(self, commit: Commit) -> None:
        """Take a published commit; dead letters come first, since groups wait for them."""
        self.dead_letters.published(commit)
        self._followers.published(commit)

    def read_rows(self, rebuild: Rebuild) -> None:
        """Read a group's rows on a thread of their own."""

        def read() -> None:
            reader = StateTableReader(self._settings.processor.state_table_path)
            rebuild.rows = reader.recovery_rows(rebuild.group_id)
            self.loop.rebuild_is_read(rebuild)

        Part("rebuild", read, self.loop.fail).start()

    def _notify_standbys(self) -> None:
        """Notify the standbys that this processor leaves: its last commit is published."""
        try:
            append_responses(self._log, self._settings.processor, self._standbys.leaving())
        except ShareGroupError as error:
            # They find out by their probes.
            logger.warning(Event("standbys_not_notified", reason=str(error)))

    def _dead_letter_writer(self, side_log: Log, fail: Callable[[BaseException], None]) -> DeadLetterWriter:
        config, broker = self._settings.processor, self._settings.broker
        writer = DeadLetterWriter(
            side_log,
            self.takeover.publisher.send,
            fail,
            self.takeover.position.leader_epoch,
            {config.request_topic_name, config.response_topic_name},
            broker.errors_deadletterqueue_auto_create_topics_enable,
        )
        writer.resume(self.takeover.folded, broker)
        return writer

    def _opening_messages(self) -> list[RequestEnvelope]:
        folded, settings = self.takeover.folded, self._settings
        log_configuration_not_in_force(folded, settings.groups, settings.broker)
        epoch = self.takeover.position.leader_epoch
        ticks = [request(ApiKey.TICK, group_id, Tick(), leader_epoch=epoch) for group_id in folded.groups]
        return [*ticks, *initial_configuration(folded, settings.groups)]

    def _start_upkeep_if_due(self, _: Commit) -> None:
        # A process costs half a second of a core, which a processor with few commits need not spend.
        if not self._has_upkeep and self.loop.figures.commits >= _UPKEEP_AFTER_COMMITS:
            self._has_upkeep = True
            self._upkeep.start()

    def _upkeep_reported(self, report: UpkeepReport) -> None:
        if report.error:
            self.loop.figures.upkeep_failures += 1
            logger.warning(Event("upkeep_failed", reason=report.error))


def initial_configuration(folded: FoldedState, groups: GroupOverrides) -> list[RequestEnvelope]:
    """Return the messages that configure the groups which the state table does not know."""
    return [
        request(ApiKey.INCREMENTAL_ALTER_CONFIGS, group_id, AlterGroupConfigRequest(set=dict(overrides)))
        for group_id, overrides in sorted(groups.items())
        if overrides and _own_configuration(folded, group_id) is None
    ]


def log_configuration_not_in_force(folded: FoldedState, groups: GroupOverrides, broker: BrokerConfig) -> None:
    """Log a warning for each known group whose values in force differ from the file: as in Kafka, changes persist."""
    for group_id, overrides in sorted(groups.items()):
        present = _own_configuration(folded, group_id)
        if present is None:
            continue
        in_force, wanted = effective_group_config(broker, present), effective_group_config(broker, overrides)
        keys = sorted(key for key in overrides if in_force.value(key) != wanted.value(key))
        if keys:
            pairs = ",".join(f"{key}={overrides[key]}" for key in keys)
            logger.warning(
                Event(
                    "group_configuration_not_in_force",
                    group=group_id,
                    keys=",".join(keys),
                    command="sharegroup groups configure "
                    f"--group {shlex.quote(group_id)} --alter --add-config {shlex.quote(pairs)}",
                )
            )


def _own_configuration(folded: FoldedState, group_id: str) -> Mapping[str, str] | None:
    """Return a group's own configuration; None when the state table does not know the group."""
    group = folded.groups.get(group_id)
    return None if group is None or group.metadata.is_dead else group.metadata.config_overrides
