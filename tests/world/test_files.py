"""A world set on disk: the same bytes every time, splits that share no world, rows that read back."""

import json

import pytest

from sleuth.errors import UserError
from sleuth.retrieval.bm25 import BM25Retriever
from sleuth.retrieval.corpus import read_corpus, split_contents
from sleuth.types import SearchRequest
from sleuth.world.files import SplitSettings, WorldSet, WorldSetFiles, WorldSetSettings, read_world_set, write_world_set

SMALL = WorldSetSettings(
    seed=3,
    train=SplitSettings(worlds=6, questions=40),
    dev=SplitSettings(worlds=2, questions=10),
    test=SplitSettings(worlds=3, questions=15),
)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_same_settings_give_the_same_bytes(tmp_path):
    first, second = write_world_set(SMALL, tmp_path / "a"), write_world_set(SMALL, tmp_path / "b")
    for one, other in zip(vars_of(first), vars_of(second), strict=True):
        assert one.read_bytes() == other.read_bytes()
    other_seed = write_world_set(SMALL.model_copy(update={"seed": 4}), tmp_path / "c")
    assert other_seed.corpus.read_bytes() != first.corpus.read_bytes()
    assert other_seed.train.read_bytes() != first.train.read_bytes()


def vars_of(files):
    return [files.corpus, files.train, files.dev, files.test, files.settings]


def test_splits_have_their_numbers_and_share_no_world(tmp_path):
    files = write_world_set(SMALL, tmp_path)
    worlds = {split: {row["corpus"] for row in rows(getattr(files, split))} for split in ("train", "dev", "test")}
    assert {split: len(rows(getattr(files, split))) for split in worlds} == {"train": 40, "dev": 10, "test": 15}
    assert {split: len(names) for split, names in worlds.items()} == {"train": 6, "dev": 2, "test": 3}
    assert len(set.union(*worlds.values())) == 11
    assert {row["corpus"] for row in rows(files.corpus)} == set.union(*worlds.values())


def test_the_first_rows_cover_all_worlds(tmp_path):
    files = write_world_set(SMALL, tmp_path)
    assert len({row["corpus"] for row in rows(files.train)[:6]}) == 6


def test_the_corpus_reads_back_as_the_worlds_passages(tmp_path):
    corpus = read_corpus(write_world_set(SMALL, tmp_path).corpus)
    worlds = WorldSet(SMALL).worlds
    assert corpus.documents == [document for world in worlds.values() for document in world.documents]
    assert {name: len(members) for name, members in corpus.members().items()} == {
        name: len(world.documents) for name, world in worlds.items()
    }


def test_contents_alone_hold_the_same_passage(tmp_path):
    for row in rows(write_world_set(SMALL, tmp_path).corpus):
        assert split_contents(row["contents"]) == (row["title"], row["text"])


def test_a_written_set_is_drawn_again_from_its_folder(tmp_path):
    write_world_set(SMALL, tmp_path)
    again = read_world_set(tmp_path)
    assert again.settings == SMALL
    assert again.worlds == WorldSet(SMALL).worlds
    assert again.questions("test") == WorldSet(SMALL).questions("test")


def test_more_questions_than_the_worlds_have_is_a_clear_error(tmp_path):
    greedy = SMALL.model_copy(update={"dev": SplitSettings(worlds=1, questions=10**5)})
    with pytest.raises(UserError, match="different questions"):
        write_world_set(greedy, tmp_path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        (b"{", "the file: Invalid JSON"),
        (b"[]", "the file: .*object"),
        (b'{"seed": "x"}', "seed: .*integer"),
        (b'{"world": {"size": 1}}', "world.size: Extra inputs"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_folder_without_proper_settings_is_a_clear_error(tmp_path, content, problem):
    path = WorldSetFiles.in_folder(tmp_path).settings
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^[^\n]*settings\.json: {problem}[^\n]*$"):
        read_world_set(tmp_path)


# The difficulty of the search is a property of the passages, measured with the retriever that the recipes use.


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    files = write_world_set(SMALL, tmp_path_factory.mktemp("set"))
    return BM25Retriever(read_corpus(files.corpus)).search


def hit_rate(search, query_of):
    world_set = WorldSet(SMALL)
    requests, gold = [], []
    for world in world_set.worlds.values():
        for subject, relation in world.facts:
            if relation in world.relations:
                requests.append(SearchRequest(query_of(subject, relation), world.name))
                gold.append(world.passage_of(subject, relation))
    results = search(requests, 3)
    return sum(i in {d.id for d in result.documents} for i, result in zip(gold, results, strict=True)) / len(gold)


def test_relation_and_entity_find_most_facts_but_not_what_changed_often(search):
    assert 0.75 <= hit_rate(search, lambda e, r: f"{e} {r}") <= 0.92
    assert hit_rate(search, lambda e, r: f"{r} of {e}") == hit_rate(search, lambda e, r: f"{e} {r}")


def test_asking_for_today_finds_what_changed(search):
    assert hit_rate(search, lambda e, r: f"{e} {r} today") >= 0.9


def test_entity_or_relation_alone_find_little(search):
    assert hit_rate(search, lambda e, r: e) <= 0.4
    assert hit_rate(search, lambda e, r: r) <= 0.2


def test_the_whole_question_does_not_find_the_last_hop(search):
    bridges = [q for q in WorldSet(SMALL).questions("train") if q.extra["kind"] == "bridge"]
    results = search([SearchRequest(q.question, q.corpus) for q in bridges], 3)
    last = [q.extra["supporting_ids"][-1] for q in bridges]
    assert (
        sum(i in {d.id for d in result.documents} for i, result in zip(last, results, strict=True)) <= len(bridges) / 5
    )
