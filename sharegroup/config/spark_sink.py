"""SparkSinkConfig: how a Spark worker, or a query's `write_once`, writes results into its Delta table."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sharegroup.config.model import Allowed, Bool, Config, invalid_relation, parse_list
from sharegroup.errors import ConfigurationError

ColumnNames = Annotated[tuple[str, ...], BeforeValidator(parse_list), Allowed("names of columns, comma-separated")]

MERGE = "merge"


class SparkSinkConfig(Config):
    """Configuration of a sink that Spark writes to.

    `merge` updates the rows of the table that have the keys of a result, and inserts the others. Records come in no
    order by key, so that a later result may be written before an earlier one: compare versions in the condition.
    """

    sink_mode: Literal["append", "merge"] = Field(
        default="append", description="Whether results are appended, or merged by keys."
    )
    sink_merge_keys: ColumnNames = Field(
        default=(), description="Columns that identify a row, comma-separated; only with `merge`, which needs them."
    )
    sink_merge_condition: str = Field(
        default="",
        description="SQL condition for the update of a row, such as `source.version > target.version`; without it each "
        "result updates its row. Only with `merge`.",
    )
    sink_schema_evolution: Bool = Field(
        default=False, description="Whether columns of results that the table lacks are added to it."
    )
    sink_writers: Literal["", "one", "atomic"] = Field(
        default="",
        description="Needed where Spark's own commits are not atomic, and nothing here can check it, as on S3: `one` "
        "says that all writers of the table are in one Spark driver, `atomic` that the session's log store is atomic.",
    )

    @property
    def sink_values(self) -> dict[str, object]:
        """The keys of a sink that differ from their defaults, with their values."""
        keys = SparkSinkConfig.key_names()
        return {key: self.value(key) for key in keys if self.value(key) != _DEFAULTS.value(key)}

    @property
    def sink_config(self) -> SparkSinkConfig:
        """The keys of a sink alone."""
        return SparkSinkConfig.from_mapping(self.sink_values)

    def check_no_sink(self) -> None:
        """Check that no key of a sink is set, since there is none.

        Raises:
            ConfigurationError: one is.
        """
        if self.sink_values:
            key = next(iter(self.sink_values))
            raise ConfigurationError(f"{key} is set, and there is no sink.", "Set sink to a Delta table.")

    @model_validator(mode="after")
    def _check_merge(self) -> Self:
        is_merge = self.sink_mode == MERGE
        if is_merge != bool(self.sink_merge_keys):
            raise invalid_relation(
                "sink.merge.keys is needed with sink.mode merge, and only there", "sink.mode", "sink.merge.keys"
            )
        if self.sink_merge_condition and not is_merge:
            raise invalid_relation("sink.merge.condition needs sink.mode merge", "sink.mode", "sink.merge.condition")
        return self


_DEFAULTS = SparkSinkConfig()
