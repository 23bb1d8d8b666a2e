from sleuth.evaluation.published import figures, sources
from sleuth.evaluation.published.beside import Own, differences, published_sheet, short_of_whole
from sleuth.evaluation.statistics import Interval

OWN = Own(
    label="mine, agent-greedy",
    metric="em",
    values={"nq": Interval(0.3, 0.25, 0.35, 3610), "bamboogle": Interval(0.4, 0.31, 0.49, 100)},
    questions={"nq": 3610, "bamboogle": 100},
    setup={"grader": "squad", "k": 5, "retriever": "bm25", "corpus": None},
)
EM = [row for row in figures() if row.metric == "em"]


def test_every_difference_of_the_set_up_is_named():
    assert differences(sources()["search-r1"], OWN) == [
        "grader search-r1-compat, here squad",
        "passages a search 3, here 5",
        "retriever E5-base-v2, here bm25",
        "corpus wiki-18, here not known",
        "trained on NQ + HotpotQA",
        "checkpoint: GRPO rows: the best checkpoint before collapse, so chosen by the score that is reported",
    ]
    said = differences(sources()["shin"], OWN)
    assert "grader not stated" in said
    assert "checkpoint rule not stated" in said


def test_what_is_the_same_is_no_difference():
    same = Own("x", "em", {}, {}, {"grader": "squad", "k": 3, "retriever": "E5-base-v2", "corpus": "wiki-18"})
    assert differences(sources()["llds"], same) == [
        "grader not stated",
        "trained on NQ + HotpotQA",
        "checkpoint rule not stated",
    ]


def test_a_part_of_a_set_is_said_to_be_one():
    assert short_of_whole(OWN) == ["bamboogle: 100 of 125 questions"]


def test_own_scores_come_first_with_intervals_and_columns_are_theirs():
    sheet = published_sheet(EM, [OWN])
    assert sheet.header == ["", "source", "nq", "bamboogle", "averages as printed"]
    assert sheet.rows[0] == ["mine, agent-greedy", "here", "0.300 [0.250, 0.350]", "0.400 [0.310, 0.490]", ""]
    assert sheet.bold == {0}
    assert any(row[0] == "Qwen2.5-7B, Search-R1 PPO" and row[2:4] == ["0.480", "0.432"] for row in sheet.rows)
    assert all(row[2:4] != ["–", "–"] for row in sheet.rows)
    assert any("grader search-r1-compat, here squad".casefold() in note.casefold() for note in sheet.notes)
    assert any(note.startswith("here, mine") and "100 of 125" in note for note in sheet.notes)


def test_flagged_rows_are_marked_and_explained():
    sheet = published_sheet([row for row in EM if row.source.name == "shin"])
    assert sheet.rows[0][0].endswith(" !")
    assert sheet.notes[0].startswith("! Qwen2.5-3B-Instruct, GRPO on verl [1]: avg is printed as 0.349")
