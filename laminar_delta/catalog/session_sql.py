"""Sessions as plain SQL, for notebooks and jobs that have no Python: the statements shipped in `laminar_delta/sql`.

They run where Spark commits to a catalog given by name. `session_commit.sql` does what `Session.commit` does, in one MERGE that
changes nothing unless the head row is the one the session began with; so a fenced writer sees no row affected. Values are
passed in session variables, because open-source Delta does not bind parameter markers inside a MERGE.
"""

from __future__ import annotations

from importlib.resources import files

from laminar_delta.errors import NotFoundError

STATEMENTS = (
    "session_variables",
    "session_begin",
    "session_stage",
    "session_label",
    "session_commit",
    "session_unlabel",
    "session_outcome",
)
"""In the order in which a notebook runs them; the two about the label may be left out."""


def session_sql(name: str) -> list[str]:
    """The statements of one of the shipped files, one by one, as `spark.sql` takes them.

    Args:
        name: One of `STATEMENTS`.
    """
    if name not in STATEMENTS:
        raise NotFoundError(f"no statement {name!r} is shipped", expected=list(STATEMENTS), found=name)
    text = (files("laminar_delta") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]
