"""A retriever that can't be built of what was given: one line, before a world is made or a folder begun."""

import pytest

from sleuth.cli import run


@pytest.fixture
def sleuth(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("BRAVE_API_KEY", "SERPER_API_KEY", "MY_KEY"):
        monkeypatch.delenv(variable, raising=False)

    def command(*arguments):
        code = run([str(a) for a in arguments])
        return code, capsys.readouterr().err

    return command


URL = "retriever.kind=http needs the address of a server, such as retriever.settings.url=http://127.0.0.1:8000"


@pytest.mark.parametrize("schedule", ["rl", "search_e1"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["retriever.kind=brave"], "retriever.kind=brave needs a key: set the environment variable BRAVE_API_KEY"),
        (["retriever.kind=serper"], "retriever.kind=serper needs a key: set the environment variable SERPER_API_KEY"),
        (["retriever.kind=serper", "retriever.settings.key_variable=MY_KEY"], "set the environment variable MY_KEY"),
        (["retriever.kind=serper", "retriever.settings.url=nowhere"], "must be the address of a server"),
        (["retriever.kind=http"], URL),
        (["retriever.kind=http", "retriever.settings.url="], URL),
        (["retriever.kind=http", "retriever.settings.url=localhost:8000"], "must be the address of a server"),
        (["retriever.kind=searx"], "retriever.kind='searx' is not known"),
    ],
)
def test_a_start_is_refused_before_anything_is_made(sleuth, tmp_path, schedule, settings, says):
    code, said = sleuth("train", "laptop", f"schedule={schedule}", *settings)
    assert code == 2
    assert says in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["", " \n"])
def test_an_empty_key_is_none(sleuth, monkeypatch, key):
    monkeypatch.setenv("BRAVE_API_KEY", key)
    code, said = sleuth("train", "laptop", "retriever.kind=brave")
    assert code == 2
    assert "BRAVE_API_KEY" in said


def test_a_server_that_is_not_there_is_said(sleuth):
    worlds = [f"world.{part}={{worlds: 1, questions: 4}}" for part in ("train", "dev", "test")]
    settings = ["retriever.settings.url=http://127.0.0.1:9", "retriever.settings.attempts=1"]
    code, said = sleuth("train", "laptop", "retriever.kind=http", *settings, *worlds)
    assert code == 2
    assert "no search engine answers there" in said.splitlines()[-1]
    assert "sleuth serve DIR" in said
