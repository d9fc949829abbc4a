import pytest

from laminar_delta.engine.predicate import Dialect, Rows, Side, all_of, apart, col, equals, source, target
from laminar_delta.errors import ErrorCode, InvalidInputError


def test_names_and_texts_are_quoted_for_each_dialect() -> None:
    where = col('we"ird`name').eq("it's \\ 'x'")
    assert where.sql(Dialect.DATAFUSION) == "\"we\"\"ird`name\" = 'it''s \\ ''x'''"
    assert where.sql(Dialect.SPARK) == "`we\"ird``name` = 'it\\'s \\\\ \\'x\\''"


def test_literals_are_written_so_that_they_keep_their_value() -> None:
    assert col("id").eq(-(2**63)).sql(Dialect.SPARK) == "`id` = CAST('-9223372036854775808' AS BIGINT)"
    assert col("b").eq(b"\x00\xff").sql(Dialect.SPARK) == "`b` = X'00ff'"
    assert col("f").eq(True).sql(Dialect.SPARK) == "`f` = TRUE"
    assert col("x").is_in([]).sql(Dialect.SPARK) == "FALSE"


def test_sides_of_a_merge_are_named() -> None:
    where = target("generation").le(source("generation"))
    assert where.sql(Dialect.DATAFUSION) == 'target."generation" <= source."generation"'
    assert where.holds({Side.TARGET: {"generation": 1}, Side.SOURCE: {"generation": 2}}) is True


@pytest.mark.parametrize(
    ("left", "right", "conjunction", "disjunction"),
    [
        (True, True, True, True),
        (True, None, None, True),
        (False, None, False, None),
        (None, None, None, None),
        (False, True, False, True),
        (False, False, False, False),
    ],
)
def test_three_valued_logic(
    left: bool | None, right: bool | None, conjunction: bool | None, disjunction: bool | None
) -> None:
    rows: Rows = {None: {"a": left, "b": right}}
    a, b = col("a").eq(True), col("b").eq(True)
    for first, second in ((a, b), (b, a)):
        assert (first & second).holds(rows) is conjunction
        assert (first | second).holds(rows) is disjunction
        assert apart([first, second]).holds(rows) is disjunction
    assert (~a).holds(rows) is (None if left is None else not left)


def test_conditions_that_are_apart_lie_in_halves_within_one_another() -> None:
    where = apart(col("id").eq(number) for number in range(5))
    assert where.sql(Dialect.SPARK) == "((`id` = 0 OR `id` = 1) OR (`id` = 2 OR (`id` = 3 OR `id` = 4)))"
    assert where.may_hold({"id": (4, 9)})
    assert not where.may_hold({"id": (5, 9)})
    assert apart([]).sql(Dialect.SPARK) == "FALSE"


def test_keys_become_conjunctions() -> None:
    assert equals({}) is None
    assert all_of([]) is None
    both = equals({"a": 1, "b": "x"})
    assert both is not None
    assert both.sql(Dialect.SPARK) == "(`a` = 1 AND `b` = 'x')"


@pytest.mark.parametrize("value", [1.5, None, [1], 2**63, -(2**63) - 1])
def test_what_no_engine_filters_exactly_is_refused(value: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        col("x").eq(value)  # type: ignore[arg-type]  # the refusal is the test
    assert caught.value.code in (ErrorCode.INVALID_INPUT, ErrorCode.NUMBER_TOO_LARGE)
