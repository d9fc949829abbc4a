"""A machine that does anything to a catalog, in any order, and holds it against the plain model after every step.

Writers that were taken over are kept and used on purpose; rows are deleted, files go missing and come back; answers are lost
and commits arrive late. Each test makes a machine of its own with `machine_on`.
"""

from collections.abc import Callable

from tests.support.machine.base import Opener
from tests.support.machine.deciding import Deciding
from tests.support.machine.harming import Harming
from tests.support.machine.saving import Saving


class CatalogMachine(Saving, Deciding, Harming):
    """All rules."""


def machine_on(make: Callable[[], Opener], *, thorough: bool) -> type[CatalogMachine]:
    """The machine for catalogs that `make` makes.

    Args:
        make: Makes a fresh catalog; what it returns opens it again and again.
        thorough: Walk after every step, not only now and then.
    """
    return type("CatalogMachineHere", (CatalogMachine,), {"make": staticmethod(make), "thorough": thorough})
