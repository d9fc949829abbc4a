"""Metrics: what they say of a known catalog, and that the alert rules go by names that exist."""

import re
from pathlib import Path

import pytest
import yaml

import laminar_delta as ld
from laminar_delta.cli.registry import COMMANDS
from laminar_delta.engine.predicate import col
from tests.cli.support import ORDERS, Run

ALERTS = Path(__file__).parents[2] / "conf" / "alerts.yml"
SAMPLE = re.compile(r"(laminar_delta_\w+)(?:\{(.*)\})? (\S+)")


def _samples(text: str) -> dict[tuple[str, str], float]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


def test_the_numbers_are_those_of_the_catalog(run: Run, template: Path) -> None:
    found = _samples(run("metrics", "--catalog", template).stdout)
    orders, payments = 'pipeline="orders"', 'pipeline="payments"'
    assert found["laminar_delta_up", ""] == 1
    assert found["laminar_delta_pipelines", ""] == 2
    for name, value in {
        "latest_checkpoint_id": 5,
        "delivered_checkpoint_id": 5,
        "checkpoints": 5,
        "pinned_checkpoints": 1,
        "abandoned_checkpoints": 1,
        # That of the abandoned checkpoint is nobody's any more.
        "sinks_failed": 0,
        "sinks_pending": 0,
        "writer_generation": 2,
        "writer_held": 0,
        "recoveries_total": 1,
        "last_recovery_skipped": 1,
        "damaged_checkpoints_total": 0,
    }.items():
        assert found[f"laminar_delta_{name}", orders] == value, name
    assert found["laminar_delta_retired_checkpoints", payments] == 1
    assert found["laminar_delta_writer_held", payments] == 1
    latest = ld.open_catalog(str(template)).pipeline(ORDERS).latest()
    assert latest is not None
    assert found["laminar_delta_latest_checkpoint_timestamp_seconds", orders] == latest.timestamp_ms / 1000
    assert found["laminar_delta_state_bytes", f'{orders},kind="live"'] > 0


def test_a_name_cannot_break_out_of_its_label(run: Run, tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer('a"} 1\nup 7\\') as writer, writer.checkpoint():
        pass
    text = run("metrics", "--catalog", tmp_path / "catalog").stdout
    assert 'laminar_delta_checkpoints{pipeline="a\\"} 1\\nup 7\\\\"} 1\n' in text
    assert "\nup 7" not in text


def test_a_catalog_that_cannot_be_read_is_down(run: Run, place: Path) -> None:
    newest = sorted((place / "manifests" / "_delta_log").glob("*.json"))[-1]
    newest.write_bytes(b"")
    done = run("metrics", "--catalog", place)
    assert done.returncode == 6
    assert done.stdout.splitlines()[-1] == "laminar_delta_up 0"
    assert str(newest) in done.stderr


def test_damage_is_a_metric_and_a_finding(run: Run, catalog: ld.Catalog, place: Path) -> None:
    whole = run("metrics", "--catalog", place, "--validate")
    assert whole.returncode == 0
    assert 'laminar_delta_latest_checkpoint_valid{pipeline="orders"} 1' in whole.stdout
    catalog.engine.delete("operator_deltas", col("checkpoint_id").eq(5))
    hurt = run("metrics", "--catalog", place, "--validate")
    assert hurt.returncode == 1
    assert 'laminar_delta_latest_checkpoint_valid{pipeline="orders"} 0' in hurt.stdout
    recovered = run("recover", ORDERS, "--catalog", place, "--record", "--json")
    assert recovered.json["healed"]
    assert 'laminar_delta_healed_rows_total{pipeline="orders"} 0' not in run("metrics", "--catalog", place).stdout


def test_a_checkpoint_that_a_sink_does_not_have_is_intact_and_no_restart_goes_on_from_it(
    run: Run, catalog: ld.Catalog, place: Path
) -> None:
    resumable = 'laminar_delta_latest_checkpoint_resumable{pipeline="orders"}'
    assert f"{resumable} 1" in run("metrics", "--catalog", place, "--validate").stdout
    with catalog.writer(ORDERS) as writer, writer.checkpoint() as cp:
        cp.sink("warehouse")
    done = run("metrics", "--catalog", place, "--validate")
    # Nothing is damaged: nobody has to get up.
    assert done.returncode == 0
    assert 'laminar_delta_latest_checkpoint_valid{pipeline="orders"} 1' in done.stdout
    assert f"{resumable} 0" in done.stdout
    assert catalog.pipeline(ORDERS).recover(dry_run=True).chosen_id != cp.id


@pytest.fixture
def printed(run: Run, template: Path) -> set[str]:
    text = run("metrics", "--catalog", template, "--validate").stdout
    return set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))


def test_alert_rules_can_be_read_and_go_by_names_that_are_printed(printed: set[str]) -> None:
    document = yaml.safe_load(ALERTS.read_text())
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 8
    for rule in rules:
        assert (
            {"alert", "expr", "labels", "annotations"}
            <= rule.keys()
            <= {"alert", "expr", "labels", "annotations", "for"}
        )
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        names = set(re.findall(r"laminar_delta_\w+", rule["expr"]))
        assert names
        assert names <= printed, rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")


def test_alert_rules_advise_commands_that_exist() -> None:
    advised = re.findall(r"laminar-delta ([a-z]+)", ALERTS.read_text())
    assert advised
    assert set(advised) <= set(COMMANDS)
