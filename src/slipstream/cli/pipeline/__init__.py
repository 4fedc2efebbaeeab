"""`slipstream pipeline`: Spark's declarative pipelines over streams, and streams as tables.

command       the verbs                  table      `pipeline table`, without Spark
spark         runs `spark-pipelines`     output     what it prints, in few words
server        the one named or embedded  status     where flows and streams stand
project       the folder of a pipeline   template   what `pipeline init` writes into it
"""
