"""For each command: what is typed, what it says, what a wrong call is answered with. Whoever runs it names the catalog."""

from dataclasses import dataclass, field

from laminar_delta.cli.exits import Exit
from tests.interop.support import GOLDEN

FULL = str(GOLDEN / "fs" / "full")


@dataclass(frozen=True)
class Case:
    good: list[str]
    says: str
    """Part of the text it prints."""
    wrong: list[str]
    code: Exit
    sentence: str
    """Part of the error."""
    more: list[list[str]] = field(default_factory=list)
    """Further calls, for JSON fields that the first does not show."""
    catalog: bool = True
    exit_code: Exit = Exit.OK


_REASON = ["--reason", "a test"]

CASES = {
    "ls": Case(["ls"], "orders", ["ls", "order"], Exit.NOT_FOUND, "Did you mean 'orders'?", more=[["ls", "orders"]]),
    "show": Case(
        ["show", "orders", "4"],
        "disk full",
        ["show", "orders", "77"],
        Exit.NOT_FOUND,
        "has no checkpoint 77. See `pipeline.list()`, or `laminar-delta ls orders`, for those there are",
    ),
    "latest": Case(
        ["latest", "orders"],
        "orders: checkpoint 5, epoch 5",
        ["latest", "orders", "--at", "2001-01-01"],
        Exit.NOT_FOUND,
        "no checkpoint as old as 2001-01-01. See `laminar-delta history orders` for what it had.",
    ),
    "history": Case(
        ["history", "orders"],
        "passed over 4: undelivered: sink 'warehouse' is Failed",
        ["history", "orders", "--kind", "saves"],
        Exit.USAGE,
        "there is no kind 'saves'",
    ),
    "audit": Case(
        ["audit", "orders"], "job-8", ["audit", "--table", "nope"], Exit.USAGE, "the catalog has no table 'nope'"
    ),
    "diff": Case(
        ["diff", "orders", "1", "2"],
        "offset kafka 0: 100 → 200 (+100)",
        ["diff", "orders", "1", "99"],
        Exit.NOT_FOUND,
        "has no checkpoint 99",
    ),
    "sql": Case(
        ["sql", "SELECT pipeline, checkpoint_id, created_at FROM latest_checkpoints ORDER BY pipeline"],
        "payments",
        ["sql", "DROP TABLE manifests"],
        Exit.USAGE,
        "this one begins with 'DROP'",
    ),
    "usage": Case(
        ["usage"], "reclaimable", ["usage", "--config", "nowhere.toml"], Exit.NOT_FOUND, "no configuration file"
    ),
    "metrics": Case(
        ["metrics"],
        'laminar_delta_sinks_failed{pipeline="orders"} 0',
        ["metrics", "--catalog", "nowhere"],
        Exit.NOT_FOUND,
        "there is no catalog",
        more=[["metrics", "--validate"]],
    ),
    "validate": Case(
        ["validate", "orders", "--all"],
        "orders 5: intact",
        ["validate", "orders", "3", "--all"],
        Exit.USAGE,
        "not both",
    ),
    "recover": Case(
        ["recover", "orders"],
        "orders would go on from checkpoint 5",
        ["recover", "order"],
        Exit.NOT_FOUND,
        "there is no pipeline 'order'",
        more=[["recover", "orders", "--past"]],
    ),
    "prune": Case(
        ["prune", "orders", "--keep-last", "1"],
        "Would go: 4 of 'orders'. Nothing was changed",
        ["prune", "orders"],
        Exit.USAGE,
        "nothing says what to keep",
    ),
    "restore": Case(
        ["restore", "payments", "1"],
        "Checkpoint 1 of payments is visible",
        ["restore", "payments", "44"],
        Exit.NOT_FOUND,
        "has no checkpoint 44",
    ),
    "pin": Case(
        ["pin", "orders", "3", *_REASON],
        "Checkpoint 3 of orders is pinned",
        ["pin", "payments", "1", *_REASON],
        Exit.CONFLICT,
        "is retired",
    ),
    "unpin": Case(
        ["unpin", "orders", "2"],
        "Checkpoint 2 of orders is not pinned",
        ["unpin", "orders", "55"],
        Exit.NOT_FOUND,
        "has no checkpoint 55",
    ),
    "orphans": Case(["orphans"], "1 found", ["orphans", "order"], Exit.NOT_FOUND, "there is no pipeline 'order'"),
    "maintain": Case(
        ["maintain", "--grace", "0s"],
        "checkpoints removed",
        ["maintain", "--grace", "soon"],
        Exit.USAGE,
        "'soon' is no span of time",
    ),
    "offsets get": Case(
        ["offsets", "get", "orders", "3"],
        "300",
        ["offsets", "get", "orders", "3", "--at", "03:12"],
        Exit.USAGE,
        "not both",
    ),
    "offsets set": Case(
        ["offsets", "set", "orders", "kafka", "0=7", "1=", *_REASON],
        "Nothing was changed",
        ["offsets", "set", "orders", "nope", "0=7", *_REASON],
        Exit.NOT_FOUND,
        "no source 'nope'",
    ),
    "offsets undo": Case(
        ["offsets", "undo", "orders", *_REASON],
        "would be made from 5 of orders (undo)",
        ["offsets", "undo", "payments", *_REASON],
        Exit.CONFLICT,
        "was not derived",
    ),
    "rewind": Case(
        ["rewind", "orders", "2", *_REASON],
        "would be made from 2 of orders (rewind)",
        ["rewind", "orders", "4", *_REASON],
        Exit.CONFLICT,
        "`accept_undelivered=True`, or `--accept-undelivered`, gives up",
    ),
    "fork": Case(
        ["fork", "orders", "copy", *_REASON],
        "would be made from 5 of orders (fork)",
        ["fork", "order", "copy", *_REASON],
        Exit.NOT_FOUND,
        "there is no pipeline 'order'",
    ),
    "inspect": Case(
        ["inspect", FULL],
        "Intact.",
        ["inspect", "nowhere"],
        Exit.NOT_FOUND,
        "holds no checkpoints",
        catalog=False,
        more=[["inspect", str(GOLDEN / "fs" / "corrupt")]],
    ),
    "import": Case(
        ["import", FULL, "--pipeline", "p", "--dry-run"],
        "10 would be imported",
        ["import", "nowhere", "--pipeline", "p"],
        Exit.NOT_FOUND,
        "holds no checkpoints",
    ),
    "export": Case(
        ["export", "out", "--pipeline", "payments"],
        "2 checkpoints written",
        ["export", "out", "--pipeline", "payments", "--layout", "odd"],
        Exit.USAGE,
        "there is no layout 'odd'. There are: ",
    ),
    "report": Case(
        ["report", "-o", "page.html"],
        "Wrote page.html: 2 pipelines",
        ["report", "-o", "page.html", "--pipeline", "order"],
        Exit.NOT_FOUND,
        "See `catalog.pipelines()`, or `laminar-delta ls`, for those there are.",
    ),
    "init": Case(
        ["init"],
        "There is a catalog at",
        ["init", "--engine", "duck"],
        Exit.USAGE,
        "not one of embedded, spark, memory",
    ),
    "doctor": Case(
        ["doctor"],
        "left behind by failed attempts: orders (1)",
        ["doctor", "--log-level", "loud"],
        Exit.USAGE,
        "not one of debug, info, warning, error",
    ),
    "upgrade": Case(
        ["upgrade"],
        "has format 1, the newest there is",
        ["upgrade", "--catalog", "nowhere"],
        Exit.NOT_FOUND,
        "make one there: `open_catalog(location)`, or `laminar-delta init`.",
    ),
    "demo": Case(
        ["demo", "--records", "30"],
        "No gap, no repeat",
        ["demo", "--directory", "."],
        Exit.USAGE,
        "exists already",
        catalog=False,
    ),
    "race": Case(
        ["race", "--rounds", "2"],
        "every loser was told",
        ["race", "--directory", "."],
        Exit.USAGE,
        "exists already",
        catalog=False,
    ),
}
"""By the command's name."""

BEFORE = {"offsets undo": [["offsets", "set", "orders", "kafka", "0=7", *_REASON, "--apply", "--yes"]]}
"""What has to be done first."""
