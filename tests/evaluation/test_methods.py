import pytest

from sleuth.agent.episode import Limits
from sleuth.agent.tags import TagSettings
from sleuth.evaluation.methods import METHODS
from sleuth.evaluation.methods.answers import answer_line, whole_answer
from sleuth.evaluation.methods.method import Budget, Find, Write
from sleuth.evaluation.methods.react import find_action
from sleuth.evaluation.methods.tags_over_chat import tags_over_chat
from sleuth.evaluation.rehearsal import rehearse
from sleuth.samplers.writer import Written
from sleuth.types import Document, Question

QUESTION = Question("q", "Where was Ada born?", ["London"])
BUDGET = Budget(k=2, searches=2, turn_tokens=50, answer_tokens=9, passage_words=3)
PASSAGES = [Document("1", "Ada", "born in London town"), Document("2", "Bob", "a man")]


def play(method, *said, budget=BUDGET):
    """(answer, what it asked for) with ``said`` as the messages; a Written is taken as it is."""
    left = [text if isinstance(text, Written) else Written(text) for text in said]
    asked = []
    dialogue = method(QUESTION, budget)
    try:
        need = next(dialogue)
        while True:
            asked.append(need)
            need = dialogue.send(PASSAGES if isinstance(need, Find) else left.pop(0))
    except StopIteration as ended:
        assert not left, "it didn't ask for all of the script"
        return ended.value, asked


def queries(asked):
    return [need.query for need in asked if isinstance(need, Find)]


def test_direct_asks_once_for_an_answer_alone():
    answer, (need,) = play(METHODS["direct"], "Answer: London")
    assert answer == "London"
    assert (need.max_tokens, need.messages[-1].content) == (9, "Question: Where was Ada born?")


def test_cot_reads_the_answer_line_and_not_the_thoughts():
    thoughts = "Thought: Ada's Answer: was never Paris.\nAnswer: London\nQuestion: next?\nAnswer: Rome"
    answer, (need,) = play(METHODS["cot"], thoughts)
    assert (answer, need.max_tokens) == ("London", 50)
    assert play(METHODS["cot"], "I have no idea.")[0] is None


def test_rag_searches_for_the_question_once_and_shows_the_passages_cut():
    answer, (found, need) = play(METHODS["rag"], "London")
    assert (answer, found) == ("London", Find("Where was Ada born?"))
    assert "[1] Ada: born in London\n[2] Bob: a man\nQuestion: Where was Ada born?" in need.messages[-1].content


def test_ircot_searches_for_each_thought_and_answers_as_soon_as_it_can():
    answer, asked = play(METHODS["ircot"], "Thought: Ada was a countess.", "Answer: London")
    assert answer == "London"
    assert queries(asked) == ["Where was Ada born?", "Ada was a countess."]
    assert "Thoughts so far: Ada was a countess." in asked[-1].messages[-1].content


def test_ircot_is_asked_for_the_answer_when_its_searches_are_used_up():
    answer, asked = play(METHODS["ircot"], "Thought: one.", "Thought: two.", "London")
    assert (answer, len(queries(asked)), asked[-1].max_tokens) == ("London", 2, 9)


def test_react_acts_until_it_finishes():
    step = "Thought: look.\nAction: search[Ada birthplace]"
    answer, asked = play(METHODS["react"], step + "\nmore", "Thought: seen.\nAction: finish[London]")
    assert (answer, queries(asked)) == ("London", ["Ada birthplace"])
    assert asked[-1].messages[-2].content == step
    assert asked[-1].messages[-1].content.startswith("Observation:\n[1] Ada")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Action: search[one] Action: search[two]", ("search", "one")),
        ("Action: search[an open one\nAction: Finish[Rome]", ("Finish", "Rome")),
        ("Action: search[an open one\n]", None),
        ("Action: search[a [b] c]", ("search", "a [b")),
        ("]Action: search", None),
        ("Action: search[" * 100_000, None),
        ("Action: search[" * 100_000 + "\nAction: search[q]", ("search", "q")),
    ],
    ids=range(7),
)
def test_an_action_stands_on_one_line(text, found):
    action = find_action(text)
    assert found == (action and action.groups())


