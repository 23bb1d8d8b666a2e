"""Language models by name: from the hub or from a folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sleuth.errors import UserError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

DtypeName = Literal["float32", "bfloat16", "float16", "auto"]
_DTYPES = ("float32", "bfloat16", "float16", "auto")
_HUB_TIMEOUT = 10.0
"""Seconds. transformers itself retries an unreachable hub for three quarters of a minute, file by file."""


def no_loading_bars() -> None:
    """From now on transformers shows no bar over the tensors of a file that is on the disk; downloads keep theirs."""
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    downloads = not are_progress_bars_disabled()
    disable_progress_bar()  # of the hub, too
    if downloads:
        enable_progress_bars()


def load_model(
    name_or_folder: str | os.PathLike[str], *, dtype: DtypeName | torch.dtype = "float32", **settings: Any
) -> PreTrainedModel:
    """A causal language model from the hub (``Qwen/Qwen2.5-3B``) or from a folder that holds one.

    An existing folder wins over a hub name. When the hub can't be reached, a copy in the local cache is used and a
    warning logged.

    Args:
        dtype: of the weights; ``auto`` is what the checkpoint says.
        settings: passed on to transformers' ``from_pretrained`` (``revision``, ``device_map``,
            ``attn_implementation``, ``trust_remote_code``, …).

    Raises:
        UserError: no such folder, no such hub model, hub unreachable and nothing cached, not a causal language model,
            damaged weights, or weights that don't cover the model (transformers would draw the missing ones at random).
    """
    if isinstance(dtype, str) and dtype not in _DTYPES:
        raise UserError(f'dtype "{dtype}" is unknown; use one of {", ".join(_DTYPES)}')
    source, extra = _locate(name_or_folder, settings.get("revision"))
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, output_loading_info=True, **extra, **settings
        )
    except Exception as error:
        raise _as_user_error(error, name_or_folder, "model") from error
    model, info = loaded
    missing = sorted(info["missing_keys"])
    if missing:
        raise UserError(
            f"{name_or_folder}: {len(missing)} weights of the model are missing (first: {missing[0]}); "
            "it is no complete causal language model"
        )
    return model


def load_tokenizer(name_or_folder: str | os.PathLike[str], **settings: Any) -> PreTrainedTokenizerBase:
    """The tokenizer that belongs to :func:`load_model`'s argument.

    A tokenizer without a padding token pads with its end token: masks go by position, so that this is harmless.

    Raises:
        UserError: as :func:`load_model`, and when there is no tokenizer or it has neither padding nor end token.
    """
    source, extra = _locate(name_or_folder, settings.get("revision"))
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **extra, **settings)
    except Exception as error:
        raise _as_user_error(error, name_or_folder, "tokenizer") from error
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise UserError(
                f"{name_or_folder}: the tokenizer has neither a padding nor an end token; set its eos_token"
            )
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _locate(name_or_folder: str | os.PathLike[str], revision: str | None) -> tuple[str, dict[str, Any]]:
    """What to give to ``from_pretrained``: a folder or a hub name that was found, and settings that this needs."""
    name = os.fspath(name_or_folder)
    if not name:
        raise UserError("the model's name is empty; give a folder or a hub name (owner/model)")
    path = Path(name).expanduser()
    if path.is_dir():
        if not any((path / file).is_file() for file in ("config.json", "adapter_config.json")):
            raise UserError(f"{name}: no config.json in this folder; name a folder that save_pretrained wrote")
        return str(path), {"local_files_only": True}
    if path.is_file():
        raise UserError(f"{name} is a file; name the folder that holds the model")
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or "\\" in name:
        raise UserError(f"{name}: no such model folder; check the path, or give a hub name (owner/model)")
    return name, _ask_hub(name, revision)


def _ask_hub(name: str, revision: str | None) -> dict[str, Any]:
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().model_info(name, revision=revision, timeout=_HUB_TIMEOUT)
    except HFValidationError:
        raise UserError(f'"{name}" is neither a folder nor a hub name; a hub name is owner/model') from None
    except GatedRepoError:
        raise UserError(f"{name}: the hub wants you to accept its terms and log in first (hf auth login)") from None
    except RepositoryNotFoundError:
        raise UserError(f"{name}: no such folder, and no such model on the hub; check the spelling") from None
    except RevisionNotFoundError:
        raise UserError(f'{name}: no revision "{revision}" on the hub') from None
    except Exception as error:  # Offline mode, no network, a proxy's answer: all mean that only the cache is left.
        if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
            raise UserError(
                f"{name}: no such folder, the hub can't be reached ({one_line(error)}) and the model isn't cached; "
                "name a model folder or go online"
            ) from None
        log.warning("%s: the hub can't be reached; the cached copy is used", name)
        return {"local_files_only": True}
    return {}


def _as_user_error(error: Exception, name: str | os.PathLike[str], what: str) -> UserError:
    return UserError(f"{os.fspath(name)}: no {what} could be loaded from it ({one_line(error)})")


def one_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".: ") if lines else type(error).__name__
