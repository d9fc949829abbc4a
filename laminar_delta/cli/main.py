"""The console script `laminar-delta`.

It imports the command line only once it has seen to what may happen meanwhile: that takes a moment, in which someone may
already press Ctrl-C.
"""

from __future__ import annotations

import io
import os
import signal
import sys


def main() -> None:
    """Runs the command line, in a process of its own. Tests call `application`."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # Nothing is done yet that would have to be ended well, so no traceback of an import.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What delta-rs has to say comes with the error it raises. In its log it would stand beside that, with secrets in it.
    os.environ.setdefault("RUST_LOG", "off")
    _see_to_streams()
    from laminar_delta.cli.application import run

    signal.signal(signal.SIGINT, handler)
    run(sys.argv[1:])


def _see_to_streams() -> None:
    """Makes all streams fit to be written to."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # Whoever closed it wants the exit code only.
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            # A name that the terminal has no letters for is shown all the same, and is no error.
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
