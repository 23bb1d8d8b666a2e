"""Oracle demonstrations over a small corpus of our own and, where it is at hand, over real questions."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import pytest

from sleuth.agent.codec import TokenCodec
from sleuth.agent.episode import Limits
from sleuth.agent.protocol import AgentProtocol
from sleuth.agent.tags import TagProtocol, TagSettings
from sleuth.agent.tool_calls import ToolCallProtocol
from sleuth.errors import UserError
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.retrieval.corpus import Corpus, read_corpus
from sleuth.rewards.graders import GRADERS
from sleuth.training.evidence import Words
from sleuth.training.oracle import play_oracle
from sleuth.types import Action, ActionType, Document, Question, SearchRequest, SearchResult, SpanKind, Status

SHARED = Path(__file__).parents[3] / "shared" / "data"

PAGES = {
    "Silver Harbour (film)": "Silver Harbour is a 1948 drama film directed by Ingrid Vale and produced by Otto Lem.",
    "Ingrid Vale": "Ingrid Vale was a Danish actress who came from Odense and died in Oslo.",
    "Otto Lem": "Otto Lem was a Norwegian producer of radio plays.",
    "Grey Harbour": "Grey Harbour is a 1962 novel about a lighthouse.",
    "Odense": "Odense is a city on the island of Funen. Its mayor is Karen Holt.",
    "Lighthouse": "A lighthouse is a tower with a lamp that guides ships into a harbour.",
}
BRIDGE = Question(
    "bridge",
    "Where was the director of Silver Harbour born?",
    ["Odense"],
    data_source="bridges",
    supporting_titles=["Ingrid Vale", "Silver Harbour (film)"],
)
EARLIER = Question(
    "earlier",
    "Which is older, Silver Harbour or Grey Harbour?",
    ["Silver Harbour"],
    data_source="comparisons",
    supporting_titles=["Grey Harbour", "Silver Harbour (film)"],
)
SAME = Question(
    "same",
    "Are Ingrid Vale and Otto Lem from the same country?",
    ["no"],
    data_source="comparisons",
    supporting_titles=["Ingrid Vale", "Otto Lem"],
)
SINGLE = Question(
    "single", "what guides ships into a harbour", ["a lighthouse", "lamp"], "singles", supporting_titles=["Lighthouse"]
)
STEPS = Question(
    "steps",
    "Who is mayor of the city where the director of Silver Harbour was born?",
    ["Karen Holt"],
    data_source="steps",
    supporting_titles=["Silver Harbour (film)", "Ingrid Vale", "Odense"],
    extra={
        "decomposition": [
            {"question": "Silver Harbour >> director", "answer": "Ingrid Vale", "title": "Silver Harbour (film)"},
            {"question": "Where was #1 born?", "answer": "Odense", "title": "Ingrid Vale"},
            {"question": "#2 >> mayor", "answer": "Karen Holt", "title": "Odense"},
        ]
    },
)
ALL = [BRIDGE, EARLIER, SAME, SINGLE, STEPS]
LIMITS = Limits(max_turns=4, max_searches=3, max_turn_tokens=400, max_tokens=8000, max_observation_tokens=900, k=1)


@pytest.fixture
def protocol(bpe_tokenizer):
    return TagProtocol(TokenCodec(bpe_tokenizer), TagSettings(chat=False))


@pytest.fixture
def retriever():
    return BM25Retriever(Corpus([Document(str(n), t, text) for n, (t, text) in enumerate(PAGES.items())]))


class FirstMisses:
    """Finds nothing for the first query of each question, then what is there."""

    def __init__(self, inner, misses):
        self.inner, self.misses = inner, misses

    def search(self, requests, k):
        if self.misses:
            self.misses -= 1
            return [SearchResult() for _ in requests]
        return self.inner.search(requests, k)


def one(question, retriever, protocol, limits=LIMITS, seed=0):
    out = play_oracle([question], 1, seed, retriever, protocol, limits)
    assert out.kept, out.dropped
    return out.kept[0]


def thought(span):
    return span.text.partition("<think>")[2].partition("</think>")[0].strip()


@pytest.mark.parametrize("question", ALL, ids=lambda q: q.id)
@pytest.mark.parametrize("seed", range(5))
def test_every_turn_is_well_formed_and_the_answer_is_golden(question, seed, retriever, protocol):
    played = one(question, retriever, protocol, seed=seed)
    assert played.status is Status.ANSWERED
    assert played.format_valid
    assert played.answer in question.golden_answers
    assert "invalid_actions" not in played.counts


@pytest.mark.parametrize("question", ALL, ids=lambda q: q.id)
def test_passages_are_those_that_the_retriever_returns_and_hold_every_supporting_title(question, retriever, protocol):
    played = one(question, retriever, protocol)
    shown = []
    for turn in played.turns[:-1]:
        (again,) = retriever.search([SearchRequest(turn.policy.action.query)], LIMITS.k)
        assert turn.observation.documents == again.documents
        shown += [d.title for d in again.documents]
    assert set(question.supporting_titles) <= set(shown)


@pytest.mark.parametrize("seed", range(8))
def test_a_title_is_asked_for_once_a_passage_named_it(seed, retriever, protocol):
    first, second = one(BRIDGE, retriever, protocol, seed=seed).queries
    assert first.startswith("Silver Harbour")
    assert "Vale" not in first
    assert second.startswith("Ingrid Vale")


def test_thoughts_quote_what_the_passage_says(retriever, protocol):
    played = one(BRIDGE, retriever, protocol)
    assert "directed by Ingrid Vale" in thought(played.policy_spans[1])
    assert "came from Odense" in thought(played.policy_spans[2])


def test_a_decomposition_is_followed_with_earlier_answers_filled_in(retriever, protocol):
    played = one(STEPS, retriever, protocol)
    assert len(played.queries) == 3
    assert "Ingrid Vale" in played.queries[1]
    assert "Odense" in played.queries[2]
    assert not any("#" in span.text for span in played.policy_spans)


def test_a_comparison_names_the_years_that_decide_it(retriever, protocol):
    last = one(EARLIER, retriever, protocol).policy_spans[-1]
    assert "1948" in thought(last)
    assert "1962" in thought(last)


def test_years_that_contradict_the_answer_are_not_named(retriever, protocol):
    wrong = Question("w", EARLIER.question, ["Grey Harbour"], "x", supporting_titles=EARLIER.supporting_titles)
    last = one(wrong, retriever, protocol).policy_spans[-1]
    assert "1948." not in thought(last)


def test_yes_or_no_comes_after_both_passages(retriever, protocol):
    played = one(SAME, retriever, protocol)
    assert played.counts["searches"] == 2
    assert "Danish" in thought(played.policy_spans[-1])
    assert "Norwegian" in thought(played.policy_spans[-1])


def test_what_is_shown_already_is_not_searched_for(retriever, protocol):
    limits = LIMITS.model_copy(update={"k": len(PAGES)})
    assert one(EARLIER, retriever, protocol).counts["searches"] == 2
    assert one(EARLIER, retriever, protocol, limits).counts["searches"] == 1


def test_a_miss_is_followed_by_other_words(retriever, protocol):
    played = one(SINGLE, FirstMisses(retriever, 1), protocol)
    first, second = played.queries
    assert first != second
    assert played.counts["empty_results"] == 1
    assert thought(played.policy_spans[1]) in (
        "These passages do not help. I try other words.",
        "It is not here. I search again.",
    )


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (Question("q", "who is Ada Lovelace", ["x"], "s", supporting_titles=["Ada Lovelace"]), "not among the hits"),
        (Question("q", "who is Otto Lem", ["a pilot"], "s", supporting_titles=["Otto Lem"]), "states the answer"),
        (Question("q", "Otto Lem", [PAGES["Otto Lem"] * 3], "s", supporting_titles=["Otto Lem"]), "states the answer"),
    ],
)
def test_what_the_passages_do_not_support_is_dropped(question, reason, retriever, protocol):
    out = play_oracle([question], 1, 0, retriever, protocol, LIMITS)
    assert not out.kept
    ((source, said),) = out.dropped
    assert source == "s"
    assert reason in said


def test_an_answer_behind_the_cut_is_not_given(retriever, bpe_tokenizer):
    question = Question("q", "where did Ingrid Vale die", ["Oslo"], "s", supporting_titles=["Ingrid Vale"])
    short = TagProtocol(TokenCodec(bpe_tokenizer), TagSettings(chat=False, max_document_tokens=12))
    assert not play_oracle([question], 1, 0, retriever, short, LIMITS).kept
    whole = TagProtocol(TokenCodec(bpe_tokenizer), TagSettings(chat=False))
    assert play_oracle([question], 1, 0, retriever, whole, LIMITS).kept
    narrow = LIMITS.model_copy(update={"max_observation_tokens": 60})
    assert play_oracle([question], 1, 0, retriever, whole, narrow).dropped == {("s", "does not fit the limits"): 1}


def test_long_answers_are_dropped(protocol):
    answer = "one two three four five six seven eight nine ten eleven"
    retriever = BM25Retriever(Corpus([Document("0", "Count", f"The count goes {answer}.")]))
    question = Question("q", "how does the Count go", [answer], "s", supporting_titles=["Count"])
    assert play_oracle([question], 1, 0, retriever, protocol, LIMITS).dropped == {("s", "the answer is long"): 1}


def test_more_searches_than_allowed_are_no_demonstration(retriever, protocol):
    limits = LIMITS.model_copy(update={"max_searches": 2})
    out = play_oracle([STEPS], 1, 0, retriever, protocol, limits)
    assert out.dropped == {("steps", "needs more searches than allowed"): 1}


def test_a_forced_answer_stands_in_the_opened_tag_without_a_thought(retriever, protocol):
    played = one(STEPS, retriever, protocol, LIMITS.model_copy(update={"force_answer": True}))
    assert played.spans[-2].kind is SpanKind.HINT
    assert played.spans[-1].text == " Karen Holt </answer>"
    assert played.format_valid


def test_a_prepended_thought_is_not_written_twice(retriever, bpe_tokenizer):
    protocol = TagProtocol(TokenCodec(bpe_tokenizer), TagSettings(chat=False, prepend_think=True))
    played = one(BRIDGE, retriever, protocol)
    assert played.format_valid
    assert not any("<think>" in span.text for span in played.policy_spans)


def test_tag_names_are_the_protocols(retriever, bpe_tokenizer):
    protocol = TagProtocol(TokenCodec(bpe_tokenizer), TagSettings(chat=False, search="query", think="plan"))
    played = one(BRIDGE, retriever, protocol)
    assert "<query> Silver Harbour" in played.policy_spans[0].text
    assert played.format_valid


def test_a_written_turn_is_read_as_its_action(protocol):
    for action in (Action(ActionType.SEARCH, query="tall tower"), Action(ActionType.ANSWER, text="Paris")):
        parsed = protocol.parse(protocol.codec.encode(protocol.write_turn("I need it.", action)), None)
        assert parsed.action == action
        assert parsed.valid


CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("force_answer", [False, True])
def test_tool_calls_are_demonstrated_in_their_own_form(force_answer, retriever, bpe_tokenizer):
    tokenizer = copy.deepcopy(bpe_tokenizer)
    tokenizer.chat_template = CHAT
    protocol = ToolCallProtocol(TokenCodec(tokenizer))
    played = one(STEPS, retriever, protocol, LIMITS.model_copy(update={"force_answer": force_answer}))
    assert played.format_valid
    assert len(played.queries) == 3
    assert played.answer == "Karen Holt"
    call = played.policy_spans[0].text.partition("<tool_call>")[2].partition("</tool_call>")[0]
    assert json.loads(call) == {"name": "search", "arguments": {"query": played.queries[0]}}


def test_a_protocol_that_cannot_write_turns_is_an_error_that_says_so(retriever, bpe_tokenizer):
    class Own(TagProtocol):
        write_turn = AgentProtocol.write_turn

    with pytest.raises(UserError, match=r"Own has no write_turn"):
        play_oracle([BRIDGE], 1, 0, retriever, Own(TokenCodec(bpe_tokenizer), TagSettings(chat=False)), LIMITS)


def test_the_seed_decides_the_words_and_nothing_else_does(retriever, protocol):
    def said(seed, questions):
        kept = play_oracle(questions, len(questions), seed, retriever, protocol, LIMITS).kept
        return {t.id: [s.text for s in t.policy_spans] for t in kept}

    assert said(3, ALL) == said(3, ALL)
    assert said(3, [BRIDGE])["bridge-0"] == said(3, ALL)["bridge-0"]
    assert len({str(said(seed, [BRIDGE])) for seed in range(10)}) > 3


def test_questions_come_again_in_other_words_after_all_had_a_turn(retriever, protocol):
    kept = play_oracle(ALL, 20, 0, retriever, protocol, LIMITS).kept
    assert len({t.id for t in kept}) == 20
    assert {t.id for t in kept[:5]} == {f"{q.id}-0" for q in ALL}
    assert len({str([s.text for s in t.policy_spans]) for t in kept if t.group == "bridge"}) > 1


def test_data_sources_take_turns(retriever, protocol):
    many = [
        Question(f"s{n}", SINGLE.question, SINGLE.golden_answers, "singles", None, ["Lighthouse"]) for n in range(40)
    ]
    kept = play_oracle([*many, BRIDGE, STEPS], 6, 0, retriever, protocol, LIMITS).kept
    assert {"bridges", "steps"} <= {t.data_source for t in kept[:3]}


def test_rows_without_titles_are_passed_over_and_nothing_else_is_an_error(retriever, protocol):
    bare = Question("bare", "who", ["x"])
    assert len(play_oracle([bare, BRIDGE], 1, 0, retriever, protocol, LIMITS).kept) == 1
    with pytest.raises(UserError, match="supporting_titles or decomposition"):
        play_oracle([bare], 1, 0, retriever, protocol, LIMITS)


def test_a_failing_retriever_is_an_error_that_names_the_question(protocol):
    class Down:
        def search(self, requests, k):
            return [SearchResult(error="no route") for _ in requests]

    with pytest.raises(UserError, match=r"bridge.*no route"):
        play_oracle([BRIDGE], 1, 0, Down(), protocol, LIMITS)


@pytest.mark.parametrize("decomposition", ["text", ["step"], [{"question": "x", "answer": "y"}]])
def test_a_broken_decomposition_is_an_error(decomposition, retriever, protocol):
    question = Question("q", "who", ["x"], extra={"decomposition": decomposition})
    with pytest.raises(UserError, match="decomposition"):
        play_oracle([question], 1, 0, retriever, protocol, LIMITS)


# Real questions ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    if not SHARED.is_dir():
        pytest.skip(f"no real questions at {SHARED}")
    questions = []
    for name in ("hotpotqa", "musique", "2wiki", "nq"):
        with gzip.open(SHARED / name / "questions.jsonl.gz", "rt", encoding="utf-8") as rows:
            found = [row for row in map(json.loads, rows) if row["support"] == "gold" and row["fold"] > 1][:60]
        questions += [
            Question(
                row["id"],
                row["question"],
                row["golden_answers"],
                row["data_source"],
                supporting_titles=row["supporting_titles"],
                extra={key: row[key] for key in ("decomposition", "supporting_ids") if key in row},
            )
            for row in found
        ]
    return questions, BM25Retriever(read_corpus(SHARED / "wiki_pool" / "corpus.jsonl.gz"))


def test_real_demonstrations_say_only_what_question_and_passages_say(real, bpe_tokenizer):
    questions, retriever = real
    protocol = TagProtocol(TokenCodec(bpe_tokenizer), TagSettings(chat=False))
    limits = LIMITS.model_copy(update={"k": 3, "max_observation_tokens": 20000, "max_tokens": 80000})
    kept = play_oracle(questions, 100, 0, retriever, protocol, limits).kept
    assert len(kept) == 100
    by_id = {q.id: q for q in questions}
    for t in kept:
        question = by_id[t.group]
        assert t.format_valid, t.id
        assert GRADERS["squad"].grade(t.answer, question.golden_answers).em == 1.0, t.id
        shown = Words.of("\n".join(s.text for s in t.spans if s.kind is SpanKind.OBSERVATION))
        assert t.answer in ("yes", "no") or t.answer in shown, t.id
        titles = {d.title for s in t.spans for d in s.documents}
        steps = question.extra.get("decomposition")
        assert {step["title"] for step in steps} <= titles if steps else set(question.supporting_titles) <= titles, t.id
        known = set(Words.of(question.question).words)
        for step in steps or []:
            known |= set(Words.of(step["question"]).words)
        for turn in t.turns:
            assert set(Words.of(turn.policy.action.query or "").words) <= known, t.id
            if turn.observation is not None:
                known |= set(Words.of(turn.observation.text).words)
