"""Arrow's own functions, without `pyarrow.compute`.

That module makes a Python function with a documentation of each of them when it is imported, which takes longer than most
calls of the command line; `Array.cast` and its like import it too. Where pyarrow hides them elsewhere, it is used after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def call(name: str, *columns: Any) -> Any:
    """The answer of one of Arrow's functions, by its name there."""
    return _functions().call_function(name, list(columns))


def cast(column: pa.ChunkedArray[Any], kind: pa.DataType) -> pa.ChunkedArray[Any]:
    """A column in another type. Raises Arrow's own error for a value that this type does not have."""
    functions = _functions()
    answer: pa.ChunkedArray[Any] = functions.call_function("cast", [column], functions.CastOptions.safe(kind))
    return answer


def _functions() -> Any:
    try:
        import pyarrow._compute as found
    except ImportError:  # a pyarrow that keeps them in another place
        import pyarrow.compute as found  # type: ignore[no-redef]
    return found