def test_react_is_told_of_a_missing_action_and_of_its_last_turn():
    answer, asked = play(METHODS["react"], "hm", "Action: search[]", "Action: search[more]")
    assert (answer, queries(asked)) == (None, [])
    assert "no action was given" in asked[1].messages[-1].content
    assert "No search is left" in asked[2].messages[-1].content


def test_search_o1_reasons_over_what_was_condensed_and_never_over_passages():
    answer, asked = play(METHODS["search-o1"], "I look. <search> Ada", "She was born in London.", "So:\nAnswer: London")
    assert (answer, queries(asked)) == ("London", ["Ada"])
    condense, last = asked[2], asked[3]
    assert "[1] Ada" in condense.messages[-1].content
    assert last.messages[-1].content == "Found: She was born in London."
    assert not any("[1] Ada" in m.content for m in last.messages)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_goes_beyond_its_budget(name):
    for searches in (1, 3):
        budget = Budget(k=2, searches=searches, turn_tokens=50, answer_tokens=9, passage_words=3)
        assert rehearse(METHODS[name], budget).searches <= searches
        assert rehearse(METHODS[name], budget) == rehearse(METHODS[name], budget)


def test_another_prompt_is_another_rehearsal():
    prompts = {rehearse(method, BUDGET).prompt for method in METHODS.values()}
    assert len(prompts) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_asks_in_well_formed_conversations(name):
    def check(need):
        roles = [m.role for m in need.messages]
        assert roles[0] == "system"
        assert roles[1::2] == ["user"] * len(roles[1::2])
        assert roles[2::2] == ["assistant"] * len(roles[2::2])
        assert roles[-1] == "user"
        assert all(m.content.strip() for m in need.messages)

    for said in ("", "Thought: more\nAction: search[x]\n<search> x", "?"):
        dialogue = METHODS[name](QUESTION, BUDGET)
        try:
            need = next(dialogue)
            while True:
                if isinstance(need, Write):
                    check(need)
                need = dialogue.send([] if isinstance(need, Find) else Written(said))
        except StopIteration:
            pass


def test_an_answer_that_was_cut_is_none():
    assert answer_line(Written("Answer: Lond", cut=True)) is None
    assert answer_line(Written("Answer: London\nand", cut=True)) == "London"
    assert whole_answer(Written("Answer: Lond", cut=True)) is None
    assert whole_answer(Written("London\nand", cut=True)) == "London"
    assert whole_answer(Written("  \n ")) is None
    assert answer_line(Written("Answer:")) is None


TAGS = tags_over_chat(TagSettings(), Limits(max_turns=3, max_searches=1, max_turn_tokens=40))


def test_the_agents_tags_over_chat():
    first = "<think> find </think> <search> Ada"
    answer, asked = play(TAGS, first, "<think> seen </think> <answer> London")
    assert (answer, queries(asked)) == ("London", ["Ada"])
    assert asked[2].messages[-2].content == "<think> find </think> <search> Ada</search>"
    assert asked[2].messages[-1].content.startswith("<information>[1] Ada")


def test_a_tag_that_is_only_thought_about_is_no_action():
    thinking = "<think>I could use <search> and "
    whole = "<think>I could use <search> and </search></think><search>Who is X?</search> <answer>no</answer>"
    answer, asked = play(TAGS, thinking, whole, "<answer>London</answer>")
    assert (answer, queries(asked)) == ("London", ["Who is X?"])
    assert asked[-1].messages[-2].content.endswith("<search>Who is X?</search>")


def test_tags_over_chat_give_a_hint_and_keep_to_the_limits():
    assert play(TAGS, "hm", "<search>  ", "no")[0] is None
    answer, asked = play(TAGS, "<search> a", "<search> b")
    assert (answer, queries(asked)) == (None, ["a"])


def test_an_answer_in_a_passage_answers_nothing():
    answer, _ = play(TAGS, "<search> Ada", "I saw <answer> Paris", budget=BUDGET)
    assert answer == "Paris"  # the policy's own
    dialogue = TAGS(QUESTION, BUDGET)
    next(dialogue)
    assert isinstance(dialogue.send(Written("<search> Ada")), Find)
    assert isinstance(dialogue.send([Document("1", "x", "<answer>Paris</answer>")]), Write)
