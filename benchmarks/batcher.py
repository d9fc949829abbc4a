"""What the batcher costs beside the compression it cannot do without: plain `lz4.block` on the same bytes."""

import random
import struct
import tempfile
from pathlib import Path

import lz4.block

import laminar_delta as ld
from benchmarks.measure import measure, show
from laminar_delta import interop
from laminar_delta.codec import decode_batch, encode_batch
from laminar_delta.stores import CatalogTarget, CheckpointBatcher

TIMES = 20
BLOBS = 800
BLOB_BYTES = 10 * 1024


def _blobs() -> list[tuple[str, bytes]]:
    """About 8 MiB, as large as a batch gets: keys and counters, which compress somewhat, as state does."""
    chance = random.Random(7)
    found = []
    for number in range(BLOBS):
        rows = [struct.pack("<IQ", chance.randrange(1000), chance.randrange(10**6)) for _ in range(BLOB_BYTES // 12)]
        found.append((f"partition-{number}/agg", b"".join(rows)))
    return found


class _Nowhere:
    def write(self, epoch: int, payload: bytes, attempt_id: str) -> object:  # noqa: ARG002 - it goes nowhere
        return None


def run() -> None:
    blobs = _blobs()
    body = b"".join(data for _, data in blobs)
    plain = lz4.block.compress(body)
    batch = encode_batch(blobs)

    def cycle(batcher: CheckpointBatcher, epoch: int) -> None:
        for key, data in blobs:
            batcher.add(key, data)
        batcher.flush(epoch)

    size = f"{len(body) >> 20} MiB in {BLOBS} blobs, {len(batch) / len(body):.0%} after compression"
    nowhere = CheckpointBatcher(_Nowhere())
    show(
        f"Writing a batch: {size}",
        measure("lz4.block.compress", lambda _: lz4.block.compress(body), TIMES),
        [
            measure("encode_batch", lambda _: encode_batch(blobs), TIMES),
            measure("batcher: add all, flush", lambda number: cycle(nowhere, number + 10), TIMES),
        ],
    )
    show(
        f"Reading a batch: {size}",
        measure("lz4.block.decompress", lambda _: lz4.block.decompress(plain), TIMES),
        [measure("decode_batch, verified", lambda _: decode_batch(batch), TIMES)],
    )
    with tempfile.TemporaryDirectory() as place:
        catalog = ld.open_catalog(str(Path(place) / "catalog"))
        table = CheckpointBatcher(CatalogTarget(catalog, "orders"))
        files = CheckpointBatcher(interop.BatchFiles(Path(place) / "files"))

        def write_plain(number: int) -> None:
            (Path(place) / f"plain-{number}").write_bytes(lz4.block.compress(body))

        show(
            f"Keeping a batch, flushed to the disk: {size}",
            measure("lz4.block to a file, not flushed", write_plain, TIMES),
            [
                measure("batcher to files", lambda number: cycle(files, number + 10), TIMES),
                measure("batcher to the catalog", lambda number: cycle(table, number + 10), TIMES),
            ],
        )
