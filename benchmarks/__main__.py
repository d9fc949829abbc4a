"""`python -m benchmarks [name …]`: runs benchmarks and prints what they found."""

import importlib
import sys

NAMES = ("commits", "state", "state_frames", "sessions", "batcher", "importing", "streaming", "cli")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise SystemExit(f"there is no benchmark {unknown[0]!r}; there are: {', '.join(NAMES)}")
    for name in names or NAMES:
        importlib.import_module(f"benchmarks.{name}").run()


if __name__ == "__main__":
    main(sys.argv[1:])
