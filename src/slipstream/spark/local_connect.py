"""Runs the Python part of `spark-pipelines` beside a Connect server on any free port.

PySpark starts that server in the process of a local Spark, and looks for it at port 15002: two
pipelines on one machine would meet there. With the port 0 in ``spark.connect.grpc.binding.port``
the server takes a free one, and this says to PySpark's client which one that is. (PySpark does the
same under SPARK_TESTING, which changes more of Spark than the port.)

`spark-class org.apache.spark.deploy.SparkPipelines` runs this file in the place of PySpark's.
"""

import runpy
import sys
from pathlib import Path

SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


def port_of_server() -> int:
    """The port of the Connect server in this process's Spark, once it runs; else 15002."""
    from pyspark.sql.session import SparkSession

    session = SparkSession._instantiatedSession
    if session is None:
        return 15002
    module = getattr(getattr(session._jvm, SERVICE), "MODULE$")
    return int(module.localPort())


def main() -> None:
    """Run `pyspark.pipelines.cli` with the words of the command line."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    DefaultChannelBuilder.default_port = staticmethod(port_of_server)  # type: ignore[method-assign]
    folder = Path(__file__).parent  # that of the script: its modules are no top-level ones
    sys.path[:] = [path for path in sys.path if Path(path) != folder]
    runpy.run_module("pyspark.pipelines.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
