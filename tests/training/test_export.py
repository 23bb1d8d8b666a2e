"""The result of a run as an ordinary model folder."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sleuth.cli import run as sleuth
from sleuth.errors import UserError
from sleuth.recipes.loader import dump_recipe
from sleuth.training.export import caveats, export, push
from sleuth.training.run_folder import RunFolder

from .hub import Hub


@pytest.fixture
def exported(built, small, tmp_path):
    """``exported(*settings)`` → (the trained model, the folder written from its checkpoint)."""

    def make(*settings):
        trainer, _ = built(*settings, "trainer.steps=1", "trainer.lr=0.01")
        trainer.train()
        recipe, run = small(*settings), RunFolder(tmp_path / "run")
        run.environment.write_text("{}")
        run.write_recipe(dump_recipe(recipe))
        return trainer.model, export(run.checkpoint(1), recipe, run.path, tmp_path / "out")

    return make


@pytest.mark.parametrize("settings", [[], ["model_settings.lora=4"]], ids=["all weights", "LoRA, merged"])
def test_the_folder_holds_the_trained_model_whole(exported, settings):
    trained, folder = exported(*settings)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert not (folder / "adapter_config.json").exists()
    ids = torch.arange(5, 17)[None]
    with torch.no_grad():
        expected = trained.eval()(input_ids=ids).logits
        torch.testing.assert_close(loaded(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-4)
    assert AutoTokenizer.from_pretrained(folder)("who")
    card = (folder / "README.md").read_text()
    assert "HopWorld" in card
    assert "vllm serve" in card
    assert (folder / "recipe.yaml").is_file()


def test_nothing_is_written_over(exported, small, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UserError, match="not empty"):
        exported()


def test_rows_of_development_splits_are_said(small):
    assert any("development splits" in line for line in caveats(small("data.comparable=false")))


def test_a_name_without_an_owner_is_refused(tmp_path):
    with pytest.raises(UserError, match="USER/NAME"):
        push(tmp_path, "model")


@pytest.fixture
def hub(monkeypatch):
    """A stand-in hub that this process takes for the hub."""
    from huggingface_hub import constants

    with Hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)  # HF_ENDPOINT, which is read at import
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the stand-in speaks the older protocol
        monkeypatch.setenv("HF_TOKEN", hub.key)
        yield hub


@pytest.fixture
def model_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "README.md").write_text("---\ntags: [sleuth]\n---\n# A searcher\n")
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 9)
    (folder / "config.json").write_text("{}")
    return folder


def test_every_file_of_the_folder_arrives_whole_in_one_commit(hub, model_folder):
    said = []
    address = push(model_folder, "me/searcher", private=True, say=said.append)
    assert hub.files == {file.name: file.read_bytes() for file in model_folder.iterdir()}
    assert (hub.created, hub.commits) == ([("me", "searcher", "private")], ["Trained with Sleuth"])
    assert address.startswith(f"{hub.url}/me/searcher")
    assert "uploading" in said[0]


def test_a_second_upload_replaces_the_files_of_the_first(hub, model_folder):
    push(model_folder, "me/searcher")
    (model_folder / "config.json").write_text('{"changed": true}')
    push(model_folder, "me/searcher")
    assert hub.files["config.json"] == b'{"changed": true}'
    assert len(hub.commits) == 2


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"create": 403}, "HF_TOKEN"),
        ({"commit": 413}, "refuses me/searcher"),
        ({"put": 400}, "broke off"),
    ],
)
def test_a_hub_that_refuses_is_a_line_that_says_how_to_go_on(hub, model_folder, trouble, said):
    hub.refuse = trouble
    with pytest.raises(UserError, match=said) as caught:
        push(model_folder, "me/searcher")
    assert f"hf upload me/searcher {model_folder}" in str(caught.value)
    assert not hub.commits


def test_a_wrong_key_and_a_hub_that_is_not_there_are_lines(hub, model_folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UserError, match="HF_TOKEN"):
        push(model_folder, "me/searcher")
    hub.close()
    with pytest.raises(UserError, match="can't be reached"):
        push(model_folder, "me/searcher")


def test_the_command_exports_and_uploads(hub, built, small, tmp_path, capsys):
    trainer, _ = built("trainer.steps=1")
    trainer.train()
    run = RunFolder(tmp_path / "run")
    run.environment.write_text("{}")
    run.write_recipe(dump_recipe(small("trainer.steps=1")))
    assert sleuth(["export", str(run.path), "--push", "me/searcher"]) == 0, capsys.readouterr().err
    folder = run.path / "export"
    assert hub.files == {file.name: file.read_bytes() for file in folder.iterdir()}
    assert {"model.safetensors", "README.md", "recipe.yaml", "tokenizer.json"} <= hub.files.keys()
    assert f"{hub.url}/me/searcher" in capsys.readouterr().out
