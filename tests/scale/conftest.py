import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def table():
    """600 rows of three columns, about one in six positive, with weights."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 3)) * [1.0, 20.0, 0.01] + [0.0, 1e6, -3.0]
    y = (X[:, 0] + rng.normal(size=600) > 1.4).astype(int)
    return X, y, rng.uniform(0.2, 3.0, size=600)


@pytest.fixture
def folder(tmp_path, table, write):
    """The table in four files of uneven length, row groups of 60; the last file holds no positive."""
    X, y, w = table
    order = np.concatenate([np.flatnonzero(y == 1), np.flatnonzero(y == 0)])
    parts = np.split(order, [50, 300, 450])
    path = tmp_path / "data"
    path.mkdir()
    for i, part in enumerate(parts):
        write(path / f"part-{i}.parquet", X[part], y[part], w[part])
    return path


@pytest.fixture
def write():
    def run(path, X, y, w=None, types=None):
        columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y.tolist(), **({} if w is None else {"w": w})}
        made = {name: pa.array(values, type=(types or {}).get(name)) for name, values in columns.items()}
        pq.write_table(pa.table(made), path, row_group_size=60)

    return run


@pytest.fixture
def fit_command(crcen_command, tmp_path):
    def run(data, target, *options, fails=False):
        out = tmp_path / "model.crcen"
        given = ("fit", data, "--target", target, "--engine", "stream", "--out", out, *options)
        code, printed, said = crcen_command(*given)
        assert (code != 0) == fails, said
        assert not (fails and out.exists())
        return " ".join(said.split()) if fails else (printed, out)

    return run
