"""What a session commit costs: one source, then many, and the cost per source."""

import tempfile
from functools import partial
from pathlib import Path

import laminar_delta as ld
from benchmarks.measure import Measured, measure, show

TIMES = 20
SIZES = (100, 1_000, 10_000)


def run() -> None:
    with tempfile.TemporaryDirectory() as place:
        catalog = ld.open_catalog(str(Path(place) / "catalog"))

        def store_of(size: int) -> ld.SourceCheckpointStore:
            store = ld.SourceCheckpointStore(catalog, f"{size} sources")
            commit_all(store, size, 0)
            return store

        def commit_all(store: ld.SourceCheckpointStore, size: int, number: int) -> None:
            with store.session() as session:
                for source in range(size):
                    session.stage(f"source {source}", number + 10, b"offset %d" % number)

        def read_all(store: ld.SourceCheckpointStore, _: int) -> None:
            store.read_all_checkpoints()

        single = store_of(1)
        stores = {size: store_of(size) for size in SIZES}
        baseline = measure("session of one source", partial(commit_all, single, 1), TIMES)
        others: list[Measured] = []
        per_source: list[str] = []
        for size, store in stores.items():
            found = measure(f"session of {size:,} sources", partial(commit_all, store, size), TIMES)
            per_source.append(f"{found.p50 / size * 1000:.0f} µs of {size:,}")
            others += [
                found,
                measure(f"one source among {size:,}", partial(commit_all, store, 1), TIMES),
                measure(f"reading {size:,} sources", partial(read_all, store), TIMES),
            ]
        show(f"{TIMES} session commits on a local disk", baseline, others)
        print(f"One source in a session: {', '.join(per_source)}.")
