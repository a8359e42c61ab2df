"""Kafka share groups (KIP-932) on PySpark Structured Streaming.

The exports of this package are the documented interface, with those of `sharegroup.spark` for programs with a Spark
session, of `sharegroup.audit` for audits, and of `sharegroup.cli.pictures` for reports; all other names are internal. A
name is imported on its first use, so that a worker process of Spark, or the command line, loads only the modules that
it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharegroup.exports import lazy_exports

if TYPE_CHECKING:
    from sharegroup.client.admin import AdminClient as AdminClient
    from sharegroup.client.deserializing_share_consumer import DeserializingShareConsumer as DeserializingShareConsumer
    from sharegroup.client.imported_partition import ImportedPartition as ImportedPartition
    from sharegroup.client.kafka_exceptions import ConcurrentModificationException as ConcurrentModificationException
    from sharegroup.client.kafka_exceptions import IllegalStateException as IllegalStateException
    from sharegroup.client.kafka_exceptions import KafkaError as KafkaError
    from sharegroup.client.kafka_exceptions import KafkaException as KafkaException
    from sharegroup.client.kafka_exceptions import TopicPartition as TopicPartition
    from sharegroup.client.kafka_exceptions import WakeupException as WakeupException
    from sharegroup.client.message import Message as Message
    from sharegroup.client.message import Messages as Messages
    from sharegroup.client.share_consumer import ShareConsumer as ShareConsumer
    from sharegroup.config.loader import load_settings as load_settings
    from sharegroup.core.record_state import AcknowledgeType as AcknowledgeType
    from sharegroup.core.record_state import RecordState as RecordState
    from sharegroup.core.state_batches import StateBatch as StateBatch
    from sharegroup.errors import ApiError as ApiError
    from sharegroup.errors import ShareGroupError as ShareGroupError
    from sharegroup.logs.open import open_log as open_log
    from sharegroup.logs.port import NewRecord as NewRecord

__version__ = "0.1.0"

__getattr__, __all__ = lazy_exports(__name__)
