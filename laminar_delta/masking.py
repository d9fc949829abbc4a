"""Keeping secrets out of what people and logs get to see: storage options, and credentials inside locations."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_SECRET_NAME = re.compile(r"key|secret|token|passw|pwd|credential|sas|signature|bearer", re.IGNORECASE)
_USER_PART = re.compile(r"//[^/@\s]*@")
_QUERY_SECRET = re.compile(r"([?&](?:sig|signature|token|key|x-amz-[a-z-]+)=)[^&\s'\"]+", re.IGNORECASE)


class MaskedOptions(dict[str, str]):
    """Storage options whose values show up in no `repr`, and so in no log line or traceback that prints one."""

    def __repr__(self) -> str:
        return repr(dict.fromkeys(self, MASK))

    __str__ = __repr__


def is_secret(name: str) -> bool:
    """Whether the value of a storage option is a secret, by its name."""
    return _SECRET_NAME.search(name) is not None


def masked(text: str, options: Mapping[str, str] | None = None) -> str:
    """A text without the secrets among some storage options, and without credentials in locations."""
    # The longest first: one secret may contain another.
    for value in sorted((v for name, v in (options or {}).items() if v and is_secret(name)), key=len, reverse=True):
        text = text.replace(value, MASK)
    return _QUERY_SECRET.sub(rf"\1{MASK}", _USER_PART.sub(f"//{MASK}@", text))
