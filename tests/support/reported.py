"""Catalogs to report on: one as it could be, for the picture, and one whose every name is an attack."""

import random

import laminar_delta as ld
from laminar_delta.catalog.state.policy import StatePolicy

ATTACKS = (
    "<script>window.hurt = 1</script>",
    "</script><script>window.hurt = 2</script><!--",
    "\"><img src=x onerror='window.hurt = 3'>",
    "{{data}}${window.hurt = 4}",
    "\u202eright to left\u2028עברית",
    "long-" * 38,
)
"""Names of pipelines, and of everything in them."""


def fill_hostile(catalog: ld.Catalog) -> None:
    for name in ATTACKS:
        with catalog.writer(name, owner=name, reason=name) as writer:
            for number in (1, 2):
                with writer.checkpoint() as cp:
                    cp.source(name, {name: str(number)})
                    cp.state(name, b"state" * number)
                    cp.sink(name)
            writer.sink_failed(2, name, name)
            writer.recover()
        catalog.pipeline(name).pin(1, reason=name, owner=name)


def fill_plausible(catalog: ld.Catalog, saves: int = 24) -> None:
    """Two pipelines with growing offsets, state that changes a little each time, a failed sink, a recovery and a pin."""
    chance = random.Random(7)
    policy = StatePolicy(block_bytes=4096, chunk_bytes=65_536)
    for pipeline, speed in (("orders", 1500), ("payments", 420)):
        state = bytearray(chance.randbytes(400_000))
        offsets = {"0": 0, "1": 0}
        with catalog.writer(pipeline, owner="job-7", state_policy=policy) as writer:
            for number in range(1, saves + 1):
                for key in offsets:
                    offsets[key] += speed + chance.randrange(speed)
                for _ in range(chance.randrange(2, 12)):
                    state[chance.randrange(len(state))] ^= 255
                with writer.checkpoint() as cp:
                    cp.source("kafka-orders", {key: str(value) for key, value in offsets.items()}, watermark=number)
                    cp.state("window-agg", bytes(state))
                    cp.sink("warehouse")
                    cp.sink("search-index")
                writer.sink_committed(cp.id, "warehouse")
                if pipeline == "orders" and number == saves:
                    writer.sink_failed(cp.id, "search-index", "connection refused")
                else:
                    writer.sink_committed(cp.id, "search-index")
    orders = catalog.pipeline("orders")
    orders.pin(saves // 2, reason="end of quarter", owner="ops")
    orders.prune(ld.RetentionPolicy(keep_last=saves // 3), owner="ops")
    with catalog.writer("orders", owner="job-8", reason="restart") as writer:
        writer.recover()
        with writer.checkpoint() as cp:
            cp.source("kafka-orders", {"0": "99000", "1": "98000"})
            cp.state("window-agg", bytes(state))
            cp.sink("warehouse")
