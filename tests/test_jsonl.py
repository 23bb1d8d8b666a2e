import gzip
import json
import stat

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sleuth.errors import UserError
from sleuth.jsonl import read_jsonl, write_jsonl

ROWS = [{"id": "1", "text": "Beyoncé — São Paulo"}, {"id": "2", "text": "線\u2028"}]
ENDINGS = ["", ".gz", ".zst"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_come_back_with_line_numbers(tmp_path, ending):
    path = tmp_path / f"rows.jsonl{ending}"
    write_jsonl(path, ROWS)
    assert list(read_jsonl(path)) == [(1, ROWS[0]), (2, ROWS[1])]


def test_text_is_written_as_utf8_and_not_escaped(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, ROWS)
    assert "Beyoncé — São Paulo".encode() in path.read_bytes()
    assert b"\\u" not in path.read_bytes()


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_data_is_really_compressed(tmp_path, ending):
    path = tmp_path / f"rows.jsonl{ending}"
    write_jsonl(path, [{"text": "a" * 1000}] * 1000)
    assert path.stat().st_size < 50_000
    with pytest.raises((UnicodeDecodeError, json.JSONDecodeError)):
        json.loads(path.read_bytes().decode())


def test_blank_lines_are_skipped_but_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('\n{"a": 1}\n  \n{"a": 2}')
    assert list(read_jsonl(path)) == [(2, {"a": 1}), (4, {"a": 2})]


def test_a_byte_order_mark_is_dropped(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert list(read_jsonl(path)) == [(1, {"a": 1})]


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "x\u2028y\u0085z"}\n', encoding="utf-8")
    assert list(read_jsonl(path)) == [(1, {"a": "x\u2028y\u0085z"})]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", r"line 2: not JSON \(Expecting property name enclosed in double quotes at character \d\);"),
        (b"[1]", "line 2: a JSON array"),
        (b"null", "line 2: a JSON null"),
        (b"true", "line 2: a JSON boolean"),
        (b'{"a": "\xff"}', "line 2: not UTF-8"),
        (b'{"a": ' + b"9" * 5000 + b"}", "line 2: not JSON"),
        (b"[" * 200_000, "line 2: not JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, says):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    with pytest.raises(UserError, match=says) as error:
        list(read_jsonl(path))
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        list(read_jsonl(tmp_path / "none.jsonl.gz"))
    with pytest.raises(UserError, match="folder"):
        list(read_jsonl(tmp_path))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("keep", [0.3, 0.99])
def test_cut_off_compressed_data_is_an_error_and_not_a_short_file(tmp_path, ending, keep):
    path = tmp_path / f"rows.jsonl{ending}"
    write_jsonl(path, [{"n": n, "h": n * 2654435761 % 2**32} for n in range(5000)])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(UserError, match="damaged or cut off"):
        list(read_jsonl(path))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_file_that_only_claims_to_be_compressed_is_an_error(tmp_path, ending):
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_text('{"a": 1}\n')
    with pytest.raises(UserError, match="damaged"):
        list(read_jsonl(path))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".zst", zstandard.compress)])
def test_members_one_after_another_are_all_read(tmp_path, ending, pack):
    path = tmp_path / f"rows.jsonl{ending}"
    path.write_bytes(pack(b'{"a": 1}\n{"a"') + pack(b": 2}\n"))
    assert [row for _, row in read_jsonl(path)] == [{"a": 1}, {"a": 2}]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "rows.jsonl.zst"
    write_jsonl(path, ROWS)

    def broken():
        yield {"id": "new"}
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_jsonl(path, broken())
    assert [row for _, row in read_jsonl(path)] == ROWS
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl.zst"]


def test_a_written_file_has_ordinary_permissions(tmp_path):
    path, plain = tmp_path / "rows.jsonl", tmp_path / "plain"
    write_jsonl(path, ROWS)
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_lone_surrogates_become_replacement_characters(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"a\udc80": "x\ud800y"}])
    assert list(read_jsonl(path)) == [(1, {"a\ufffd": "x\ufffdy"})]


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.floats(allow_nan=False) | st.none())))
def test_any_rows_round_trip_through_zst(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl.zst"
    write_jsonl(path, rows)
    assert [row for _, row in read_jsonl(path)] == rows


def test_numpy_values_are_written_as_numbers_and_lists(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"a": np.float32(0.5), "b": np.int64(3), "c": np.array(["x", "y"])}])
    assert list(read_jsonl(path)) == [(1, {"a": 0.5, "b": 3, "c": ["x", "y"]})]
    with pytest.raises(TypeError, match="a set can't be written"):
        write_jsonl(path, [{"a": {1}}])
