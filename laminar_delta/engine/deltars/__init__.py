"""delta-rs, as both engines use it: `embedded` for everything, `spark` for what Spark has no words for on local files."""
