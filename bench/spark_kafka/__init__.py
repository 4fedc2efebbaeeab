"""Spark on streams, beside Spark on Kafka: see `bench/spark_kafka/__main__.py`."""
