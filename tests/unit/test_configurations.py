"""The ready configurations say what the package says, and nothing that is not there."""

import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from laminar_delta.engine.spark import settings as engine_settings
from tests.support.configurations import CONF, LOCAL, settings

FILES = [LOCAL / "spark-defaults.conf", CONF / "cluster" / "spark-defaults.conf"]
PYPROJECT = (CONF.parent / "pyproject.toml").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_delta_is_the_one_the_package_is_made_for(path: Path) -> None:
    found = settings(path)
    assert found["spark.jars.packages"] == f"io.delta:delta-spark_4.2_2.13:{version('delta-spark')}"
    assert version("pyspark").startswith("4.2.")
    assert found["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_they_do_not_do_what_the_engine_does_for_itself(path: Path) -> None:
    own = {**engine_settings.MEANING, **engine_settings.SPEED, **engine_settings.UPKEEP}
    assert not settings(path).keys() & own.keys()


def test_the_local_one_and_the_cluster_say_the_same_of_delta() -> None:
    local, cluster = (settings(path) for path in FILES)
    shared = local.keys() & cluster.keys()
    assert {name: local[name] for name in shared} == {name: cluster[name] for name in shared}
    assert "spark.master" not in cluster


def test_submit_names_files_that_are_there() -> None:
    script = (CONF / "cluster" / "submit").read_text()
    named = re.findall(r"\$here/([\w./-]+)", script)
    assert len(named) == 2
    for name in named:
        assert (CONF / "cluster" / name).is_file()
    assert (CONF / "cluster" / "submit").stat().st_mode & 0o111


def submitted(tmp_path: Path, *given: str) -> list[str]:
    """What `spark-submit` is called with."""
    called = tmp_path / "spark-submit"
    called.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    called.chmod(0o755)
    done = subprocess.run(
        [str(CONF / "cluster" / "submit"), *given],
        env={"PATH": os.environ["PATH"], "SPARK_SUBMIT": str(called)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "mode", [["--deploy-mode", "cluster"], ["--deploy-mode=cluster"], ["--conf", "spark.submit.deployMode=cluster"]]
)
def test_a_driver_on_another_machine_is_sent_what_it_reads(tmp_path: Path, mode: list[str]) -> None:
    _, _, _, files, _, option, *given = submitted(tmp_path, "--master", "yarn", *mode, "job.py")
    assert Path(files.removeprefix("spark.files=")).samefile(LOCAL / "log4j2.properties")
    assert option == "spark.driver.extraJavaOptions=-Dlog4j2.configurationFile=log4j2.properties"
    assert given == ["--master", "yarn", *mode, "job.py"]


def test_submit_hands_on_what_it_is_given(tmp_path: Path) -> None:
    first, defaults, second, option, *given = submitted(tmp_path, "--master", "local[2]", "job.py", "two words")
    assert (first, second) == ("--properties-file", "--conf")
    assert Path(defaults).samefile(CONF / "cluster" / "spark-defaults.conf")
    name, _, value = option.partition("=")
    assert name == "spark.driver.extraJavaOptions"
    assert Path(value.removeprefix("-Dlog4j2.configurationFile=file:")).samefile(LOCAL / "log4j2.properties")
    assert given == ["--master", "local[2]", "job.py", "two words"]


def test_log_levels_are_levels() -> None:
    found = dict(re.findall(r"^([\w.]+) = (.*)$", (LOCAL / "log4j2.properties").read_text(), re.MULTILINE))
    levels = {name: value for name, value in found.items() if name.endswith(".level")}
    assert set(levels.values()) <= {"off", "error", "warn", "info", "debug"}
    for name in levels:
        if name.startswith("logger."):
            assert f"{name.removesuffix('.level')}.name" in found


def test_the_bundle_is_one() -> None:
    bundle = yaml.safe_load((CONF / "databricks" / "databricks.yml").read_text())
    assert set(bundle) == {"bundle", "variables", "resources", "targets"}
    text = (CONF / "databricks" / "databricks.yml").read_text()
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) == set(bundle["variables"])
    for target in bundle["targets"].values():
        assert set(target.get("variables", {})) <= set(bundle["variables"])
    # Installing must not replace the cluster's own Spark.
    extras = re.fullmatch(r"laminar-delta\[(.*)\]", bundle["variables"]["package"]["default"])
    assert extras is not None
    assert "spark" not in extras[1].split(",")
    assert all(f"\n{extra} = [" in PYPROJECT for extra in extras[1].split(","))
    for job in bundle["resources"]["jobs"].values():
        clusters = {cluster["job_cluster_key"] for cluster in job["job_clusters"]}
        for task in job["tasks"]:
            assert task["job_cluster_key"] in clusters
            script = CONF / "databricks" / task["spark_python_task"]["python_file"]
            source = script.read_text()
            compile(source, str(script), "exec")
            options = [one for one in task["spark_python_task"]["parameters"] if one.startswith("--")]
            assert options
            assert all(f'"{option}"' in source for option in options)
    assert bundle["resources"]["jobs"]["stream"]["max_concurrent_runs"] == 1
