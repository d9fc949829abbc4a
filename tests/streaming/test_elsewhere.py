"""The function of a query handed to another process, as Spark Connect does; the rest is in `tests/spark/test_connect.py`."""

import pickle
from pathlib import Path

import laminar_delta as ld
from laminar_delta import streaming
from laminar_delta.engine import open_engine
from laminar_delta.streaming.elsewhere import CatalogElsewhere


def _nothing(*_: object) -> None:
    pass


def test_a_function_handed_on_opens_the_same_catalog_there(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    catalog.writer("orders").close()
    deliver = streaming.foreach_batch(catalog, "orders", _nothing, owner="job-7", checkpoint_location="/ckpt")
    there = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(deliver))))
    assert (there.pipeline, there.fn, there.owner, there.checkpoint_location) == ("orders", _nothing, "job-7", "/ckpt")
    assert there.last is None
    assert isinstance(there.catalog, CatalogElsewhere)
    assert there.catalog.open(None).engine.location == catalog.engine.location
    # Here nothing changed.
    assert deliver.catalog is catalog


def test_credentials_go_along() -> None:
    catalog = ld.Catalog(open_engine("embedded", "s3://bucket/ckpt", storage_options={"AWS_REGION": "nowhere"}))
    handed = CatalogElsewhere.of(catalog)
    assert (handed.location, handed.engine) == ("s3://bucket/ckpt", "embedded")
    assert handed.options == {"storage_options": {"AWS_REGION": "nowhere"}}
    assert "nowhere" not in repr(handed)
