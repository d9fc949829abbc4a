"""Stores: the catalog behind the interfaces that other systems know."""

from laminar_delta.catalog.positions import min_confirmed
from laminar_delta.model.dedup import SequenceFilter
from laminar_delta.stores.batcher import BatchMetrics, BatchTarget, CatalogTarget, CheckpointBatcher
from laminar_delta.stores.drasi import SourceCheckpointStore
from laminar_delta.stores.laminardb import DEFAULT_MAX_RETAINED, DEFAULT_VNODE_COUNT, DeltaCheckpointStore
from laminar_delta.stores.starting import RecoveryPolicy, StartUp

__all__ = [
    "DEFAULT_MAX_RETAINED",
    "DEFAULT_VNODE_COUNT",
    "BatchMetrics",
    "BatchTarget",
    "CatalogTarget",
    "CheckpointBatcher",
    "DeltaCheckpointStore",
    "RecoveryPolicy",
    "SequenceFilter",
    "SourceCheckpointStore",
    "StartUp",
    "min_confirmed",
]
