"""Ready parts of pipelines: functions from DataFrame to DataFrame or to a query; few lines each."""
