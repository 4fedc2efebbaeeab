"""The batch source: ranges are fixed when the query is planned, tasks read them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

import slipstream.spark.loss as loss
import slipstream.spark.source.offsets as offsets
from slipstream.spark.options import SourceOptions
from slipstream.spark.planning import Planner
from slipstream.spark.source.pushdown import Bounds, bounds_of, intersect
from slipstream.spark.source.ranges import Part, cut
from slipstream.spark.source.reading import read_part

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Reads fixed ranges of streams."""

    def __init__(self, schema: "StructType", options: SourceOptions) -> None:
        self._schema = schema
        self.options = options
        self.bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """The parts, one per task."""
        planner = Planner(self.options)
        try:
            return list(planner.call(lambda: self._plan(planner)))
        finally:
            planner.close()

    async def _plan(self, planner: Planner) -> list[Part]:
        options, bounds = self.options, self.bounds
        subjects = intersect(options.subject_list, bounds)
        parts: list[Part] = []
        for view in await planner.views(options, subjects or []):
            start = await offsets.starting(options, view, offsets.EARLIEST)
            end = await offsets.ending(options, view)
            loss.tell(
                loss.find_loss(view.info, "", min(start, end), end), options.fail_on_data_loss
            )
            start = max(start, bounds.first, view.first)
            if bounds.last is not None:
                end = min(end, bounds.last + 1)
            if bounds.not_before is not None:
                start = max(start, await view.sequence_at(bounds.not_before))
            if bounds.before is not None:
                end = min(end, await view.sequence_at(bounds.before))
            if subjects is not None:
                parts += await cut(view, start, end, options)
        return parts or [Part("", "", 1, 1, [])]

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of a part."""
        assert isinstance(partition, Part)
        if partition.start >= partition.end:
            return iter(())
        return read_part(partition, self._schema, self.options)


class FilteringReader(BatchReader):
    """The batch source under the option `pushFilters`: the server applies what it can of a filter.

    Spark refuses a reader with this method where ``spark.sql.python.filterPushdown.enabled`` is
    false, which is Spark's default; so only those who ask for pushdown get this class.

    Spark keeps one plan of the ranges for all uses of a loaded DataFrame, the one of the last
    filters that it pushed. Each use has to load a DataFrame of its own: another use of the same
    DataFrame (or the other half of a union) would miss rows. So the option is off by default.
    """

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":
        """Narrow the ranges by `filters`; Spark applies all of them again."""
        self.bounds = bounds_of(filters)
        return filters
