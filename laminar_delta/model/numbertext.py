"""Numbers written as text, read exactly as Rust's `parse` reads them.

`int()` will not do: it takes spaces, underscores and digits of other scripts, so what LaminarDB ignores would become a
number.
"""

import re

from laminar_delta.model.rules import IntRange

# 20 digits hold every 64-bit integer; without a bound, a long text would be converted at great cost only to be refused.
_DIGITS = re.compile(r"([+-]?)0*([0-9]{1,20})", re.ASCII)


def parse_integer(text: str, limits: IntRange) -> int | None:
    """Read ASCII digits, with leading zeros and one `+` allowed, and one `-` for signed ranges; None for anything else."""
    match = _DIGITS.fullmatch(text)
    if match is None or (match[1] == "-" and limits.low >= 0):
        return None
    number = int(match[1] + match[2])
    return number if limits.low <= number <= limits.high else None
