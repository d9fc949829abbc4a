"""A process that commits a session and is killed at one of its storage steps.

    python -m tests.support.session_crash <catalog> <pipeline> <the how-manieth point to die at>

It says `done` once the application has been told.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import laminar_delta as ld
from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.local import durability


def main(location: str, pipeline: str, fatal: int) -> None:
    """Commits one session, or dies on the way."""
    store = ld.SourceCheckpointStore(ld.open_catalog(location), pipeline, owner="child")
    session = store.session()
    session.clear()
    session.stage("kafka", 2, b"new")
    session.stage("files", 2)
    session.write_config_hash(2)
    session.write_result_sequence("q", 2)
    passed = 0

    def pass_point() -> None:
        nonlocal passed
        passed += 1
        if passed == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            pass_point()
            answer = real(*args, **kwargs)
            pass_point()
            return answer

        return call

    for owner, name in (
        (EmbeddedEngine, "_merge"),
        (EmbeddedEngine, "_holds"),
        (durability, "acknowledge"),
        (durability, "fsync_commit"),
        (durability, "fsync_files"),
    ):
        setattr(owner, name, watched(getattr(owner, name)))
    session.commit()
    print("done", flush=True)  # noqa: T201  # that is how it answers
    pass_point()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
