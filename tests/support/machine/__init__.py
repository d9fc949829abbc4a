"""A machine that does anything to a catalog, in any order, and holds it against the plain model after every step.

Writers that were taken over are kept and used on purpose; rows are deleted, files go missing and come back; answers are lost
and commits arrive late. Each test makes a machine of its own with `machine_on`.
"""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import rule

from laminar_delta.catalog.tables import TABLES
from tests.support.machine.base import Opener, pipelines
from tests.support.machine.deciding import Deciding
from tests.support.machine.deriving import Deriving
from tests.support.machine.harming import Harming
from tests.support.machine.saving import Saving


class CatalogMachine(Saving, Deriving, Deciding, Harming):
    """All rules."""

    @rule(data=st.data(), what=st.sampled_from(["look", "ask politely", "let go", "misreport", "recover", "compact"]))
    def errand(self, data: st.DataObject, what: str) -> None:
        """What changes little by itself."""
        name = data.draw(pipelines)
        if what == "look" and self.all():
            self.look_at(*self.draw_checkpoint(data))
        elif what == "ask politely":
            self.ask_politely(name)
        elif what == "let go" and self.writers[name]:
            self.let_go(*self.draw_writer(data, name))
        elif what == "misreport" and self.writers[name]:
            self.set_status_of_nothing(*self.draw_writer(data, name), number=data.draw(st.integers(1, 12)))
        elif what == "recover":
            self.recover(name, accept=data.draw(st.booleans()), dry_run=data.draw(st.booleans()))
        elif what == "compact":
            self.catalog.engine.optimize(data.draw(st.sampled_from([spec.name for spec in TABLES])))


def machine_on(make: Callable[[], Opener], *, thorough: bool) -> type[CatalogMachine]:
    """The machine for catalogs that `make` makes.

    Args:
        make: Makes a fresh catalog; what it returns opens it again and again.
        thorough: Walk after every step, not only now and then.
    """
    return type("CatalogMachineHere", (CatalogMachine,), {"make": staticmethod(make), "thorough": thorough})
