"""The Spark layer: the session, the query that hosts a processor, the worker, and the data source `sharegroup`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from sharegroup.exports import lazy_exports

if find_spec("pyspark") is None:
    raise ModuleNotFoundError(
        "sharegroup.spark needs PySpark, which is not installed: pip install 'sharegroup[spark]'. "
        "Databricks and other platforms bring their own.",
        name="pyspark",
    )

if TYPE_CHECKING:
    from sharegroup.spark.audit_rows import SparkRows as SparkRows
    from sharegroup.spark.processor_query import ProcessorQuery as ProcessorQuery
    from sharegroup.spark.session import build_session as build_session
    from sharegroup.spark.source.batch_acknowledgements import acknowledge as acknowledge
    from sharegroup.spark.source.written_batch import write_once as write_once
    from sharegroup.spark.sources import register as register
    from sharegroup.spark.worker import process as process

__getattr__, __all__ = lazy_exports(__name__)
