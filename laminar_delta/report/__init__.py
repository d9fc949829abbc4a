"""One page about a catalog: timelines, sizes, statuses, chains, recoveries, storage and audit; and its charts for notebooks.

Needs the extra `report`; without it, using it is `NotInstalledError`. How notebooks show a catalog, a pipeline, a manifest or a
report (`objects.py`) needs nothing further.
"""

from laminar_delta.report.charts import CHARTS, chart
from laminar_delta.report.page import write_report

__all__ = ["CHARTS", "chart", "write_report"]
