"""Output for people where there is no terminal."""

from sleuth.commands.terminal import console
from sleuth.evaluation.sheet import Sheet


def test_a_pipe_gets_tables_and_lines_whole(capsys):
    header = ["", "n", "searches", "read", "written", "seconds", "no answer", "truncated", "failed", "to come", "cost"]
    rows = [["a-system-with-a-long-name " * 6, *["1,234,567 [0.123, 0.456]"] * (len(header) - 1)]]
    note = "A note of many words. " * 20
    Sheet("What became of the answers", header, rows, notes=(note.strip(),)).print(console())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "truncated" in line] == [" ".join(header).split()]
    assert any(line.count("1,234,567 [0.123, 0.456]") == len(header) - 1 for line in lines)
    assert note.strip() in lines
