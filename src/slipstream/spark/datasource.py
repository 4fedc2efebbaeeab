"""The data source "jetstream" as PySpark's Python Data Source API wants it.

    spark.read.format("jetstream").option("servers", url).option("stream", "ORDERS").load()

Options are checked here, before anything is planned; no server is asked for the schema.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from slipstream.spark.offsets import check_offsets
from slipstream.spark.options import SourceOptions, parse
from slipstream.spark.rows import check_schema, column_names, schema_text

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JetStreamDataSource(DataSource):
    """Streams as tables, batch and streaming."""

    @classmethod
    def name(cls) -> str:
        """What ``format(...)`` is given."""
        return "jetstream"

    def schema(self) -> str:
        """The columns that the options ask for."""
        return schema_text(column_names(self._source_options()))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """The batch source."""
        from slipstream.spark.source import BatchReader

        options = self._source_options()
        check_schema(schema, options)
        return BatchReader(schema, options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """The streaming source."""
        from slipstream.spark.stream_source import StreamReader

        options = self._source_options()
        check_schema(schema, options)
        return StreamReader(schema, options)

    def _source_options(self) -> SourceOptions:
        options = parse(SourceOptions, self.options)
        check_offsets(options)
        return options
