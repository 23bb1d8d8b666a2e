"""The request of each client as it sends it, and the answer read as it reads it."""

import json

import pytest

from sleuth.retrieval.server.dialects import BadRequest, Limits, pages_answer, read_ask, read_pages
from sleuth.retrieval.store import PassageStore, StoreWriter
from sleuth.types import Document

DOCUMENTS = [
    Document("p1", "Beyoncé", 'She said "hi".\nSão Paulo'),
    Document("p2", "", "no title"),
    Document("p3", "C", "c"),
]
CONTENTS = [f'"{d.title}"\n{d.text}' for d in DOCUMENTS]
HITS = [[(0, 2.5), (1, 1.25)], [], [(2, 0.5)]]


@pytest.fixture
def store(tmp_path):
    writer = StoreWriter(tmp_path)
    for document in DOCUMENTS:
        writer.add(document)
    writer.close()
    return PassageStore(tmp_path)


@pytest.fixture
def ask(store):
    """Sends a body, answered by HITS for as many queries as it has: (what was asked, the answer)."""

    def send(path, body, dialect="auto"):
        asked = read_ask(path, json.dumps(body).encode(), default_k=3, limits=Limits(), dialect=dialect)
        return asked, json.loads(b"".join(asked.answer(store, HITS[: len(asked.queries)])))

    return send


def test_search_r1_and_verl_send_a_batch_and_want_scores(ask):
    asked, answer = ask("/retrieve", {"queries": ["a", "b", "c"], "topk": 5, "return_scores": True})
    assert (asked.queries, asked.k) == (["a", "b", "c"], 5)
    result = answer["result"]
    assert [[item["document"]["contents"] for item in found] for found in result] == [CONTENTS[:2], [], CONTENTS[2:]]
    assert [[item["score"] for item in found] for found in result] == [[2.5, 1.25], [], [0.5]]
    title, _, text = result[0][0]["document"]["contents"].partition("\n")
    assert (title.strip('"'), text) == (DOCUMENTS[0].title, DOCUMENTS[0].text)


