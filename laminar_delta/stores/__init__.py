"""Stores: the catalog behind the interfaces that other systems know."""

from laminar_delta.stores.laminardb import DEFAULT_MAX_RETAINED, DEFAULT_VNODE_COUNT, DeltaCheckpointStore

__all__ = ["DEFAULT_MAX_RETAINED", "DEFAULT_VNODE_COUNT", "DeltaCheckpointStore"]
