"""Which storage class each age of checkpoint goes to; a mapping only, nothing here moves data."""

from dataclasses import dataclass
from enum import Enum

TIER_TAG = "laminardb-tier"
"""The object tag that carries a tier's name, for lifecycle rules to match."""


class Tier(str, Enum):
    """How soon data is likely to be read again."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"

    def __str__(self) -> str:
        return self.value


class StorageClass(str, Enum):
    """Object-store classes, by the text of the request header."""

    STANDARD = "STANDARD"
    EXPRESS_ONE_ZONE = "EXPRESS_ONEZONE"
    INTELLIGENT_TIERING = "INTELLIGENT_TIERING"
    GLACIER_INSTANT_RETRIEVAL = "GLACIER_IR"

    def __str__(self) -> str:
        return self.value

    @classmethod
    def from_config(cls, text: str) -> "StorageClass | None":
        """Read a setting: the header's text or the full name, in either case, with `-` or `_`. None if it is neither."""
        wanted = text.upper().replace("-", "_")
        return next((member for member in cls if wanted in (member.value, member.name)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringPolicy:
    """A storage class for each tier."""

    hot: StorageClass
    warm: StorageClass
    cold: StorageClass | None = None
    """None for no cold tier: what would be cold stays with the warm."""

    @classmethod
    def from_config(cls, hot: str, warm: str, cold: str) -> "TieringPolicy":
        """Read three settings. What is not known becomes the standard class, for cold no tier."""
        return cls(
            hot=StorageClass.from_config(hot) or StorageClass.STANDARD,
            warm=StorageClass.from_config(warm) or StorageClass.STANDARD,
            cold=StorageClass.from_config(cold),
        )

    @property
    def has_cold_tier(self) -> bool:
        """Whether cold data gets a class of its own."""
        return self.cold is not None

    def storage_class(self, tier: Tier) -> StorageClass:
        """The class of a tier."""
        if tier is Tier.HOT:
            return self.hot
        return self.cold if tier is Tier.COLD and self.cold is not None else self.warm