@pytest.mark.parametrize("queries", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_without_scores_there_is_still_one_list_a_query(ask, queries):
    asked, answer = ask("/retrieve", {"queries": queries, "topk": None, "return_scores": False})
    assert asked.k == 3
    documents = [
        [
            {"id": d.id, "title": d.title, "text": d.text, "contents": c}
            for d, c in zip(DOCUMENTS, CONTENTS, strict=True)
        ]
    ]
    assert answer["result"] == [documents[0][:2], [], documents[0][2:]][: len(queries)]


@pytest.mark.parametrize("scored", [True, False])
def test_the_dialect_search_r1_sends_what_its_own_server_does(ask, scored):
    _, answer = ask("/retrieve", {"queries": ["a", "b", "c"], "return_scores": scored}, "search-r1")
    documents = [{"id": d.id, "contents": c} for d, c in zip(DOCUMENTS, CONTENTS, strict=True)]
    items = [{"document": d, "score": s} for d, s in zip(documents, [2.5, 1.25, 0.5], strict=True)]
    found = items if scored else documents
    assert answer == {"result": [found[:2], [], found[2:]]}


def test_a_long_answer_comes_in_parts_and_is_whole(store):
    rows = [{"queries": ["a"] * 700, "return_scores": True}, {"query": "a", "top_k": 3}]
    hits = [[(n % 3, n + 0.5), ((n + 1) % 3, 0.25)] if n % 7 else [] for n in range(700)]
    for body, found in zip(rows, (hits, [[(n % 3, 1.0) for n in range(900)]]), strict=True):
        asked = read_ask("/retrieve", json.dumps(body).encode(), default_k=3, limits=Limits())
        parts = asked.answer(store, found)
        assert len(parts) > 3
        result = json.loads(b"".join(parts))["result"]
        assert [[(d["document"]["id"], d["score"], d["docid"]) for d in row] for row in result] == [
            [(DOCUMENTS[row].id, score, DOCUMENTS[row].id) for row, score in row_hits] for row_hits in found
        ]


def test_slime_reads_bare_documents(ask):
    _, answer = ask("/retrieve", {"queries": ["a"], "topk": 2, "return_scores": False})
    assert [d["contents"] for d in answer["result"][0]] == CONTENTS[:2]


def test_skyrl_sends_one_query_as_a_string(ask):
    asked, answer = ask("/retrieve", {"query": "a", "topk": 2, "return_scores": True})
    assert asked.queries == ["a"]
    assert [item["document"]["contents"] for item in answer["result"][0]] == CONTENTS[:2]


def test_rllm_reads_flat_results(ask):
    asked, answer = ask("/retrieve", {"query": "a", "top_k": 2})
    assert (asked.queries, asked.k) == (["a"], 2)
    assert [(r["document"]["id"], r["document"]["contents"], r["score"]) for r in answer["results"]] == [
        ("p1", CONTENTS[0], 2.5),
        ("p2", CONTENTS[1], 1.25),
    ]
    assert answer["result"] == [answer["results"]]


@pytest.mark.parametrize(("path", "dialect"), [("/retrieve", "browsecomp-plus"), ("/browsecomp-plus/retrieve", "auto")])
def test_browsecomp_plus_reads_flat_items(ask, path, dialect):
    _, answer = ask(path, {"query": "a"}, dialect)
    assert [(r["docid"], r["document"]["title"], r["document"]["text"]) for r in answer["result"]] == [
        (d.id, d.title, d.text) for d in DOCUMENTS[:2]
    ]


@pytest.mark.parametrize(("path", "dialect"), [("/retrieve", "zerosearch"), ("/zerosearch/retrieve", "auto")])
def test_zerosearch_reads_a_bare_list_of_texts(ask, path, dialect):
    asked, answer = ask(path, {"query": "a", "top_k": 5}, dialect)
    assert asked.k == 5
    assert answer == [{"text": c} for c in CONTENTS[:2]]


def test_r1_searcher_reads_numbered_strings(ask):
    asked, answer = ask("/queries", {"queries": ["a", "b"], "k": 4})
    assert asked.k == 4
    assert answer == {"answers": [[f"1\t{CONTENTS[0]}", f"2\t{CONTENTS[1]}"], []]}


def test_flashrag_and_recall_read_lists_or_pairs(ask):
    _, answer = ask("/search", {"query": "a", "top_n": 2, "return_score": False})
    assert [(d["id"], d["contents"]) for d in answer] == [("p1", CONTENTS[0]), ("p2", CONTENTS[1])]
    _, (documents, scores) = ask("/search", {"query": "a", "top_n": 2, "return_score": True})
    assert ([d["id"] for d in documents], scores) == (["p1", "p2"], [2.5, 1.25])
    _, answer = ask("/batch_search", {"query": ["a", "b", "c"], "top_n": 2, "return_score": False})
    assert [[d["id"] for d in found] for found in answer] == [["p1", "p2"], [], ["p3"]]
    _, (documents, scores) = ask("/batch_search", {"query": ["a", "b", "c"], "top_n": 2, "return_score": True})
    assert scores == [[2.5, 1.25], [], [0.5]]
    assert len(documents) == 3


def test_asearcher_gets_pages_or_null():
    names = read_pages(b'{"urls": ["p1", "none"]}', Limits())
    assert names == ["p1", "none"]
    answer = json.loads(pages_answer([[DOCUMENTS[0], Document("p9", "Beyoncé", "more")], []]))
    assert answer == {"result": [{"id": "p1", "title": "Beyoncé", "page": f"{DOCUMENTS[0].text}\n\nmore"}, None]}


def test_characters_are_sent_as_they_are(store):
    asked = read_ask("/retrieve", b'{"queries": ["a"]}', default_k=3, limits=Limits())
    assert "Beyoncé".encode() in b"".join(asked.answer(store, HITS[:1]))


def test_lone_surrogates_in_a_query_do_not_spoil_the_batch():
    asked = read_ask("/retrieve", b'{"queries": ["a \\ud800", "b"]}', default_k=3, limits=Limits())
    assert asked.queries == ["a \ufffd", "b"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b'{"queries": ["a"', 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        (b"{}", 422, '"queries" must be'),
        (b'{"queries": ["a"], "return_scores": "false"}', 422, '"return_scores" must be true or false'),
        (b'{"query": "a", "return_score": 1}', 422, '"return_score" must be true or false'),
        (b'{"queries": [1]}', 422, '"queries" must be'),
        (b'{"queries": null, "query": 3}', 422, '"queries" must be'),
        (b'{"query": "a", "topk": "3"}', 422, '"topk" must be an integer from 1 to 100'),
        (b'{"query": "a", "topk": 101}', 422, "from 1 to 100"),
        (b'{"query": "a", "topk": -1}', 422, "from 1 to 100"),
        (b'{"query": "a", "topk": true}', 422, "from 1 to 100"),
        (b'{"queries": ["a", "b", "c", "d"]}', 422, "at most 3"),
        (b'{"queries": ["a", "bbbbbbbbbbb"]}', 422, "query 1 has 11 characters"),
    ],
)
def test_what_is_wrong_is_said(body, status, says):
    with pytest.raises(BadRequest, match=says) as error:
        read_ask("/retrieve", body, default_k=3, limits=Limits(queries=3, characters=10))
    assert error.value.status == status


def test_no_query_is_no_mistake(store):
    asked = read_ask("/retrieve", b'{"queries": []}', default_k=3, limits=Limits())
    assert json.loads(b"".join(asked.answer(store, []))) == {"result": []}
