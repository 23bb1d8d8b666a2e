"""The result of a run as an ordinary model folder."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sleuth.errors import UserError
from sleuth.recipes.loader import dump_recipe
from sleuth.training.export import caveats, export, push
from sleuth.training.run_folder import RunFolder


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
