import pickle
from collections.abc import Iterator

import pytest

from laminar_delta import errors
from laminar_delta.errors import ErrorCode, LaminarDeltaError


def _tree(kind: type[LaminarDeltaError] = LaminarDeltaError) -> Iterator[type[LaminarDeltaError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _tree(child)


KINDS = sorted(_tree(), key=lambda kind: kind.__name__)


def test_the_tree_is_the_one_drawn_in_the_module() -> None:
    drawn = errors.__doc__ or ""
    assert {kind.__name__ for kind in KINDS} == {
        word for word in drawn.replace("├── ", "").replace("└── ", "").split() if word.endswith("Error")
    } - {"LaminarDeltaError", "KeyError", "ValueError", "ImportError"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_pickles_with_all_its_fields(kind: type[LaminarDeltaError]) -> None:
    error = kind("what happened", expected=41, found=42, details={"table": "t"}, code=ErrorCode.LOCKED)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (copy.message, copy.expected, copy.found, copy.details) == ("what happened", 41, 42, {"table": "t"})
    assert copy.code is ErrorCode.LOCKED
    assert str(copy) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_message_and_the_next_step(kind: type[LaminarDeltaError]) -> None:
    assert kind.default_next_step
    assert str(kind("It broke.")) == f"It broke. {kind.default_next_step}"
    assert str(kind("It broke", next_step="Mend it.")) == "It broke. Mend it."


def test_codes_are_distinct_and_spelled_alike() -> None:
    values = [code.value for code in ErrorCode]
    assert len(set(values)) == len(values)
    assert all(value == code.name.lower().replace("_", "-") for value, code in zip(values, ErrorCode, strict=True))


def test_builtin_relatives_are_deliberate() -> None:
    assert issubclass(errors.NotFoundError, KeyError)
    assert issubclass(errors.InvalidInputError, ValueError)
    assert issubclass(errors.NotInstalledError, ImportError)
    assert issubclass(errors.FencedError, errors.ConflictError)
