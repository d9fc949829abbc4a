"""How a query starts: resume where it was, or clear everything and begin anew; and what to do when a position is gone.

Positions belong to a configuration, known by its hash. Under another one, or under one that nobody recorded, they mean nothing:
then everything goes in one commit together with the new hash, so that no crash leaves old positions under a new configuration.
What cannot be read is an error and changes nothing: it is never taken for a fresh start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from laminar_delta.catalog.names import check_text
from laminar_delta.catalog.patience import again_after_conflicts
from laminar_delta.errors import ConflictError, ErrorCode, InvalidInputError, NotFoundError, SessionStateError
from laminar_delta.model.ids import check_u64
from laminar_delta.model.source_checkpoint import SourceCheckpoint

if TYPE_CHECKING:
    from laminar_delta.catalog.sessions import Session


T = TypeVar("T")


class RecoveryPolicy(str, Enum):
    """What happens when a source cannot resume at its position any more."""

    STRICT = "strict"
    """It is an error."""
    AUTO_RESET = "auto_reset"
    """Everything is cleared, and all sources begin anew."""
    AUTO_SKIP_GAP = "auto_skip_gap"
    """The source goes on from where it can be read; what lies in between is skipped and counts as processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """Where a query begins."""

    config_hash: int
    resumed: bool
    """Whether it goes on from positions; otherwise every source begins anew, or where a skipped gap ends."""
    positions: Mapping[str, SourceCheckpoint] = field(default_factory=dict)
    """How far each source was processed, and where it resumes."""
    reason: str
    """Why, for the log."""
    skipped: tuple[str, ...] = ()
    """Sources of which a gap was skipped."""


def start(
    begin: Callable[[], Session],
    config_hash: int,
    *,
    persistent: bool,
    sources: Collection[str] | None,
    cannot_replay: Collection[str],
) -> StartUp:
    """Decides where a query begins, and commits what that takes. See `SourceCheckpointStore.start`."""
    check_u64("config hash", config_hash)
    sources = None if sources is None else _names("sources", sources)
    cannot_replay = _names("cannot_replay", cannot_replay)
    if not persistent:
        return StartUp(config_hash=config_hash, resumed=False, reason="the store is not persistent")
    if cannot_replay:
        raise InvalidInputError(
            f"source {min(cannot_replay)!r} cannot be read again from a position, and this store keeps positions",
            code=ErrorCode.UNSUPPORTED,
            expected="sources that replay",
            found=sorted(cannot_replay),
            next_step="Use a source that replays, or a store that is not persistent.",
        )

    def decide(session: Session) -> StartUp:
        stored, found = session.read_config_hash(), session.read_all()
        if stored == config_hash:
            if session.is_empty():
                # Whoever was told so first may have ended before it cleared what else belongs to the old positions.
                reason = "nothing was committed under this configuration yet"
                return StartUp(config_hash=config_hash, resumed=False, reason=reason)
            wanted = found if sources is None else {name: found[name] for name in sources if name in found}
            return StartUp(config_hash=config_hash, resumed=True, positions=wanted, reason="same configuration")
        if stored is not None:
            reason = "the configuration changed"
        elif session.is_empty():
            reason = "nothing was there"
        else:
            reason = "there were positions without a configuration"
        if reason != "nothing was there":
            session.clear()
        session.write_config_hash(config_hash)
        return StartUp(config_hash=config_hash, resumed=False, reason=reason)

    return _committed(begin, decide)


