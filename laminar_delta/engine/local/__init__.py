"""What tables on a local disk need beyond Delta: a lock between processes, fsync, and a look at the log's newest entry."""
