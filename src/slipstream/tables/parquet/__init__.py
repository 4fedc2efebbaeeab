"""Streams as folders of Parquet files, which anything reads that knows Parquet."""

from slipstream.tables.parquet.part import ParquetPart, folder_at

__all__ = ["ParquetPart", "folder_at"]