def after_gap(
    begin: Callable[[], Session],
    started: StartUp,
    gaps: Mapping[str, SourceCheckpoint | None],
    policy: RecoveryPolicy | str,
    *,
    persistent: bool,
) -> StartUp:
    """What happens after sources said that their positions are gone. See `SourceCheckpointStore.after_gap`."""
    policy = _policy(policy)
    if not isinstance(started, StartUp):
        raise InvalidInputError(
            "that is not what `start` said", expected="a StartUp", found=f"a {type(started).__name__}"
        )
    gaps = _gaps(gaps)
    if not gaps:
        return started
    if policy is RecoveryPolicy.STRICT or (policy is RecoveryPolicy.AUTO_RESET and not started.resumed):
        name = min(gaps)
        known = started.positions.get(name)
        raise NotFoundError(
            f"source {name!r} cannot be read from where the query left off"
            + ("" if started.resumed else ", although it begins anew"),
            code=ErrorCode.POSITION_UNAVAILABLE,
            expected=None if known is None else known.sequence,
            found=None if (available := gaps[name]) is None else available.sequence,
            next_step="Bring the source's history back, or start with another recovery policy.",
            details={"sources": sorted(gaps), "policy": policy.value},
        )

    def reset(session: Session) -> StartUp:
        session.clear()
        session.write_config_hash(started.config_hash)
        reason = f"the position of {min(gaps)!r} was gone"
        return StartUp(config_hash=started.config_hash, resumed=False, reason=reason)

    def skip(session: Session) -> StartUp | ConflictError:
        # A store that keeps nothing may have positions of an earlier run of this process: it begins anew all the same.
        found = session.read_all() if persistent else dict(started.positions)
        moved = [name for name in sorted(gaps) if persistent and found.get(name) != _stood(started, name)]
        if moved:
            return _moved_on(started, moved[0], found.get(moved[0]))
        positions = {name: found[name] for name in started.positions if name in found}
        for name, available in gaps.items():
            if available is None:
                # So that nothing of it counts as processed already.
                session.stage(name, 0, None)
                positions.pop(name, None)
            else:
                session.stage(name, available.sequence, available.position)
                positions[name] = available
        skipped = tuple(sorted({*started.skipped, *gaps}))
        return StartUp(
            config_hash=started.config_hash,
            resumed=started.resumed,
            positions=positions,
            reason=f"skipped a gap of {', '.join(map(repr, sorted(gaps)))}",
            skipped=skipped,
        )

    def decide(session: Session) -> StartUp | ConflictError:
        stored = session.read_config_hash()
        # A store that keeps nothing writes no hash when it starts.
        if persistent and stored != started.config_hash:
            raise SessionStateError(
                "the query was started under another configuration since, and its positions mean something else",
                expected=started.config_hash,
                found=stored,
                next_step="Call `start` again.",
            )
        return reset(session) if policy is RecoveryPolicy.AUTO_RESET else skip(session)

    told = _committed(begin, decide)
    if isinstance(told, ConflictError):
        # No race that another try could win.
        raise told
    return told


def _stood(started: StartUp, name: str) -> SourceCheckpoint | None:
    """Where a source was when the query started, as it is stored."""
    if name in started.skipped and name not in started.positions:
        return SourceCheckpoint(sequence=0)
    return started.positions.get(name)


def _moved_on(started: StartUp, name: str, found: SourceCheckpoint | None) -> ConflictError:
    stood = _stood(started, name)
    return ConflictError(
        f"source {name!r} does not stand any more where the query started: what would be skipped may be processed by now",
        expected=None if stood is None else stood.sequence,
        found=None if found is None else found.sequence,
        next_step="Call `start` again: it tells where the sources are now.",
    )


def _names(what: str, given: Collection[str]) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Collection):
        raise InvalidInputError(
            f"{what} are several names", expected="a list of names", found=f"a {type(given).__name__}"
        )
    return [check_text(f"name in {what}", name) for name in given]


def _gaps(given: Mapping[str, SourceCheckpoint | None]) -> dict[str, SourceCheckpoint | None]:
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            "gaps say of each source from where it can be read", expected="a mapping", found=f"a {type(given).__name__}"
        )
    found: dict[str, SourceCheckpoint | None] = {}
    for name, available in given.items():
        if not (available is None or isinstance(available, SourceCheckpoint)):
            raise InvalidInputError(
                f"from where source {name!r} can be read is a position, or None",
                expected="a SourceCheckpoint",
                found=f"a {type(available).__name__}",
            )
        found[check_text("name in gaps", name)] = available
    return found


def _policy(given: RecoveryPolicy | str) -> RecoveryPolicy:
    """The policy, also by its name: another than the one meant would skip what was not to be skipped."""
    try:
        return RecoveryPolicy(given)
    except ValueError:
        raise InvalidInputError(
            f"{given!r} is no recovery policy", expected=[policy.value for policy in RecoveryPolicy], found=given
        ) from None


def _committed(begin: Callable[[], Session], decide: Callable[[Session], T]) -> T:
    """Decides in a session and commits it; decides again when another session came first."""

    def once() -> T:
        with begin() as session:
            return decide(session)

    return again_after_conflicts(once)
