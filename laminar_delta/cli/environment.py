"""What this machine has of what laminar_delta needs: Python, packages, Java. Nothing heavy is imported to find out."""

from __future__ import annotations

import operator
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from laminar_delta._version import __version__
from laminar_delta.catalog.health import Check, Level

_JAVA_NEEDED = 17
_JAVA_PATIENCE_S = 20
_JAVA_VERSION = re.compile(r'version "(\d+)')
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?P<bounds>[^;]*)")
_BOUND = re.compile(r"\s*(>=|<=|==|<|>)\s*([0-9.]+)\s*")
_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_FOR_SPARK = "not installed; only catalogs that Spark commits to need it"


def check_environment(*, spark_needed: bool) -> Iterator[Check]:
    """All checks of the machine.

    Args:
        spark_needed: Whether the catalog is one that Spark commits to.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check(name="laminar_delta", level=Level.OK, found=f"{__version__} on Python {python}")
    missing = Level.PROBLEM if spark_needed else Level.NOTE
    bounds = _bounds()
    for name in ("deltalake", "pyarrow"):
        yield _package(name, bounds.get(name, ""), missing=Level.PROBLEM)
    for name in ("pyspark", "delta-spark"):
        yield _package(name, bounds.get(name, ""), missing=missing)
    yield _java(missing)


def _bounds() -> dict[str, str]:
    """Per package what this release was made for."""
    try:
        wanted = metadata.requires("laminar-delta") or []
    except metadata.PackageNotFoundError:  # run from a directory, not installed
        return {}
    found = [match for match in map(_REQUIREMENT.match, wanted) if match is not None]
    return {match["name"].lower(): match["bounds"].strip() for match in found if match["bounds"].strip()}


def _package(name: str, bounds: str, *, missing: Level) -> Check:
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(
            name=name,
            level=missing,
            found=_FOR_SPARK if missing is Level.NOTE else "not installed",
            fix="pip install 'laminar-delta[spark]'; on Databricks use the cluster's own.",
        )
    if not fits(installed, bounds):
        return Check(
            name=name,
            level=Level.WARNING,
            found=f"{installed}, tested with {bounds}",
            fix=f"pip install '{name}{bounds}'",
        )
    return Check(name=name, level=Level.OK, found=installed)


def fits(version: str, bounds: str) -> bool:
    """Whether a version lies within bounds such as `>=1.6.3,<1.6.4`; what is no number in it does not count."""
    own = _numbers(version)
    return all(
        _COMPARE[found[1]](own, _numbers(found[2]))
        for found in map(_BOUND.fullmatch, filter(str.strip, bounds.split(",")))
        if found is not None
    )


def _numbers(version: str) -> tuple[int, ...]:
    parts = re.findall(r"\d+", re.split(r"[^0-9.]", version, maxsplit=1)[0])
    return (*map(int, parts), 0, 0, 0)[:4]


def _java(missing: Level) -> Check:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    fix = f"Install Java {_JAVA_NEEDED}, for example: apt install openjdk-{_JAVA_NEEDED}-jre-headless."
    if java is None:
        return Check(name="java", level=missing, found=_FOR_SPARK, fix=fix)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        where = " (JAVA_HOME names it)" if home else ""
        return Check(name="java", level=missing, found=f"{java}{where} does not run: {error}", fix=fix)
    told = _JAVA_VERSION.search(done.stderr)
    if told is None:
        return Check(name="java", level=missing, found=f"{java} does not tell its version", fix=fix)
    if int(told[1]) < _JAVA_NEEDED:
        return Check(name="java", level=missing, found=f"{java} is Java {told[1]}, too old for Spark", fix=fix)
    return Check(name="java", level=Level.OK, found=f"Java {told[1]} at {java}")
