"""LaminarDB's checkpoint trees: the layouts of its file-system store, its object stores, and the distributed one."""

from laminar_delta.interop.laminardb.chains import StatePiece, state_chain
from laminar_delta.interop.laminardb.distributed import DistributedSource
from laminar_delta.interop.laminardb.numbered import NumberedSource

__all__ = ["DistributedSource", "NumberedSource", "StatePiece", "state_chain"]
