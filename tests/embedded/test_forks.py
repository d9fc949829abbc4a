"""A process forked from one that has used delta-rs: its threads are not there, and every call says so instead of panicking."""

import json
import subprocess
import sys
from pathlib import Path

FORKED = """
import json, multiprocessing, sys
import laminar_delta as ld
from laminar_delta.errors import LaminarDeltaError

place, how = sys.argv[1:]
said = multiprocessing.get_context(how).SimpleQueue()

def tell(call):
    try:
        call()
        return ["done", "", ""]
    except LaminarDeltaError as error:
        return [type(error).__name__, error.message, error.next_step]
    except BaseException as error:  # a panic is no Exception
        return [type(error).__name__, str(error), ""]

def child(said, place, catalog=None, writer=None):
    calls = {"open": lambda: ld.open_catalog(place, create=False).pipeline("orders").latest()}
    if catalog is not None:
        calls |= {
            "read": catalog.pipeline("orders").latest,
            "query": lambda: catalog.sql("SELECT 1 AS one"),
            "recover": lambda: catalog.pipeline("orders").recover(),
            "write": lambda: writer.checkpoint().commit(),
            "take over": lambda: catalog.writer("orders"),
            "create": lambda: ld.open_catalog(place + "-another"),
        }
    said.put({name: tell(call) for name, call in calls.items()})

if __name__ == "__main__":
    catalog = ld.open_catalog(place)
    writer = catalog.writer("orders")
    writer.checkpoint().commit()
    given = (catalog, writer) if how == "fork" else ()
    process = multiprocessing.get_context(how).Process(target=child, args=(said, place, *given))
    process.start()
    process.join()
    print(json.dumps(said.get()))
    writer.checkpoint().commit()
    assert catalog.pipeline("orders").latest().checkpoint_id == 2
"""


def _run(tmp_path: Path, how: str) -> tuple[dict[str, list[str]], str]:
    script = tmp_path / "script.py"
    script.write_text(FORKED)
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path / "catalog"), how]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_in_a_forked_process_every_call_says_how_to_start_one(tmp_path: Path) -> None:
    told, complaints = _run(tmp_path, "fork")
    assert {kind for kind, _, _ in told.values()} == {"SessionStateError"}
    assert all("forked" in text and "spawn" in next_step for _, text, next_step in told.values())
    assert "panicked" not in complaints
    assert not (tmp_path / "catalog-another").exists()


def test_a_spawned_process_opens_the_catalog_itself(tmp_path: Path) -> None:
    assert _run(tmp_path, "spawn") == ({"open": ["done", "", ""]}, "")
