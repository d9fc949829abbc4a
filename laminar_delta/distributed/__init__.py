"""State as DataFrames: executors cut, hash, compress and write; the driver only commits. Loaded when it is first used."""
