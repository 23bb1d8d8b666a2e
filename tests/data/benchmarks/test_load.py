import json

import pytest

from sleuth.data.benchmarks import BENCHMARKS, find_benchmark, is_benchmark, load_benchmark, load_benchmarks
from sleuth.data.benchmarks.load import fetch_benchmark
from sleuth.data.benchmarks.store import Store, content_sha256
from sleuth.errors import UserError


class Hub:
    """Stands in for ``datasets.load_dataset``: rows shaped like the hub's."""

    def __init__(self, rows):
        self.rows, self.asked = rows, []

    def load_dataset(self, name, config=None, *, split=None, revision=None):
        self.asked.append((name, config, split, revision))
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


@pytest.fixture
def hub(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def serve(rows):
        served = Hub(rows)
        monkeypatch.setattr(datasets, "load_dataset", served.load_dataset)
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *args, **kwargs: None)
        return served

    return serve


def bamboogle(n=125):
    return [{"id": f"test_{i}", "question": f"Question {i}?", "golden_answers": [str(i)]} for i in range(n)]


# Names ----------------------------------------------------------------------------------------------------------------


def test_every_benchmark_that_the_field_reports_is_there():
    seven = {"nq", "triviaqa", "popqa", "hotpotqa", "2wiki", "musique", "bamboogle"}
    assert {*BENCHMARKS} == seven | {"frames", "browsecomp", "gaia"}
    assert sum(BENCHMARKS[name].count for name in seven) == 51_713  # the number that papers state for the seven


@pytest.mark.parametrize("spelling", ["2wiki", "2WikiMultihopQA", "2WikiMultiHopQA", "2wiki-multihop-qa"])
def test_other_spellings_of_a_name_are_known(spelling):
    assert is_benchmark(spelling)
    assert find_benchmark(spelling).name == "2wiki"


def test_an_unknown_name_is_answered_with_the_nearest():
    assert not is_benchmark("hotpotq")
    with pytest.raises(UserError, match="did you mean hotpotqa"):
        find_benchmark("hotpotq")


# Local folders --------------------------------------------------------------------------------------------------------


def test_flashrag_layout_is_read(flashrag):
    nq, hotpot = load_benchmarks(["NQ", "hotpotqa", "nq"], folder=flashrag)
    assert [q.id for q in nq.questions] == ["nq_test_0", "nq_test_1"]
    assert nq.questions[0].golden_answers == ["Ann", "Ann B"]
    assert {q.data_source for q in nq.questions} == {"nq"}
    assert nq.questions[0].extra["hops"] == 1
    assert (nq.provenance.questions, nq.provenance.expected, nq.provenance.complete) == (2, 3610, False)
    assert "2 of 3,610 questions (test), CC BY-SA 3.0" in nq.provenance.line()
    question = hotpot.questions[0]
    assert (question.extra["qtype"], question.extra["hops"]) == ("comparison", 2)
    assert question.supporting_titles == ["A", "B"]
    assert not {"context", "context_ids", "supporting_ids"} & set(question.extra)


def test_a_folder_without_it_is_one_line_that_says_what_was_looked_for(flashrag):
    with pytest.raises(UserError, match=r"holds no popqa; looked for popqa/test.jsonl or popQA.tsv"):
        load_benchmark("popqa", folder=flashrag)
    with pytest.raises(UserError, match="no such file or folder"):
        load_benchmark("nq", folder=flashrag / "nowhere")


def test_one_file_is_never_two_benchmarks(flashrag):
    with pytest.raises(UserError, match=r"would be nq and popqa"):
        load_benchmarks(["nq", "popqa"], folder=flashrag / "nq")


def test_a_file_of_another_benchmark_is_refused(tmp_path):
    (tmp_path / "test.jsonl").write_text('{"id": "1", "question": "q", "golden_answers": ["a"], "data_source": "nq"}\n')
    with pytest.raises(UserError, match='its "data_source" is nq, not popqa'):
        load_benchmark("popqa", folder=tmp_path)


