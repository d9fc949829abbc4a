"""Sessions that race on one pipeline, and the proof that they came out as if one had run after the other.

    python -m tests.support.session_races '{"location": …, "pipeline": …, "generation": 1, "threads": 4, …}'

A process of its own that races, and prints what its threads did as JSON. Whenever all its threads have begun, and whenever all
have committed, it says so in a line and waits for one: so all threads of all processes begin before any of them commits.
"""

import json
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import laminar_delta as ld
from laminar_delta.catalog.sessions import Session
from laminar_delta.errors import ConflictError, FencedError

State = dict[str, int]


@dataclass
class Done:
    """A session that committed: what it had read (None: it did not look), and what it wrote."""

    session_id: str
    read: State | None
    wrote: State
    cleared: bool
    lost: int
    """How often it was told that another came first."""


def race(store: ld.SourceCheckpointStore, name: str, rounds: int, together: threading.Barrier) -> list[Done]:
    """One racer: by turns it adds to what it read, or writes without looking; now and then it clears."""
    done: list[Done] = []
    for turn in range(rounds):
        looks = (turn + len(name)) % 2 == 0
        session, read, wrote, cleared = _begin(store, name, turn, looks)
        together.wait()  # all have begun: exactly one of them can commit as it is
        lost = 0
        while True:
            try:
                # One that did not look tries the same again; one that did has to look again.
                session.retry() if lost and not looks else session.commit()
            except FencedError:
                raise
            except ConflictError:
                lost += 1
                if looks:
                    session, read, wrote, cleared = _begin(store, name, turn, looks)
                continue
            done.append(Done(session.id, read, wrote, cleared, lost))
            break
        together.wait()
    return done


def _begin(
    store: ld.SourceCheckpointStore, name: str, turn: int, looks: bool
) -> tuple[Session, State | None, State, bool]:
    session = store.session()
    cleared = turn % 3 == 2 and looks
    read = None
    wrote = {name: turn}
    if looks:
        read = {source: found.sequence for source, found in session.read_all().items()}
        wrote["total"] = read.get("total", 0) + 1
        if cleared:
            session.clear()
    for source, sequence in wrote.items():
        session.stage(source, sequence, f"{name} {turn}".encode())
    return session, read, wrote, cleared


def watch(store: ld.SourceCheckpointStore, stop: threading.Event) -> list[State]:
    """What a reader sees while others race."""
    seen: list[State] = []
    while not stop.is_set():
        seen.append({source: found.sequence for source, found in store.read_all_checkpoints().items()})
    return seen


def assert_serial(store: ld.SourceCheckpointStore, done: Sequence[Done], seen: Sequence[State]) -> None:
    """The sessions, one after the other in the order of the history, read what they read and leave what is there."""
    by_id = {one.session_id: one for one in done}
    history = [record.session_id for record in reversed(store.history())]
    assert sorted(history) == sorted(by_id), "committed without being told so, or the other way round"
    state: State = {}
    states = [state]
    for session_id in history:
        one = by_id[session_id]
        assert one.read is None or one.read == state, "a session saw what was not there when it committed"
        state = {**({} if one.cleared else state), **one.wrote}
        states.append(state)
    assert {source: found.sequence for source, found in store.read_all_checkpoints().items()} == state
    assert all(snapshot in states for snapshot in seen), "a reader saw what never was committed"


def main(argument: str) -> None:
    """One process with threads that race."""
    order: dict[str, Any] = json.loads(argument)
    catalog = ld.open_catalog(order["location"], engine=order["engine"])
    store = ld.SourceCheckpointStore(catalog, order["pipeline"], generation=order["generation"])
    together = threading.Barrier(order["threads"], action=_wait_for_the_others)
    names = [f"{order['name']} {number}" + "x" * number for number in range(order["threads"])]
    with ThreadPoolExecutor(order["threads"]) as pool:
        found = pool.map(lambda name: race(store, name, order["rounds"], together), names)
        print(json.dumps([asdict(one) for done in found for one in done]))  # noqa: T201  # that is how it answers


def _wait_for_the_others() -> None:
    print("ready", flush=True)  # noqa: T201  # that is how it tells
    if not sys.stdin.readline():
        raise EOFError("nobody waits for this race any more")


if __name__ == "__main__":
    main(sys.argv[1])
