"""laminar_delta: a transactional checkpoint catalog for data pipelines, kept as Delta tables.

    import laminar_delta as ld
    catalog = ld.open_catalog("./checkpoints")

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta._lazy import lazy_names
from laminar_delta._version import __version__

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.choosing import FailedSinks
    from laminar_delta.catalog.coordinator import Coordinator
    from laminar_delta.catalog.group import Save
    from laminar_delta.catalog.maintenance import MaintenancePolicy
    from laminar_delta.catalog.opening import open_catalog
    from laminar_delta.catalog.pipeline_hash import pipeline_hash
    from laminar_delta.catalog.retention import RetentionPolicy
    from laminar_delta.catalog.state.applying import register_apply
    from laminar_delta.catalog.state.policy import StatePolicy
    from laminar_delta.catalog.state.progress import StateProgress
    from laminar_delta.catalog.state.vnodes import partition_of, rescale, vnode_ranges
    from laminar_delta.errors import (
        CommitUnknownError,
        ConflictError,
        CorruptionError,
        FencedError,
        FormatError,
        InvalidInputError,
        LaminarDeltaError,
        NotFoundError,
        NotInstalledError,
        SessionStateError,
        StorageError,
    )
    from laminar_delta.model import CheckpointManifest
    from laminar_delta.stores import (
        CatalogTarget,
        CheckpointBatcher,
        DeltaCheckpointStore,
        RecoveryPolicy,
        SourceCheckpointStore,
    )

_HOME = {
    "Catalog": "laminar_delta.catalog.catalog",
    "CatalogTarget": "laminar_delta.stores",
    "CheckpointBatcher": "laminar_delta.stores",
    "Coordinator": "laminar_delta.catalog.coordinator",
    "CheckpointManifest": "laminar_delta.model",
    "CommitUnknownError": "laminar_delta.errors",
    "ConflictError": "laminar_delta.errors",
    "CorruptionError": "laminar_delta.errors",
    "DeltaCheckpointStore": "laminar_delta.stores",
    "FailedSinks": "laminar_delta.catalog.choosing",
    "FencedError": "laminar_delta.errors",
    "FormatError": "laminar_delta.errors",
    "InvalidInputError": "laminar_delta.errors",
    "LaminarDeltaError": "laminar_delta.errors",
    "MaintenancePolicy": "laminar_delta.catalog.maintenance",
    "NotFoundError": "laminar_delta.errors",
    "NotInstalledError": "laminar_delta.errors",
    "RecoveryPolicy": "laminar_delta.stores",
    "RetentionPolicy": "laminar_delta.catalog.retention",
    "Save": "laminar_delta.catalog.group",
    "SessionStateError": "laminar_delta.errors",
    "SourceCheckpointStore": "laminar_delta.stores",
    "StatePolicy": "laminar_delta.catalog.state.policy",
    "StateProgress": "laminar_delta.catalog.state.progress",
    "StorageError": "laminar_delta.errors",
    "open_catalog": "laminar_delta.catalog.opening",
    "partition_of": "laminar_delta.catalog.state.vnodes",
    "pipeline_hash": "laminar_delta.catalog.pipeline_hash",
    "register_apply": "laminar_delta.catalog.state.applying",
    "rescale": "laminar_delta.catalog.state.vnodes",
    "vnode_ranges": "laminar_delta.catalog.state.vnodes",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)

__all__ = [
    "Catalog",
    "CatalogTarget",
    "CheckpointBatcher",
    "CheckpointManifest",
    "Coordinator",
    "CommitUnknownError",
    "ConflictError",
    "CorruptionError",
    "DeltaCheckpointStore",
    "FailedSinks",
    "FencedError",
    "FormatError",
    "InvalidInputError",
    "LaminarDeltaError",
    "MaintenancePolicy",
    "NotFoundError",
    "NotInstalledError",
    "RecoveryPolicy",
    "RetentionPolicy",
    "Save",
    "SessionStateError",
    "SourceCheckpointStore",
    "StatePolicy",
    "StateProgress",
    "StorageError",
    "__version__",
    "open_catalog",
    "partition_of",
    "pipeline_hash",
    "register_apply",
    "rescale",
    "vnode_ranges",
]
