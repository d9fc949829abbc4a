"""Conditions as data, so that every engine filters by the same words.

A predicate is rendered to SQL for DataFusion (`embedded`) and Spark, and evaluated row by row by the `memory` engine, with
SQL's three-valued logic in all three. Literals are `str`, `int`, `bool` and `bytes`: everything the catalog filters by.
Decimals and times are missing on purpose: delta-rs rounds decimal statistics, so a filter on one silently loses rows, and
the catalog orders by `BIGINT` milliseconds instead of timestamps.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Any, TypeAlias

from laminar_delta.errors import ErrorCode, InvalidInputError

Literal: TypeAlias = "str | int | bool | bytes"
Rows: TypeAlias = Mapping["Side | None", Mapping[str, object]]
"""The rows a predicate is evaluated on: one under `None` for a scan, target and source for a merge."""

Bounds: TypeAlias = Mapping[str, "tuple[Any, Any]"]
"""By column its least and its greatest value, as statistics tell them."""

MIN_BIGINT = -(2**63)
MAX_BIGINT = 2**63 - 1


class Dialect(Enum):
    """Whose SQL. They differ in how a name is quoted and in whether a backslash escapes."""

    DATAFUSION = "datafusion"
    SPARK = "spark"


class Side(Enum):
    """Which row of a merge a column belongs to; the value is its alias in SQL."""

    TARGET = "target"
    SOURCE = "source"


class Predicate(ABC):
    """A condition; combine with `&`, `|` and `~`."""

    @abstractmethod
    def sql(self, dialect: Dialect) -> str:
        """This condition as SQL text, in parentheses where it could bind wrongly."""

    @abstractmethod
    def holds(self, rows: Rows) -> bool | None:
        """True, False, or None for SQL's unknown."""

    def may_hold(self, bounds: Bounds) -> bool:  # noqa: ARG002  # by those that can tell
        """False only where no row within bounds makes this true; columns without bounds have any value."""
        return True

    def __and__(self, other: Predicate) -> Predicate:
        return _Junction("AND", (self, other))

    def __or__(self, other: Predicate) -> Predicate:
        return _Junction("OR", (self, other))

    def __invert__(self) -> Predicate:
        return _Not(self)


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name, and in a merge by side. Comparisons take a literal or another column."""

    name: str
    side: Side | None = None

    def eq(self, other: Literal | Column) -> Predicate:
        """This equals `other`."""
        return _Comparison("=", self, _operand(other))

    def ne(self, other: Literal | Column) -> Predicate:
        """This differs from `other`."""
        return _Comparison("<>", self, _operand(other))

    def lt(self, other: Literal | Column) -> Predicate:
        """This is below `other`."""
        return _Comparison("<", self, _operand(other))

    def le(self, other: Literal | Column) -> Predicate:
        """This is at most `other`."""
        return _Comparison("<=", self, _operand(other))

    def gt(self, other: Literal | Column) -> Predicate:
        """This is above `other`."""
        return _Comparison(">", self, _operand(other))

    def ge(self, other: Literal | Column) -> Predicate:
        """This is at least `other`."""
        return _Comparison(">=", self, _operand(other))

    def is_in(self, values: Iterable[Literal]) -> Predicate:
        """This equals one of `values`; no value at all is never true."""
        return _In(self, tuple(_Value(value) for value in values))

    def is_null(self) -> Predicate:
        """This is null: never unknown."""
        return _IsNull(self)

    def sql(self, dialect: Dialect) -> str:
        """The quoted name, with the side's alias in front."""
        quoted = quote_name(self.name, dialect)
        return quoted if self.side is None else f"{self.side.value}.{quoted}"

    def value(self, rows: Rows) -> object:
        """The column's value in the row of its side."""
        return rows[self.side][self.name]


def col(name: str) -> Column:
    """A column of the scanned or deleted table."""
    return Column(name)


def target(name: str) -> Column:
    """A column of the row already in the table, in a merge."""
    return Column(name, Side.TARGET)


def source(name: str) -> Column:
    """A column of the incoming row, in a merge."""
    return Column(name, Side.SOURCE)


def all_of(predicates: Iterable[Predicate]) -> Predicate | None:
    """The conjunction of `predicates`, or None (no condition) when there is none."""
    found = list(predicates)
    return reduce(operator.and_, found) if found else None


def equals(values: Mapping[str, Literal]) -> Predicate | None:
    """Every named column has the given value: the usual way to name a key."""
    return all_of(col(name).eq(value) for name, value in values.items())


def apart(parts: Iterable[Predicate]) -> Predicate:
    """Any of `parts`, of which never two hold for the same row; an engine may look for the rows of each by themselves."""
    return Apart(tuple(parts))


def quote_name(name: str, dialect: Dialect) -> str:
    """A name as an identifier, whatever is in it."""
    mark = "`" if dialect is Dialect.SPARK else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def quote_text(text: str, dialect: Dialect) -> str:
    """A text as a string literal, whatever is in it."""
    if dialect is Dialect.SPARK:
        # Spark reads backslash escapes inside literals; DataFusion takes a backslash as it is.
        text = text.replace("\\", "\\\\")
    return "'" + text.replace("'", "\\'" if dialect is Dialect.SPARK else "''") + "'"


