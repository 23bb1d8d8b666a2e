from io import StringIO

from rich.console import Console

from sleuth.evaluation.sheet import Sheet

SHEET = Sheet(
    "EM & more", ["set", "n", "EM"], [["nq_open", "1,000", "0.5 – 50 %"], ["<b>|x", "2", "1.0"]], notes=["a note."]
)


def test_markdown_keeps_its_columns():
    lines = SHEET.markdown().splitlines()
    assert lines[0] == "EM & more"
    assert lines[2:4] == ["| set | n | EM |", "| --- | --: | --: |"]
    assert lines[5] == r"| <b>\|x | 2 | 1.0 |"
    assert lines[-1] == "a note."


def test_latex_escapes_what_it_would_read():
    text = SHEET.latex()
    assert r"\caption{EM \& more. a note}" in text
    assert r"nq\_open & 1,000 & 0.5 -- 50 \% \\" in text
    assert r"\begin{tabular}{lrr}" in text


def test_html_holds_no_markup_of_others():
    text = SHEET.html()
    assert "&lt;b&gt;|x" in text
    assert "<b>" not in text


def test_the_terminal_shows_every_figure_even_where_it_is_narrow():
    out = StringIO()
    Console(file=out, width=28).print(SHEET.rich())
    assert "nq_open" in out.getvalue()
    assert "…" not in out.getvalue()


def test_a_narrow_terminal_cuts_neither_title_nor_notes():
    title = "agent-greedy: greedy; grader squad; 95 % bootstrap intervals"
    out = StringIO()
    Sheet(title, ["set", "n"], [["nq", "3"]], notes=["a note that is longer than the table is wide"]).print(
        Console(file=out, width=24, markup=False)
    )
    text = " ".join(out.getvalue().split())
    assert title in text
    assert "a note that is longer than the table is wide" in text