def test_authors_own_files_are_read(tmp_path):
    (tmp_path / "popQA.tsv").write_text(
        "id\tsubj\tprop\tquestion\tpossible_answers\n"
        '4222362\tGeorge Rankin\toccupation\tWhat is George Rankin\'s occupation?\t"[""politician"", ""pol""]"\n'
    )
    (tmp_path / "test.tsv").write_text(
        "\tPrompt\tAnswer\twikipedia_link_1\treasoning_types\twiki_links\n"
        "0\tWho?\tJane Ballou\thttps://x\tTabular reasoning | Multiple constraints\t"
        "\"['https://en.wikipedia.org/wiki/James_Buchanan', 'https://en.wikipedia.org/wiki/Charlotte_Bront%C3%AB#Life']\""
        "\n"
    )
    popqa = load_benchmark("popqa", folder=tmp_path / "popQA.tsv").questions[0]
    assert (popqa.id, popqa.golden_answers) == ("popqa_4222362", ["politician", "pol"])
    assert popqa.extra["qtype"] == "occupation"
    frames = load_benchmark("frames", folder=tmp_path).questions[0]
    assert (frames.id, frames.question, frames.golden_answers) == ("frames_0", "Who?", ["Jane Ballou"])
    assert frames.supporting_titles == ["James Buchanan", "Charlotte Brontë"]
    assert frames.extra["qtype"] == "Tabular reasoning | Multiple constraints"


def test_musique_keeps_its_steps_and_loses_its_paragraphs(tmp_path):
    row = {
        "id": "2hop__1_2",
        "question": "Who led the publisher of X?",
        "answer": "Hall",
        "answer_aliases": ["G. Hall"],
        "answerable": True,
        "paragraphs": [
            {"idx": 0, "title": "X", "paragraph_text": "X is by P.", "is_supporting": True},
            {"idx": 1, "title": "P", "paragraph_text": "Hall led P.", "is_supporting": True},
        ],
        "question_decomposition": [
            {"id": 1, "question": "X >> publisher", "answer": "P", "paragraph_support_idx": 0},
            {"id": 2, "question": "Who led #1 ?", "answer": "Hall", "paragraph_support_idx": 1},
        ],
    }
    (tmp_path / "musique_ans_v1.0_dev.jsonl").write_text(json.dumps(row))
    question = load_benchmark("musique", folder=tmp_path).questions[0]
    assert question.golden_answers == ["Hall", "G. Hall"]
    assert question.supporting_titles == ["X", "P"]
    assert question.extra["hops"] == 2
    assert question.extra["decomposition"][1] == {"question": "Who led #1 ?", "answer": "Hall", "title": "P"}
    assert not {"paragraphs", "context_ids", "supporting_ids", "question_decomposition"} & set(question.extra)


def test_gaia_is_its_questions_without_a_file(tmp_path):
    rows = [
        {"task_id": "a", "Question": "How many?", "Level": "2", "Final answer": "[3, 4]", "file_name": ""},
        {"task_id": "b", "Question": "See the sheet", "Level": "1", "Final answer": "x", "file_name": "b.xlsx"},
    ]
    (tmp_path / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = load_benchmark("gaia", folder=tmp_path)
    assert [(q.id, q.golden_answers, q.extra["level"]) for q in loaded.questions] == [("gaia_a", ["[3, 4]"], "2")]
    assert loaded.provenance.left_out == {"with an attached file": 1}


def test_a_data_set_saved_to_disk_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    splits = {"test": datasets.Dataset.from_list(bamboogle(3)), "train": datasets.Dataset.from_list(bamboogle(4))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "bamboogle"))
    assert load_benchmark("bamboogle", folder=tmp_path).provenance.questions == 3


# The hub and the cache ------------------------------------------------------------------------------------------------


def test_the_hub_is_asked_once_for_one_split_and_the_cache_after_that(hub):
    served = hub(bamboogle())
    loaded = load_benchmark("bamboogle")
    assert served.asked == [("RUC-NLPIR/FlashRAG_datasets", "bamboogle", "test", None)]
    again = load_benchmark("bamboogle", fetch=False)
    assert len(served.asked) == 1
    assert again == loaded
    assert loaded.provenance.complete
    assert loaded.provenance.source == "hub RUC-NLPIR/FlashRAG_datasets:bamboogle@test"


def test_without_a_network_it_is_one_line_that_says_what_to_do(hub):
    hub(ConnectionError("Couldn't reach 'RUC-NLPIR/FlashRAG_datasets' on the Hub\nmore"))
    with pytest.raises(UserError, match=r"^nq: .*Couldn't reach .*sleuth data get nq --from FOLDER$") as caught:
        load_benchmark("nq")
    assert "\n" not in str(caught.value)


def test_an_unreachable_hub_is_asked_once(hub, monkeypatch):
    served = hub(bamboogle())

    def unreachable(*args, **kwargs):
        raise OSError("[Errno -2] Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", unreachable)
    with pytest.raises(UserError, match=r"the hub can't be asked for RUC.*not known.*--from FOLDER"):
        load_benchmark("bamboogle")
    assert served.asked == []


