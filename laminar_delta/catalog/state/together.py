"""Reading many states with one look at the tables.

Each look opens a table and reads whole row groups, which for a state of some kilobytes costs more than all else. So states that
lie beside each other are read together, as many as may be in memory at a time. Whose read fails is read once more by itself:
then its own damage is named, and nobody else's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.state import streaming
from laminar_delta.catalog.state.chunks import blocks_of, names_of
from laminar_delta.catalog.state.packing import Packer
from laminar_delta.catalog.state.streaming import CHUNK_COLUMNS, LARGE_BYTES, WHOLE_BYTES, check_whole, stream
from laminar_delta.catalog.tables import BY_NAME
from laminar_delta.codec import Span, StreamDigest, runs
from laminar_delta.engine.predicate import apart, col
from laminar_delta.errors import CorruptionError, LaminarDeltaError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.engine.predicate import Literal, Predicate

MOST_CHECKPOINTS = 64
"""Of how many checkpoints the stores of states read together are: each may be a condition of its own."""

MOST_NAMED = 20
"""How many values a condition names one by one. DataFusion compares no more with the statistics of files and row groups."""

Line: TypeAlias = "Sequence[Layout]"
"""A state's layout, behind those it stands upon if it is an application delta."""
Pieces: TypeAlias = "Iterator[memoryview]"


def stream_each(reading: Reading, pipeline: str, lines: Iterable[Line]) -> Iterator[tuple[Line, list[Pieces]]]:
    """Each line with the pieces of its members, like those of `stream`: what is wrong with one is raised when they are taken.

    Args:
        reading: At which versions.
        pipeline: Whose checkpoints store them.
        lines: In the order in which they lie in the tables, as far as that is known.
    """
    for group in _groups(lines):
        yield from _read(reading, pipeline, group)


def check_all_there(reading: Reading, pipeline: str, layouts: Iterable[Layout]) -> None:
    """Raises `CorruptionError` unless some row has each block of each state, without reading what is in them."""
    for group in _groups([layout] for layout in layouts):
        members = [layout for line in group for layout in line]
        found: list[set[bytes]] = [set() for _ in members]
        for number, row in _rows(reading, pipeline, members, CHUNK_COLUMNS[:-1]):
            found[number].update(names_of(row))
        for layout, there in zip(members, found, strict=True):
            if not there.issuperset(layout.names_from(0, layout.blocks)):
                streaming.check_all_there(reading, pipeline, layout)


def _groups(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Neighbours that may be in memory together."""
    group: list[Line] = []
    size = 0
    numbers: set[int] = set()
    for line in lines:
        length = sum(layout.stored_bytes for layout in line)
        own = {store.checkpoint_id for layout in line for store in layout.stores}
        if group and (size + length > WHOLE_BYTES or len(numbers | own) > MOST_CHECKPOINTS):
            yield group
            group, size, numbers = [], 0, set()
        group.append(line)
        size += length
        numbers |= own
    if group:
        yield group


def _read(reading: Reading, pipeline: str, group: Sequence[Line]) -> Iterator[tuple[Line, list[Pieces]]]:
    if len(group) == 1:
        yield group[0], [stream(reading, pipeline, layout) for layout in group[0]]
        return
    members = [layout for line in group for layout in line]
    try:
        found = _blocks(reading, pipeline, members)
    except LaminarDeltaError as error:
        raise_unless_damage(error)
        # A file that cannot be read is in the way of all: the fewer are read with it, the fewer it concerns.
        middle = len(group) // 2
        yield from _read(reading, pipeline, group[:middle])
        yield from _read(reading, pipeline, group[middle:])
        return
    taken = 0
    for line in group:
        pieces: list[Pieces] = []
        for layout in line:
            blocks, found[taken] = found[taken], None
            taken += 1
            names = layout.names_from(0, layout.blocks)
            if blocks is None or not blocks.keys() >= set(names):
                pieces.append(stream(reading, pipeline, layout))
            else:
                pieces.append(_checked(layout, names, blocks))
        yield line, pieces


def _checked(layout: Layout, names: list[bytes], blocks: dict[bytes, Span]) -> Pieces:
    digest = StreamDigest()
    for piece in runs(blocks[name] for name in names):
        digest.update(piece)
        yield piece
    check_whole(layout, digest.checksum)


def _blocks(reading: Reading, pipeline: str, members: Sequence[Layout]) -> list[dict[bytes, Span] | None]:
    """The blocks of each by name, verified; None for one with a chunk that is not as it was saved."""
    found: list[dict[bytes, Span] | None] = [{} for _ in members]

    def unpack(item: tuple[int, Row]) -> tuple[int, dict[bytes, Span] | None]:
        number, row = item
        try:
            return number, dict(blocks_of(row, members[number].block_bytes))
        except CorruptionError:
            return number, None

    rows = _rows(reading, pipeline, members, CHUNK_COLUMNS)
    with Packer() as packer:
        for number, blocks in packer.ahead(
            unpack, ((item, (item[1]["raw_length"] or 0) >= LARGE_BYTES) for item in rows)
        ):
            known = found[number]
            if blocks is None or known is None:
                found[number] = None
            else:
                known.update(blocks)
    return found


def _rows(
    reading: Reading, pipeline: str, members: Sequence[Layout], columns: Sequence[str]
) -> Iterator[tuple[int, Row]]:
    """The chunks that the stores of states have, each with the number of the state it is of."""
    takers: dict[tuple[str, int, str, str, int], list[int]] = defaultdict(list)
    keys: dict[str, dict[int, set[Key]]] = defaultdict(lambda: defaultdict(set))
    for number, layout in enumerate(members):
        for store in layout.stores:
            place = store.table, store.checkpoint_id, store.attempt_id, layout.operator, layout.partition
            takers[place].append(number)
            keys[store.table][store.checkpoint_id].add((layout.operator, layout.partition))
    for table, stored in sorted(keys.items()):
        for own_reading, numbers in reading.of_checkpoints(table, stored):
            where = _where(pipeline, {number: stored[number] for number in numbers})
            for row in own_reading.stream(BY_NAME[table], where=where, columns=columns):
                place = table, row["checkpoint_id"], row["attempt_id"], row["operator"], row["partition"]
                for taker in takers.get(place, ()):
                    yield taker, row


def _where(pipeline: str, stored: dict[int, set[Key]]) -> Predicate:
    """Where the rows are: it may hold for some others too, which nobody takes."""
    alike: dict[frozenset[Key], list[int]] = defaultdict(list)
    for number, keys in stored.items():
        alike[frozenset(keys)].append(number)
    own = col("pipeline").eq(pipeline) & col("chunk").ge(0)
    return apart(own & _of(keys, numbers) for keys, numbers in alike.items())


def _of(keys: frozenset[Key], numbers: list[int]) -> Predicate:
    operators, partitions = (sorted(set(found)) for found in zip(*keys, strict=True))
    return col("checkpoint_id").is_in(numbers) & _among("operator", operators) & _among("partition", partitions)


def _among(name: str, values: Sequence[Literal]) -> Predicate:
    """One of them, or of many one between the first and the last: a longer list leaves out no file and no row group, and takes
    longer to look through than the rows it would leave out.
    """
    if len(values) <= MOST_NAMED:
        return col(name).is_in(values)
    return col(name).ge(values[0]) & col(name).le(values[-1])
