"""Structured Streaming on the catalog: checkpoints per micro-batch, resume and rewind, progress as history."""
