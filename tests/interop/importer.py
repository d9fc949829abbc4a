"""An import in a process of its own, to be killed: says how far it is, line by line.

python -m tests.interop.importer TREE CATALOG PIPELINE
"""

import sys

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.interop import importing

importing.BATCH_CHECKPOINTS = 20


def _say(done: int, total: int) -> None:
    sys.stdout.write(f"{done} {total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    interop.import_checkpoints(sys.argv[1], ld.open_catalog(sys.argv[2]), sys.argv[3], progress=_say)
