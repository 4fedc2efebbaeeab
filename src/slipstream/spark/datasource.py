"""The data source "jetstream" as PySpark's Python Data Source API wants it.

    spark.read.format("jetstream").option("servers", url).option("stream", "ORDERS").load()

Options are checked here, before anything is planned; no server is asked for the schema. A read does
not load the sink, nor a write the source.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from slipstream.errors import ConfigError
from slipstream.spark.options import SourceOptions, parse

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# What Spark adds to the options of a streaming write.
SPARKS_OWN = ("path", "checkpointlocation", "queryname")


class JetStreamDataSource(DataSource):
    """Streams as tables, batch and streaming."""

    @classmethod
    def name(cls) -> str:
        """What ``format(...)`` is given."""
        return "jetstream"

    def schema(self) -> str:
        """The columns that the options ask for."""
        from slipstream.spark.source import column_names, schema_text

        return schema_text(column_names(self._source_options()))

    def reader(self, schema: "StructType") -> DataSourceReader:
        """The batch source."""
        from slipstream.spark.source import BatchReader, FilteringReader, check_schema

        options = self._source_options()
        check_schema(schema, options)
        kind = FilteringReader if options.push_filters else BatchReader
        return kind(schema, options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        """The streaming source."""
        from slipstream.spark.source import StreamReader, check_schema

        options = self._source_options(streaming=True)
        check_schema(schema, options)
        return StreamReader(schema, options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        """The batch sink; into a bucket with the option `bucket`."""
        from slipstream.spark.sink import BatchWriter, SinkOptions

        if overwrite:
            raise ConfigError(
                'jetstream: a stream cannot be overwritten; use mode("append"), and purge the '
                "stream before if that is meant"
            )
        return BatchWriter(schema, parse(SinkOptions, self.options))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        """The streaming sink; into a bucket with the option `bucket`."""
        from slipstream.spark.sink import SinkOptions, StreamWriter

        options = dict(self.options)
        for name in list(options):
            if name.lower() in SPARKS_OWN:
                del options[name]
        return StreamWriter(schema, parse(SinkOptions, options))

    def _source_options(self, *, streaming: bool = False) -> SourceOptions:
        from slipstream.spark.source import check_source

        options = parse(SourceOptions, self.options)
        check_source(options, streaming=streaming)
        return options
