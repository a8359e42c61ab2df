"""The two Python share consumers that are compared: ours, and confluent-kafka's on the broker's own share groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import admin as kafka_admin

from benchmarks.site import Site
from sharegroup.client.admin import AdminClient
from sharegroup.client.share_consumer import ShareConsumer

OURS, THEIRS = "sharegroup", "confluent-kafka"


@dataclass(frozen=True, slots=True)
class ShareClient:
    """One of the two; can be pickled.

    Attributes:
        name: OURS or THEIRS.
        config: where its groups are.
    """

    name: str
    config: Mapping[str, str]

    def open(self, group_id: str, config: Mapping[str, object] | None = None) -> Any:
        """Open a consumer, whose options are at their defaults but for these."""
        merged = {**self.config, "group.id": group_id, **(config or {})}
        return ShareConsumer(merged) if self.name == OURS else confluent_kafka.ShareConsumer(merged)

    def start_at_earliest(self, group_id: str, record_locks: int | None = None) -> None:
        """Let a group begin at the earliest record.

        Args:
            record_locks: its share.partition.max.record.locks, if that is not the default; the broker's groups keep
                what the broker has.
        """
        if self.name == OURS:
            settings = {"share.auto.offset.reset": "earliest"}
            if record_locks is not None:
                settings["share.partition.max.record.locks"] = str(record_locks)
            with AdminClient(self.config) as administrator:
                administrator.alter_group_config(group_id, settings)
        else:
            start_at_earliest(self.config["bootstrap.servers"], group_id)


def share_clients(site: Site) -> tuple[ShareClient, ShareClient]:
    """Ours and theirs, on the broker of a site."""
    ours = site.settings.channel_properties
    return ShareClient(OURS, ours), ShareClient(THEIRS, {"bootstrap.servers": ours["bootstrap.servers"]})


def start_at_earliest(bootstrap_servers: str, group_id: str) -> None:
    """Let a share group of the broker begin at the earliest record."""
    set_it = kafka_admin.AlterConfigOpType.SET
    entry = kafka_admin.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=set_it)
    resource = kafka_admin.ConfigResource(kafka_admin.ResourceType.GROUP, group_id, incremental_configs=[entry])
    admin = kafka_admin.AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
