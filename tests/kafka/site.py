"""A processor whose log is on a real broker, with everything around it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from uuid import uuid4

from sharegroup.client.admin import AdminClient
from sharegroup.client.settings import ChannelTopics
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import Settings
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.logs.open import open_log
from tests.support import site as local
from tests.support.site import BROKER

KAFKA = KafkaConfig()


@dataclass
class KafkaSite(local.Site):
    """As its base, but for the log; its topics between members and the processor are its own.

    Attributes:
        kafka: the cluster, and how the processor and the members log in.
        stem: end of the names of its topics and groups; by default one that nobody else has on the broker.
    """

    kafka: KafkaConfig = KAFKA
    stem: str = ""

    def __post_init__(self) -> None:
        self.stem = self.stem or uuid4().hex[:8]
        self.log = open_log(self.kafka)
        self.processor = None
        self._names = itertools.count()

    @property
    def settings(self) -> Settings:
        processor = ProcessorConfig(
            state_table_path=str(self.state_path),
            checkpoint_path=str(self.checkpoint_path),
            request_topic_name=f"requests-{self.stem}",
            response_topic_name=f"responses-{self.stem}",
            metrics_port=self.metrics_port,
        ).model_copy(update=dict(self.config))
        return Settings(processor, BROKER.model_copy(update=dict(self.broker)), self.groups, {}, {}, self.kafka)

    def new_name(self, stem: str) -> str:
        """A name that nobody else has on the broker."""
        return f"{stem}-{self.stem}-{next(self._names)}"

    @property
    def admin(self) -> AdminClient:
        config = self.settings.processor
        return AdminClient(
            self.log,
            topics=ChannelTopics(
                request_topic_name=config.request_topic_name, response_topic_name=config.response_topic_name
            ),
        )

    def consumer(self, group_id: str, topic: str, **config: object) -> ShareConsumer:
        """A subscribed consumer; `max_poll_records=10` and so on."""
        own = {name.replace("_", "."): value for name, value in config.items()}
        consumer = ShareConsumer({**self.settings.channel_properties, "group.id": group_id, **own})
        consumer.subscribe([topic])
        return consumer
