"""Interop: look at checkpoints of other systems, bring them in, take them out.

from laminar_delta import interop
interop.inspect_source("./old")                                # what is it, is it intact
interop.import_checkpoints("./old", catalog, "orders")         # again and again: it goes on where it was
interop.export_checkpoints(catalog, "orders", "./out")         # LaminarDB loads it
"""

from laminar_delta.interop.batches import BatchFiles
from laminar_delta.interop.detecting import KINDS, check_apart, open_source
from laminar_delta.interop.exporting import LAYOUTS, export_checkpoints
from laminar_delta.interop.importing import import_checkpoints
from laminar_delta.interop.inspecting import INSPECTED, inspect_source
from laminar_delta.interop.laminardb import StatePiece, state_chain
from laminar_delta.interop.place import Limits
from laminar_delta.interop.reports import CheckpointSummary, ExportReport, ImportReport, Inspection, Skipped

__all__ = [
    "INSPECTED",
    "KINDS",
    "LAYOUTS",
    "BatchFiles",
    "CheckpointSummary",
    "ExportReport",
    "ImportReport",
    "Inspection",
    "Limits",
    "Skipped",
    "StatePiece",
    "check_apart",
    "export_checkpoints",
    "import_checkpoints",
    "inspect_source",
    "open_source",
    "state_chain",
]
