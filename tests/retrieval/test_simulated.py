import sys

import pytest
from processes import started

from sleuth.agent.codec import TokenCodec
from sleuth.assembly import build_retriever
from sleuth.errors import UserError
from sleuth.recipes.loader import resolve
from sleuth.retrieval.client.answers import WrongAnswer
from sleuth.retrieval.simulated import Curriculum, Script, SimulatedEngine, sampled_text
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.types import Retriever, SearchRequest

WRITTEN = "Document 1: Paris is a city.\nIt is old.\n\n**Document 2:** Rome is another."


def test_noise_rises_from_start_to_end():
    curriculum = Curriculum(start=0.1, end=0.5, base=4, steps=10)
    assert curriculum.noise(0) == 0
    assert curriculum.noise(5) == pytest.approx(0.1 + (4**0.5 - 1) / 3 * 0.4)
    assert curriculum.noise(10) == curriculum.noise(99) == pytest.approx(0.5)
    assert Curriculum(start=0, end=1, base=1, steps=4).noise(1) == 0.25


def test_the_share_of_noisy_queries_follows_it_and_can_be_repeated():
    script = Script(Curriculum(start=0, end=0.5, steps=10), seed=1)
    queries = [f"q{n}" for n in range(2000)]
    assert not any(script.is_noisy(q) for q in queries)
    script.step = 10
    noisy = [script.is_noisy(q) for q in queries]
    assert sum(noisy) / 2000 == pytest.approx(0.5, abs=0.05)
    assert noisy == [script.is_noisy(q) for q in queries]
    assert "bad search engine" in script.prompt(queries[noisy.index(True)], 3)


def test_documents_are_read_from_what_the_model_wrote():
    script = Script(Curriculum(), seed=0)
    assert [d.text for d in script.documents(WRITTEN, 5)] == ["Paris is a city.\nIt is old.", "Rome is another."]
    assert len(script.documents(WRITTEN, 1)) == 1
    with pytest.raises(WrongAnswer):
        script.documents("I can't do that.", 3)


def search(engine, *queries):
    return engine.search([SearchRequest(q) for q in queries], 2)


def test_each_query_gets_its_own_documents_and_no_document_is_a_failure():
    asked = []

    def generate(prompts):
        asked.extend(prompts)
        return ["nothing of use" if "bad" in p else f"Document 1: about {p.rpartition(' ')[2]}" for p in prompts]

    engine = SimulatedEngine(generate, Script(Curriculum(), 0))
    assert isinstance(engine, Retriever)
    results = search(engine, "a", "bad", "b", "a")
    assert [r.documents[0].text if r.documents else r.error for r in results] == [
        "about a", "the model wrote no document", "about b", "about a",
    ]  # fmt: skip
    assert len(asked) == 3


def test_a_model_that_raises_is_a_failure():
    def generate(prompts):
        raise RuntimeError("secret")

    (result,) = search(SimulatedEngine(generate, Script(Curriculum(), 0)), "a")
    assert result.error == "the simulating model failed: RuntimeError"


def test_any_sampler_can_play(bpe_tokenizer):
    codec = TokenCodec(bpe_tokenizer)
    sampler = ScriptedSampler({("simulated", n): [codec.encode(f"Document 1: text {n}")] for n in range(2)})
    engine = SimulatedEngine(sampled_text(sampler, codec, max_tokens=99), Script(Curriculum(), 0))
    assert [r.documents[0].text for r in search(engine, "a", "b")] == ["text 0", "text 1"]


CHAT = """
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = "Document 1: " + asked["model"] + " on " + asked["messages"][0]["content"].splitlines()[-1]
        body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        self.send_response(200 if self.path == "/v1/chat/completions" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"at http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
"""


def test_a_recipe_names_a_server_or_a_function(tmp_path, monkeypatch):
    pytest.importorskip("httpx")
    with started(sys.executable, "-c", CHAT) as server:
        recipe = {"kind": "simulated", "settings": {"url": f"{server.url}/v1", "model": "m"}}
        engine, corpus_hash = build_retriever(resolve({"retriever": recipe, "trainer": {"steps": 7}}))
        assert [r.documents[0].text for r in search(engine, "x", "y")] == ["m on Query: x", "m on Query: y"]
        assert corpus_hash is None
        assert engine._script.curriculum.steps == 7
    (tmp_path / "my_model.py").write_text("def write(prompts):\n    return ['Document 1: own' for p in prompts]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    engine, _ = build_retriever(
        resolve({"retriever": {"kind": "simulated", "settings": {"generate": "my_model:write"}}})
    )
    assert search(engine, "x")[0].documents[0].text == "own"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "either retriever.settings.url or .generate"),
        ({"url": "http://x/v1"}, "must name the model"),
        ({"generate": "a:b", "useful": "no place"}, "must contain {query}"),
        ({"url": "http://x", "model": "m", "http": {"timeot": 1}}, "timeot"),
        ({"curriculum": {"end": 2}}, "curriculum.end"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, says):
    with pytest.raises(UserError) as error:
        build_retriever(resolve({"retriever": {"kind": "simulated", "settings": settings}}))
    assert says in str(error.value)
