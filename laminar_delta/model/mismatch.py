"""The one internal complaint about a value, before it is known whether a document or a caller is to blame."""

from laminar_delta.errors import ErrorCode, FormatError, InvalidInputError


class Mismatch(Exception):  # noqa: N818 - never leaves this package, so it is no error of its own
    """A value is not what its place takes. Collects the way to that place while it travels outwards."""

    def __init__(self, expected: str, found: str | int, limits: tuple[int, int] | None = None) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found
        self.limits = limits
        """Smallest and largest, where the value has the right type and only its size is wrong."""
        self._steps: list[str] = []

    def under(self, step: str) -> None:
        """Note one step of the way, from the inside out: `.field`, `["key"]` or `[0]`."""
        self._steps.append(step)

    def as_format_error(self, subject: str) -> FormatError:
        """Say it of a document."""
        return FormatError(self._text(subject), expected=self.expected, found=self.found, details=self._details())

    def as_input_error(self, subject: str) -> InvalidInputError:
        """Say it of a call."""
        code = ErrorCode.INVALID_INPUT if self.limits is None else ErrorCode.NUMBER_TOO_LARGE
        return InvalidInputError(
            self._text(subject), code=code, expected=self.expected, found=self.found, details=self._details()
        )

    def _text(self, subject: str) -> str:
        return f"{subject}{''.join(reversed(self._steps))}: expected {self.expected}, found {self.found}"

    def _details(self) -> dict[str, object]:
        details: dict[str, object] = {"field": "".join(reversed(self._steps)).removeprefix(".")}
        if self.limits is not None:
            details["minimum"], details["maximum"] = self.limits
        return details
