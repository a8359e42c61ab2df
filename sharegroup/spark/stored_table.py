"""The address of a state table for Spark, which reads object stores by Hadoop's clients and not as delta-rs does.

Spark reads a table on S3 as `s3a://`, with the options of its location. Other stores are read with the settings of the
session, which platforms such as Databricks have made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrameReader

from sharegroup.config.table_location import S3_SCHEMES, location_of, store_address
from sharegroup.errors import ConfigurationError
from sharegroup.spark.session import check_s3_client
from sharegroup.state.open_storage import storage_options

_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "endpoint": ("aws_endpoint_url", "aws_endpoint"),
    "endpoint.region": ("aws_region", "aws_default_region"),
    "access.key": ("aws_access_key_id",),
    "secret.key": ("aws_secret_access_key",),
    "session.token": ("aws_session_token",),
}
"""Option of Hadoop's client after `fs.s3a.` → names of the same option of delta-rs, the first that is set counts."""

_CREDENTIALS = "org.apache.hadoop.fs.s3a"


class SparkAddress(NamedTuple):
    """A table's address for Spark.

    Attributes:
        path: a folder, or an address with a scheme that Spark knows.
        options: options of a reader.
    """

    path: str
    options: Mapping[str, str]

    def reader(self, reader: DataFrameReader) -> DataFrameReader:
        """Return a reader with the options."""
        return reader.options(**self.options)


def spark_address(path: str) -> SparkAddress:
    """Return the address under which Spark reads a state table.

    Args:
        path: its folder, or its address with the options of its store.

    Raises:
        ConfigurationError: Spark knows no such address.
        EnvironmentNotReadyError: Hadoop's client for S3 is on no class path.
    """
    if location_of(path).folder is not None:
        return SparkAddress(path, {})
    store = store_address(path)
    if store.scheme == "az":
        raise ConfigurationError(
            f"Spark cannot read {path}: it knows no az://.",
            f"Write it as abfss://{store.bucket}@ACCOUNT.dfs.core.windows.net/{store.prefix}, or audit without Spark.",
        )
    if store.scheme not in S3_SCHEMES:
        return SparkAddress(str(path), {})
    check_s3_client()
    return SparkAddress(f"s3a://{store.bucket}/{store.prefix}", _s3_options(storage_options(path)))


def _s3_options(own: Mapping[str, str]) -> dict[str, str]:
    options = {
        f"fs.s3a.{name}": next(own[key] for key in keys if key in own)
        for name, keys in _OPTIONS.items()
        if any(key in own for key in keys)
    }
    is_by_host = own.get("aws_virtual_hosted_style_request", "false").lower() == "true"
    options["fs.s3a.path.style.access"] = str(not is_by_host).lower()
    if "aws_access_key_id" in own:
        kind = "TemporaryAWSCredentialsProvider" if "aws_session_token" in own else "SimpleAWSCredentialsProvider"
        options["fs.s3a.aws.credentials.provider"] = f"{_CREDENTIALS}.{kind}"
    return options
