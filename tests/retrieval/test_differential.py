"""Each engine against an independent exact one, on 10,000 passages."""

import numpy as np
import pytest
from cities import hashing_encoder

from sleuth.jsonl import write_jsonl
from sleuth.retrieval.build import IndexSettings, build_index
from sleuth.retrieval.index import open_index
from sleuth.types import SearchRequest

PASSAGES, WORDS, K = 10_000, 5_000, 10


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """(file, words of each passage as numbers, queries as numbers); word frequencies are Zipf's."""
    rng = np.random.default_rng(7)
    passages = [np.minimum(rng.zipf(1.2, size), WORDS) - 1 for size in rng.integers(5, 120, PASSAGES)]
    queries = [np.minimum(rng.zipf(1.1, size), WORDS) - 1 for size in rng.integers(1, 9, 100)]
    path = tmp_path_factory.mktemp("corpus") / "c.jsonl"
    write_jsonl(path, [{"id": str(n), "text": said(words)} for n, words in enumerate(passages)])
    return path, passages, queries


def said(words):
    return " ".join(f"w{word}" for word in words)


def found(folder, queries):
    results = open_index(folder).search([SearchRequest(said(query)) for query in queries], K)
    return [[(int(d.id), d.score) for d in result.documents] for result in results]


def exact_bm25(passages, queries, k1=1.2, b=0.75):
    """Lucene's formula in float64 over the whole matrix of counts, (queries, passages)."""
    counts = np.zeros((PASSAGES, WORDS))
    for row, words in enumerate(passages):
        np.add.at(counts[row], words, 1)
    lengths = counts.sum(1, keepdims=True)
    df = (counts > 0).sum(0)
    idf = np.log(1 + (PASSAGES - df + 0.5) / (df + 0.5))
    weights = idf * counts / (counts + k1 * (1 - b + b * lengths / lengths.mean()))
    return np.stack([weights[:, query].sum(1) for query in queries])


def test_bm25_finds_what_the_exact_formula_finds_up_to_ties(corpus, tmp_path):
    path, passages, queries = corpus
    build_index(str(path), tmp_path / "index", IndexSettings())
    expected = exact_bm25(passages, queries)
    for hits, scores in zip(found(tmp_path / "index", queries), expected, strict=True):
        best = np.sort(scores)[::-1][:K]
        assert len({row for row, _ in hits}) == len(hits) == min(K, np.count_nonzero(scores))
        # As good as the best K at each rank, and scored as the formula scores that very passage: only ties may differ.
        assert [score for _, score in hits] == pytest.approx(best[: len(hits)].tolist(), rel=1e-5)
        assert [score for _, score in hits] == pytest.approx([scores[row] for row, _ in hits], rel=1e-5)


def test_tantivy_overlaps_with_the_exact_formula_but_for_its_rounded_lengths(corpus, tmp_path):
    pytest.importorskip("tantivy")
    path, passages, queries = corpus
    build_index(str(path), tmp_path / "index", IndexSettings(kind="tantivy"))
    shares = []
    for hits, scores in zip(found(tmp_path / "index", queries), exact_bm25(passages, queries), strict=True):
        least = np.sort(scores)[::-1][len(hits) - 1]
        shares.append(np.mean([scores[row] >= least * (1 - 1e-5) for row, _ in hits]))
    print(f"overlap of the best {K}, ties counted as equal: {np.mean(shares):.3f}")
    assert np.mean(shares) > 0.9


def test_dense_finds_what_numpy_finds(corpus, tmp_path, encoder):
    pytest.importorskip("faiss")
    path, passages, queries = corpus
    build_index(str(path), tmp_path / "index", IndexSettings(kind="dense", dense={"encoder": encoder}))
    encode = hashing_encoder()
    vectors, asked = (
        v / np.linalg.norm(v, axis=1, keepdims=True)
        for v in (np.asarray(encode(list(map(said, texts))), np.float64) for texts in (passages, queries))
    )
    for hits, scores in zip(found(tmp_path / "index", queries), asked @ vectors.T, strict=True):
        assert [score for _, score in hits] == pytest.approx(np.sort(scores)[::-1][:K].tolist(), abs=1e-5)
        assert [score for _, score in hits] == pytest.approx([scores[row] for row, _ in hits], abs=1e-5)
        assert len({row for row, _ in hits}) == K
