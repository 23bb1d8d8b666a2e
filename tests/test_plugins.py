import sys

import pytest

from sleuth.errors import UserError
from sleuth.plugins import load_object


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A working directory of its own; modules imported from it and the path entry go away again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_function_of_an_installed_module():
    assert load_object("sleuth.plugins:load_object") is load_object


def test_attribute_of_an_attribute():
    assert load_object("sleuth.types:Trajectory.failed").__doc__


def test_module_in_the_working_directory_and_its_neighbour(own_folder):
    (own_folder / "neighbour_of_mine.py").write_text("bonus = 0.25\n")
    (own_folder / "reward_of_mine.py").write_text(
        "def brevity(trajectory):\n    import neighbour_of_mine\n    return neighbour_of_mine.bonus\n"
    )
    assert load_object("reward_of_mine:brevity")(None) == 0.25


@pytest.mark.parametrize(
    "name", ["brevity", "module:", ":function", "a b:c", "module:function()", "path/file.py:f", ""]
)
def test_other_forms_of_name_are_refused(name):
    with pytest.raises(UserError, match="not a name of the form module:function"):
        load_object(name)


def test_missing_module_is_named_with_the_folder(own_folder):
    with pytest.raises(UserError, match=f"no module nowhere_to_be_found in {own_folder}"):
        load_object("nowhere_to_be_found:f")
    with pytest.raises(UserError, match=r"no module sleuth\.nowhere in"):
        load_object("sleuth.nowhere:f")


def test_missing_function_is_named_with_the_file(own_folder):
    (own_folder / "empty_of_mine.py").write_text("")
    with pytest.raises(UserError, match=r"empty_of_mine\.py has no brevity"):
        load_object("empty_of_mine:brevity")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n1 / 0\n", r"raised ZeroDivisionError: division by zero \(.*raising_of_mine\.py:2\)"),
        ("def f(:\n", r"raised SyntaxError: .* \(.*raising_of_mine\.py:1\)"),
        ("import not_installed_here\n", r"imports not_installed_here, which is not installed"),
        ("raise SystemExit(3)\n", r"raised SystemExit: 3"),
    ],
)
def test_module_that_raises_on_import_says_where(own_folder, source, message):
    (own_folder / "raising_of_mine.py").write_text(source)
    with pytest.raises(UserError, match=message) as caught:
        load_object("raising_of_mine:f")
    assert "\n" not in str(caught.value)


def test_own_file_hidden_by_an_installed_module_is_refused(own_folder):
    (own_folder / "json.py").write_text("def f(trajectory): return 1.0\n")
    with pytest.raises(UserError, match=r"json\.py is hidden by another module of that name"):
        load_object("json:f")
