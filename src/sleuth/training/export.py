"""A run's result as an ordinary model folder: whole weights, tokenizer, and a card that says what they are worth."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sleuth.assembly import model_source
from sleuth.errors import UserError
from sleuth.models import load_model, load_tokenizer
from sleuth.recipes.schema import Recipe
from sleuth.training.model_card import model_card

RECIPE = "recipe.yaml"
_ADAPTER = "adapter_config.json"


def export(checkpoint: Path, recipe: Recipe, run: Path, output: Path, *, dtype: str = "auto") -> Path:
    """Write a checkpoint's model to ``output``, a folder that appears when it is whole.

    LoRA adapters are merged into the model that they were trained on, in 32 bits. ``recipe.yaml`` is laid beside the
    weights, so that ``sleuth ask`` and ``sleuth eval`` talk to the folder as in training.

    Args:
        checkpoint: of the run ``run``, whose recipe is ``recipe``.
        dtype: of the written weights; ``auto``: as in training.

    Raises:
        UserError: weights that can't be read, or an output folder that isn't empty.
    """
    if output.exists() and any(output.iterdir()):
        raise UserError(f"{output} is not empty; choose another -o folder")
    output.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    try:
        model = whole_model(checkpoint, recipe)
        if dtype != "auto":
            import torch

            model = model.to(getattr(torch, dtype))
        model.save_pretrained(scratch)
        load_tokenizer(checkpoint).save_pretrained(scratch)
        shutil.copyfile(run / RECIPE, scratch / RECIPE)
        (scratch / "README.md").write_text(export_card(checkpoint, recipe, run), encoding="utf-8")
        scratch.chmod(0o755)
        if output.exists():
            output.rmdir()
        scratch.rename(output)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return output


def whole_model(checkpoint: Path, recipe: Recipe) -> Any:
    """The checkpoint's model without adapters of its own.

    Raises:
        UserError: weights that can't be read.
    """
    if not (checkpoint / _ADAPTER).is_file():
        return load_model(checkpoint, dtype=recipe.model_settings.dtype)
    from peft import PeftModel

    dtype = recipe.model_settings.dtype
    base = load_model(model_source(recipe), dtype="float32")
    merged = PeftModel.from_pretrained(base, str(checkpoint)).merge_and_unload(safe_merge=True)
    if dtype not in ("float32", "auto"):
        import torch

        merged = merged.to(getattr(torch, dtype))
    return merged


def export_card(checkpoint: Path, recipe: Recipe, run: Path) -> str:
    """The run's own card, with scores where this checkpoint has some; what they do not say; how to use the model."""
    card = checkpoint / "README.md"
    if card.is_file():
        text = card.read_text(encoding="utf-8")
    else:
        environment = json.loads((run / "environment.json").read_text(encoding="utf-8"))
        text = model_card(recipe, environment, {}, [])
        text += "\nThis checkpoint was not scored: the run's result is another one.\n"
    lines = [text.rstrip(), "", "## What these scores do not say", ""]
    lines += [f"* {line}" for line in caveats(recipe)]
    turn = min(recipe.limits.max_turn_tokens, recipe.limits.max_tokens)
    lines += [
        "",
        "## Use",
        "",
        "The model writes searches and needs somebody who answers them. With Sleuth, which reads `recipe.yaml` here:",
        "",
        '    sleuth ask FOLDER --corpus passages.jsonl "…"',
        "",
        "As weights alone, in vLLM; searches and passages are then the caller's business "
        f"(protocol `{recipe.protocol.kind}`, {turn} tokens a turn, temperature {recipe.evaluation.temperature:g}):",
        "",
        "    vllm serve FOLDER",
        "",
    ]
    return "\n".join(lines)


def caveats(recipe: Recipe) -> list[str]:
    """What a score of this recipe may not be compared with."""
    lines = []
    if not recipe.data.comparable:
        lines.append(
            "Training saw rows of development splits, so that no figure here compares with a published one of the same "
            "benchmark."
        )
    if recipe.world is not None:
        lines.append("Questions and passages are HopWorld's, which is made up: nothing here is about real knowledge.")
    else:
        lines.append(
            "They depend on corpus and retriever: figures with another corpus, another index or another number of "
            f"passages a search (here {recipe.limits.k}) are of another task."
        )
    grader = recipe.reward if isinstance(recipe.reward, str) else recipe.reward.grader
    lines.append(f"They are by the grader `{grader}`; other graders accept other answers.")
    lines.append("They are of one seed; a second run with another seed differs.")
    return lines


def push(folder: Path, name: str, *, private: bool = False, say: Callable[[str], None] = lambda line: None) -> str:
    """Upload an exported folder to the model hub; returns its address.

    The hub's address and key are those of ``huggingface_hub``: ``HF_ENDPOINT``, ``HF_TOKEN`` or ``hf auth login``.

    Raises:
        UserError: no key, a name that isn't USER/NAME, a hub that refuses, or one that can't be reached.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"--push {name}: write USER/NAME")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    # What the HTTP library raises that the hub's client is built on, which is not the same in all its versions.
    no_answer: type[Exception] = HfHubHTTPError.__bases__[0]
    api = HfApi()
    whole = f"the folder {folder} is whole; `hf upload {name} {folder}` sends it again"
    try:
        say(f"uploading {folder} to {name}")
        api.create_repo(name, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=name, folder_path=folder, commit_message="Trained with Sleuth"))
    except LocalTokenNotFoundError:
        raise UserError("--push needs a key: set HF_TOKEN, or log in with `hf auth login`") from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        if status in (401, 403):
            raise UserError(
                f"the hub refuses to write {name}: check HF_TOKEN and that it may write there; {whole}"
            ) from None
        raise UserError(f"the hub refuses {name}: {_in_short(error)}; {whole}") from None
    except (OSError, no_answer) as error:
        raise UserError(f"the hub can't be reached ({type(error).__name__}); {whole}") from None
    except RuntimeError as error:  # of an upload's thread, and of hf_xet
        raise UserError(f"the upload broke off: {_in_short(error.__cause__ or error)}; {whole}") from None


def _in_short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
