"""Operator state: cut into blocks, stored once, put together again.

policy            how state is cut and how long a chain may get
layout            which blocks make a state, and which checkpoints store them
chunks            blocks as rows of the two state tables
staging           saving: only the blocks that the checkpoints before do not have
streaming         reading: blocks in order, verified, never the whole at once
checkpoint_state  what a checkpoint's state offers to readers
"""
