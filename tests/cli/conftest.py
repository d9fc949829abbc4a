"""The console script in this process, and a catalog in which everything has happened that commands tell of."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.cli.application import application
from tests.cli.support import Done, Run, fill

ALL = application()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The console script, in this process: starting another one takes longer than most commands."""
    monkeypatch.setenv("COLUMNS", "200")
    for name in [name for name in os.environ if name.startswith("LAMINAR_DELTA_")]:
        monkeypatch.delenv(name)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["laminar-delta", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            ALL()
        code = ended.value.code
        printed = capsys.readouterr()
        return Done(int(code or 0), printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, to be copied; or to be read as it is."""
    place = tmp_path_factory.mktemp("cli") / "template"
    fill(ld.open_catalog(str(place)))
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    """A catalog of the test's own."""
    shutil.copytree(template, tmp_path / "catalog")
    return tmp_path / "catalog"


@pytest.fixture
def catalog(place: Path) -> ld.Catalog:
    return ld.open_catalog(str(place))
