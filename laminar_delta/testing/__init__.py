"""For those who write or check an engine: the conformance suite, harness, strategies, workers. Needs the extra `testing`."""
