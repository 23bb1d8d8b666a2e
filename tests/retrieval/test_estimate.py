import random

import pytest

from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl
from sleuth.retrieval import estimate as module
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.estimate import estimate


def written(path, passages):
    rng = random.Random(0)
    words = [f"word{n}" for n in range(5000)]
    rows = ({"id": str(n), "title": f"T{n}", "text": " ".join(rng.choices(words, k=50))} for n in range(passages))
    write_jsonl(path, rows)
    return str(path)


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.jsonl.zst"])
def test_the_number_of_passages_is_guessed_from_a_sample(tmp_path, monkeypatch, name):
    monkeypatch.setattr(module, "_SAMPLE", 300)
    found = estimate(written(tmp_path / name, 3000), IndexSettings(), tmp_path)
    assert found.passages == pytest.approx(3000, rel=0.35)


def test_a_small_corpus_is_counted(tmp_path):
    assert estimate(written(tmp_path / "c.jsonl", 25), IndexSettings(), tmp_path).passages == 25


@pytest.mark.parametrize("kind", ["bm25", "tantivy"])
def test_the_disk_is_about_what_it_takes(tmp_path, kind):
    if kind == "tantivy":
        pytest.importorskip("tantivy")
    source = written(tmp_path / "c.jsonl", 1900)
    found = estimate(source, IndexSettings(kind=kind), tmp_path)
    build_index(source, tmp_path / "index", IndexSettings(kind=kind))
    size = sum(f.stat().st_size for f in (tmp_path / "index").rglob("*") if f.is_file())
    assert found.disk == pytest.approx(size, rel=0.4)
    assert "1,900 passages" in found.line()


def test_what_does_not_fit_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_available_memory", lambda: 1e6)
    found = estimate(written(tmp_path / "c.jsonl", 100), IndexSettings(), tmp_path)
    assert any("memory" in w and "--kind tantivy" in w for w in found.warnings)


def test_a_corpus_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        estimate(str(tmp_path / "none.jsonl"), IndexSettings(), tmp_path)
