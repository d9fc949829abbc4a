"""Objects that notebooks show as tables. How they look is known to `laminar_delta.report`, loaded when one is shown."""

from importlib import import_module


class Displayed:
    """Has `_repr_html_`, which IPython, Jupyter and Databricks look for."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # By name: the report is above everything that can be shown.
        return str(import_module("laminar_delta.report.objects").shown(self))