@dataclass(frozen=True, slots=True)
class _Value:
    literal: Literal

    def __post_init__(self) -> None:
        if not isinstance(self.literal, (str, int, bool, bytes)):
            raise InvalidInputError(
                f"a predicate cannot compare with a {type(self.literal).__name__}",
                expected="str, int, bool or bytes",
                found=type(self.literal).__name__,
            )
        if isinstance(self.literal, int) and not MIN_BIGINT <= self.literal <= MAX_BIGINT:
            raise InvalidInputError(
                f"{self.literal} does not fit a BIGINT, which holds {MIN_BIGINT} to {MAX_BIGINT}",
                code=ErrorCode.NUMBER_TOO_LARGE,
                expected=f"{MIN_BIGINT} to {MAX_BIGINT}",
                found=self.literal,
            )

    def sql(self, dialect: Dialect) -> str:
        value = self.literal
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int):
            # The smallest BIGINT is unary minus on a number that is out of range.
            return f"CAST('{value}' AS BIGINT)" if value == MIN_BIGINT else str(value)
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        return quote_text(value, dialect)

    def value(self, rows: Rows) -> object:  # noqa: ARG002  # same shape as Column.value
        return self.literal


def _operand(other: Literal | Column) -> _Value | Column:
    return other if isinstance(other, Column) else _Value(other)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class _Comparison(Predicate):
    symbol: str
    left: Column
    right: _Value | Column

    def sql(self, dialect: Dialect) -> str:
        return f"{self.left.sql(dialect)} {self.symbol} {self.right.sql(dialect)}"

    def holds(self, rows: Rows) -> bool | None:
        left, right = self.left.value(rows), self.right.value(rows)
        if left is None or right is None:
            return None
        return _COMPARE[self.symbol](left, right)

    def may_hold(self, bounds: Bounds) -> bool:
        if not isinstance(self.right, _Value) or self.left.name not in bounds:
            return True
        (least, most), value = bounds[self.left.name], self.right.literal
        if self.symbol == "<>":
            return not least == value == most
        lower, upper = self.symbol in ("=", "<", "<="), self.symbol in ("=", ">", ">=")
        strict = self.symbol in ("<", ">")
        above = bool(least < value if strict else least <= value)
        below = bool(most > value if strict else most >= value)
        return (above or not lower) and (below or not upper)


@dataclass(frozen=True, slots=True)
class _In(Predicate):
    left: Column
    values: tuple[_Value, ...]

    def sql(self, dialect: Dialect) -> str:
        if not self.values:
            return "FALSE"
        return f"{self.left.sql(dialect)} IN ({', '.join(value.sql(dialect) for value in self.values)})"

    def holds(self, rows: Rows) -> bool | None:
        left = self.left.value(rows)
        if not self.values:
            return False
        return None if left is None else any(left == value.literal for value in self.values)

    def may_hold(self, bounds: Bounds) -> bool:
        return any(_Comparison("=", self.left, value).may_hold(bounds) for value in self.values)


@dataclass(frozen=True, slots=True)
class _IsNull(Predicate):
    left: Column

    def sql(self, dialect: Dialect) -> str:
        return f"{self.left.sql(dialect)} IS NULL"

    def holds(self, rows: Rows) -> bool | None:
        return self.left.value(rows) is None


@dataclass(frozen=True, slots=True)
class _Junction(Predicate):
    word: str
    parts: tuple[Predicate, Predicate]

    def sql(self, dialect: Dialect) -> str:
        return "(" + f" {self.word} ".join(part.sql(dialect) for part in self.parts) + ")"

    def holds(self, rows: Rows) -> bool | None:
        # AND is decided by one False, OR by one True; otherwise one unknown makes it unknown.
        deciding = self.word == "OR"
        results = [part.holds(rows) for part in self.parts]
        if deciding in results:
            return deciding
        return None if None in results else not deciding

    def may_hold(self, bounds: Bounds) -> bool:
        return (any if self.word == "OR" else all)(part.may_hold(bounds) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Apart(Predicate):
    """See `apart`."""

    parts: tuple[Predicate, ...]

    def sql(self, dialect: Dialect) -> str:
        """As a disjunction, for who does not look for the parts by themselves."""
        if not self.parts:
            return "FALSE"
        return _either([part.sql(dialect) for part in self.parts])

    def holds(self, rows: Rows) -> bool | None:
        """As of a disjunction."""
        results = [part.holds(rows) for part in self.parts]
        if True in results:
            return True
        return None if None in results else False

    def may_hold(self, bounds: Bounds) -> bool:
        """Whether any of them may."""
        return any(part.may_hold(bounds) for part in self.parts)


def _either(texts: Sequence[str]) -> str:
    """Halves of halves: in a row each would be read as within the next, and DataFusion takes only so many of those."""
    if len(texts) == 1:
        return texts[0]
    middle = len(texts) // 2
    return f"({_either(texts[:middle])} OR {_either(texts[middle:])})"


@dataclass(frozen=True, slots=True)
class _Not(Predicate):
    part: Predicate

    def sql(self, dialect: Dialect) -> str:
        return f"(NOT {self.part.sql(dialect)})"

    def holds(self, rows: Rows) -> bool | None:
        held = self.part.holds(rows)
        return None if held is None else not held
