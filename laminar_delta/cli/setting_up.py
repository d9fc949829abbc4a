"""`init`, `doctor`, `upgrade`, `demo`, `race`: making a catalog, and seeing that everything it needs is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from laminar_delta.cli.call import Call
from laminar_delta.cli.fields import of_each
from laminar_delta.cli.options import Apply
from laminar_delta.cli.registry import SET_UP, command
from laminar_delta.config import variable_of
from laminar_delta.errors import LaminarDeltaError, NotFoundError
from laminar_delta.masking import MASK

if TYPE_CHECKING:
    from laminar_delta.catalog.health import Check

_Directory = Annotated[
    Path | None,
    typer.Option(help="Keep everything in this directory, which must not exist yet.", show_default=False),
]
_LEVEL_STYLES = {"ok": "green", "note": "", "warning": "yellow", "problem": "red"}


@command(
    "init",
    group=SET_UP,
    fields={
        "location": "where it is",
        "engine": "which engine commits to it",
        "format": "format version",
        "created": "whether this call made it",
    },
)
def init(call: Call) -> None:
    """Make a catalog; one that is there already stays as it is."""
    import laminar_delta as ld
    from laminar_delta.catalog.tables import FORMAT_VERSION

    created = False
    try:
        ld.open_catalog(call.location, engine=call.settings.engine, create=False, **call.options)
    except NotFoundError:
        created = True
    engine = call.catalog(create=True).engine
    call.out.json({"location": engine.location, "engine": engine.name, "format": FORMAT_VERSION, "created": created})
    word = "Made a catalog" if created else "There is a catalog"
    call.out.line(f"{word} at {engine.location}, committed to by the {engine.name} engine, format {FORMAT_VERSION}.")


@command(
    "doctor",
    group=SET_UP,
    fields={
        "healthy": "whether no check found a problem",
        **of_each(
            "checks",
            "one after another",
            {
                "name": "what was looked at",
                "level": "`ok`, `note`, `warning` or `problem`",
                "found": "what was found",
                "fix": "what to do about it",
            },
        ),
        "settings": "per key that was set, where: the file, the environment variable, or `argument`",
    },
)
def doctor(call: Call) -> None:
    """Check that all is in order, and say how to mend it.

    Java, Spark, Delta, versions, permissions, lock, disk, clock, retention settings, leftovers. Exit code 1 with a problem.
    """
    checks: list[Check] = []
    with call.out.steps() as tell:
        for check in _checks(call):
            checks.append(check)
            if tell is not None:
                tell(f"checked {check.name}")
    healthy = not any(check.level.value == "problem" for check in checks)
    sources = dict(call.settings.sources)
    call.out.json({"healthy": healthy, "checks": checks, "settings": sources})
    for check in checks:
        call.out.line(f"{check.level.value:>8}  {check.name}: {check.found}", style=_LEVEL_STYLES[check.level.value])
        if check.fix and check.level.value != "ok":
            call.out.line(f"          → {check.fix}")
    for name in call.settings.storage_options:
        call.out.line(f"          storage option {name} = {MASK}")
    for name, source in sources.items():
        call.out.line(f"          {name} comes from {source}")
    if not healthy:
        call.finding()


def _checks(call: Call) -> list[Check]:
    from laminar_delta.catalog.health import Check, Level, check_catalog
    from laminar_delta.cli.cleaning import maintenance_policy
    from laminar_delta.cli.environment import check_environment
    from laminar_delta.engine import engine_for

    location = call.settings.catalog
    engine = call.settings.engine or (None if location is None else engine_for(location))
    checks = list(check_environment(spark_needed=engine == "spark"))
    if location is None:
        fix = f"Give --catalog or set {variable_of('catalog')} to have one checked."
        return [*checks, Check(name="catalog", level=Level.NOTE, found="no catalog is named", fix=fix)]
    try:
        catalog = call.catalog()
    except LaminarDeltaError as error:
        return [*checks, Check(name="catalog", level=Level.PROBLEM, found=error.message, fix=error.next_step)]
    checks.append(
        Check(name="catalog", level=Level.OK, found=f"{catalog.engine.location}, {catalog.engine.name} engine")
    )
    return [*checks, *check_catalog(catalog, maintenance_policy(call))]


@command(
    "upgrade",
    group=SET_UP,
    asks=True,
    fields={
        "applied": "whether it was done, or only told",
        "location": "where it is",
        "found": "format version it had",
        "wanted": "format version of this release",
        "steps": "versions on the way; none when it is there already",
    },
)
def upgrade(call: Call, apply: Apply = False) -> None:
    """Bring a catalog to the format of this release.

    A newer one is refused. Stop its writers first. --apply does it.
    """
    from laminar_delta.catalog.opening import upgrade_catalog

    plan = upgrade_catalog(call.location, engine=call.settings.engine, dry_run=True, **call.options)
    done = apply and bool(plan.steps)
    if done:
        call.out.confirm(f"This takes {plan.location} from format {plan.found} to {plan.wanted} for good.")
        upgrade_catalog(call.location, engine=call.settings.engine, **call.options)
    call.out.json(
        {
            "applied": done,
            "location": plan.location,
            "found": plan.found,
            "wanted": plan.wanted,
            "steps": plan.steps,
        }
    )
    if not plan.steps:
        call.out.line(f"{plan.location} has format {plan.found}, the newest there is: nothing to do.")
    elif done:
        call.out.line(f"{plan.location} has format {plan.wanted} now.")
    else:
        call.out.line(f"{plan.location} would go from format {plan.found} to {plan.wanted}: --apply does it.")


_DEMO = {
    "directory": "where everything was kept; null when it is gone",
    "exact": "whether the outcome is what it must be",
}


@command("demo", group=SET_UP, catalog=False, fields=_DEMO)
def demo(
    call: Call,
    directory: _Directory = None,
    records: Annotated[int, typer.Option(min=30, max=10_000, help="How many numbers the pipeline reads.")] = 40,
    spark: Annotated[
        bool, typer.Option("--spark", help="A Structured Streaming query instead, and a rewind; needs Java.")
    ] = False,
    files: Annotated[int, typer.Option(min=6, max=100, help="With --spark: how many files of events.")] = 8,
) -> None:
    """Run a pipeline that is killed twice and loses nothing."""
    if spark:
        from laminar_delta.cli.demo_spark import run_spark_demo

        exact = run_spark_demo(call.out, directory, files)
    else:
        from laminar_delta.cli.demo import run_demo

        exact = run_demo(call.out, directory, records)
    call.out.json({"directory": None if directory is None else str(directory), "exact": exact})
    if not exact:
        call.finding()


@command("race", group=SET_UP, catalog=False, fields=_DEMO)
def race(
    call: Call,
    directory: _Directory = None,
    rounds: Annotated[int, typer.Option(min=1, max=200, help="How many commits there are to win.")] = 12,
) -> None:
    """Let two processes race for the same commits.

    Shows who won, who was told, and what the table's log says.
    """
    from laminar_delta.cli.demo_race import run_race

    exact = run_race(call.out, directory, rounds)
    call.out.json({"directory": None if directory is None else str(directory), "exact": exact})
    if not exact:
        call.finding()
