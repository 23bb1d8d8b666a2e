import pytest
from cities import CITIES

from sleuth.jsonl import write_jsonl


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "cities.jsonl"
    write_jsonl(path, CITIES)
    return path


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """Name of an encoder that `--encoder` takes."""
    (tmp_path / "my_encoder.py").write_text("from cities import hashing_encoder as make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "my_encoder:make"
