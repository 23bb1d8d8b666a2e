import gzip
import json

import pytest

from sleuth.data.rows import read_rows
from sleuth.errors import UserError
from sleuth.jsonl import write_jsonl

ROWS = [{"id": "1", "question": "Beyoncé?"}, {"id": "2", "question": "北京?"}]


def fields(source):
    return [row.fields for row in read_rows(source)]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"])
def test_lines(tmp_path, ending):
    path = tmp_path / f"dev{ending}"
    write_jsonl(path, ROWS)
    rows = list(read_rows(path))
    assert [row.fields for row in rows] == ROWS
    assert rows[1].place == f"{path}, line 2"


@pytest.mark.parametrize(
    "text",
    [json.dumps(ROWS), json.dumps({"version": 1, "data": ROWS}), "\n".join(map(json.dumps, ROWS))],
    ids=["list", "data", "lines after all"],
)
def test_json_file(tmp_path, text):
    path = tmp_path / "dev.json"
    path.write_text(text)
    assert fields(path) == ROWS
    with gzip.open(tmp_path / "dev.json.gz", "wt") as file:
        file.write(json.dumps(ROWS))
    assert fields(tmp_path / "dev.json.gz") == ROWS


def test_parquet_with_dates_and_nested_columns(tmp_path):
    import datetime

    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"id": "1", "when": datetime.date(2020, 1, 2), "box": {"target": ["a", "b"]}}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "dev.parquet")
    (row,) = read_rows(tmp_path / "dev.parquet")
    assert row.fields == {"id": "1", "when": "2020-01-02", "box": {"target": ["a", "b"]}}
    assert row.place == f"{tmp_path / 'dev.parquet'}, row 1"


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    return datasets


def test_saved_datasets_folder(tmp_path, datasets):
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    assert fields(tmp_path / "saved") == ROWS


def test_split_of_a_datasets_folder_is_named(tmp_path, datasets):
    splits = {"train": datasets.Dataset.from_list(ROWS), "dev": datasets.Dataset.from_list(ROWS[:1])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    assert fields(f"{tmp_path / 'saved'}@dev") == ROWS[:1]
    with pytest.raises(UserError, match="several splits; add @train or @dev to the name"):
        fields(tmp_path / "saved")
    with pytest.raises(UserError, match='no split "test"'):
        fields(f"{tmp_path / 'saved'}@test")


def test_folder_of_data_files(tmp_path, datasets):
    folder = tmp_path / "set"
    write_jsonl(folder / "train.jsonl", ROWS)
    assert fields(folder) == ROWS


def test_hub_name_with_config_and_split_reaches_the_library(monkeypatch, datasets):
    asked = []

    def load_dataset(name, config):
        asked.append((name, config))
        return datasets.DatasetDict({"validation": datasets.Dataset.from_list(ROWS)})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert fields("hotpotqa/hotpot_qa:distractor@validation") == ROWS
    assert fields("nq_open") == ROWS
    assert asked == [("hotpotqa/hotpot_qa", "distractor"), ("nq_open", None)]


def test_what_the_library_cannot_load_is_one_clear_line(monkeypatch, datasets):
    def load_dataset(name, config):
        raise FileNotFoundError("Couldn't find it\nand much more")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    said = r"^owner/name \(no such file or folder here\): the datasets library can't load it \(Couldn't find it\)$"
    with pytest.raises(UserError, match=said):
        fields("owner/name")


@pytest.mark.parametrize("name", ["nowhere/dev.jsonl", "dev.parquet", "/nowhere/at/all", "a b"])
def test_missing_file_is_never_taken_for_a_hub_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^{name}: no such file or folder"):
        fields(name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dev.xlsx", b"PK", "unknown kind of file"),
        ("dev.json", b"[1, 2", "not JSON"),
        ("dev.json", b"[1, 2]", "row 1: not an object but int"),
        ("dev.json", b"3", "neither a list of rows"),
        ("dev.json", b"\xff\xfe", "not UTF-8"),
        ("dev.json.gz", b"not gzip", "can't be read"),
        ("dev.parquet", b"PAR1 not really", "not a parquet file or damaged"),
        ("dev.jsonl", b'{"id": "1"}\n{"id": \n', "line 2: not JSON"),
    ],
)
def test_damaged_file_is_one_clear_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        fields(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