def test_a_gated_benchmark_says_how_to_get_in(hub):
    hub(Exception("Dataset 'gaia-benchmark/GAIA' is a gated dataset on the Hub."))
    with pytest.raises(UserError, match=r"gated: log in .* accept the terms .*hf auth login"):
        load_benchmark("gaia")


def test_fetch_false_never_goes_to_the_network(hub):
    served = hub(bamboogle())
    with pytest.raises(UserError, match="sleuth data get bamboogle"):
        load_benchmark("bamboogle", fetch=False)
    assert served.asked == []


def test_a_hub_that_serves_another_number_of_questions_is_refused(hub, cache):
    hub(bamboogle(124))
    with pytest.raises(UserError, match="124 questions, the benchmark 125"):
        fetch_benchmark("bamboogle")
    assert not (cache / "bamboogle").exists()


def test_a_place_that_changes_is_refused_until_the_change_is_accepted(hub):
    hub(bamboogle())
    first = fetch_benchmark("bamboogle")
    changed = bamboogle()
    changed[7]["golden_answers"] = ["something else"]
    hub(changed)
    with pytest.raises(UserError, match="gave other questions than the first time"):
        fetch_benchmark("bamboogle")
    assert load_benchmark("bamboogle").provenance == first
    assert fetch_benchmark("bamboogle", accept_change=True).sha256 != first.sha256
    assert fetch_benchmark("bamboogle").sha256 != first.sha256


def test_a_hash_that_was_asked_for_is_held_to(hub, flashrag):
    hub(bamboogle())
    sha = fetch_benchmark("bamboogle").sha256
    assert load_benchmark("bamboogle", sha256=sha[:12].upper())
    with pytest.raises(UserError, match="you asked for 0000"):
        load_benchmark("bamboogle", sha256="0000")
    with pytest.raises(UserError, match="these are other questions"):
        load_benchmark("nq", folder=flashrag, sha256="0000")


def test_a_cached_file_that_was_changed_is_refused(hub):
    from sleuth.jsonl import read_jsonl, write_jsonl

    hub(bamboogle())
    fetch_benchmark("bamboogle")
    path = Store().where("bamboogle")
    rows = [row for _, row in read_jsonl(path)]
    rows[3]["golden_answers"] = ["tampered"]
    write_jsonl(path, rows)
    with pytest.raises(UserError, match=r"wrong SHA-256.*--force"):
        load_benchmark("bamboogle")


@pytest.mark.parametrize("damage", ["{", "[]", '{"name": "bamboogle"}'])
def test_a_damaged_cache_is_one_line_that_says_what_to_do(hub, cache, damage):
    hub(bamboogle())
    fetch_benchmark("bamboogle")
    (cache / "bamboogle" / "provenance.json").write_text(damage)
    with pytest.raises(UserError, match=r"fetch (it )?again"):
        load_benchmark("bamboogle")


def test_the_hash_depends_on_content_alone():
    rows = [{"id": str(i), "question": "q", "golden_answers": ["a"]} for i in range(3)]
    fields = ("id", "question", "golden_answers")
    one = content_sha256(rows, fields)
    assert content_sha256([{**row, "fold": 3} for row in reversed(rows)], fields) == one
    rows[0]["golden_answers"] = ["a", "b"]
    assert content_sha256(rows, fields) != one


# Real samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "questions", "left_out"),
    [
        ("nq", 3270, {}),
        ("triviaqa", 633, {}),
        ("popqa", 623, {}),
        ("hotpotqa", 1516, {"of the training split": 100}),
        ("2wiki", 1194, {"of the training split": 20}),
        ("musique", 1054, {"of the training split": 100}),
        ("bamboogle", 125, {}),
        ("frames", 824, {}),
    ],
)
def test_real_samples_load_by_name(real_data, name, questions, left_out):
    loaded = load_benchmark(name, folder=real_data)
    assert loaded.provenance.questions == len(loaded.questions) == questions
    assert loaded.provenance.left_out == left_out
    assert loaded.provenance.complete == (name in ("bamboogle", "frames"))
    assert len({q.id for q in loaded.questions}) == questions


def test_real_samples_load_together_from_the_cache(real_data):
    names = ["nq", "hotpotqa", "musique", "bamboogle"]
    for name in names:
        fetch_benchmark(name, folder=real_data)
    loaded = load_benchmarks(names)
    ids = [q.id for one in loaded for q in one.questions]
    assert len(ids) == len(set(ids)) == 3270 + 1516 + 1054 + 125
    straight = load_benchmark("musique", folder=real_data)
    assert loaded[2].questions == straight.questions
