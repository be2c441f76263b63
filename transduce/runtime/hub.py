"""From a MODEL argument, a local folder or a hub id, to a folder on this machine.

Owns what is downloaded, and what the user is told when nothing can be. Knows nothing of what the files hold.
"""

from collections.abc import Sequence
from pathlib import Path

from transduce.config import offline
from transduce.errors import CheckpointError

TEXT = ("*.json", "*.txt", "*.model", "*.spm", "*.tiktoken", "*.jinja")
"""Configs, every kind of tokenizer file, and chat templates."""

LONGEST = 255
"""How much of a name a message shows; file systems take no more."""


def locate(model: str, revision: str | None = None, weights: Sequence[str] = (), *, code: bool = False) -> Path:
    """The folder `model` names: a local one as it is, or a snapshot of a hub repository.

    weights: names of weight files, such as "model.safetensors", best first; of a repository the first that is there
    is downloaded, with its shards. code: download Python files as well. Raises CheckpointError.
    """
    folder = _expanded(model)
    if _is_folder(folder):
        return _local(folder, revision)
    if folder.exists():
        raise CheckpointError(f"{model!r} is a file: give the folder that holds it, {str(folder.parent)!r}")
    if _is_path(model):
        raise CheckpointError(
            f"there is no folder {model!r}: check the path (from {str(Path.cwd())!r}), or give a hub id such as "
            "'facebook/bart-base'"
        )
    return _download(model, revision, weights, TEXT + ("*.py",) * code)


def _expanded(model: str) -> Path:
    try:
        return Path(model).expanduser()
    except RuntimeError:  # a home of a user that does not exist
        return Path(model)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # a name too long for the file system, a folder that may not be entered
        shown = str(path)[:LONGEST]
        raise CheckpointError(f"{shown!r}: {error.strerror}; give a folder that can be read, or a hub id") from error


def _local(folder: Path, revision: str | None) -> Path:
    if revision is not None:
        raise CheckpointError(
            f"revision={revision!r}: {str(folder)!r} is a local folder, which has none; leave revision unset"
        )
    return folder


def _is_path(model: str) -> bool:
    """Whether the name can only be meant as a path: a typo in one must not become a question to the hub."""
    return model.startswith((".", "/", "~")) or model.count("/") > 1 or "\\" in model


def _download(model: str, revision: str | None, weights: Sequence[str], text: Sequence[str]) -> Path:
    if not weights:
        return _snapshot(model, revision, text)
    for name in weights:
        patterns = [name, name.replace(".", "-*.", 1)]
        folder = _snapshot(model, revision, [*text, *patterns])
        if any(file for pattern in patterns for file in folder.glob(pattern)):
            break
    return folder


def _snapshot(model: str, revision: str | None, patterns: Sequence[str]) -> Path:
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(
            model,
            revision=revision,
            allow_patterns=list(patterns),
            ignore_patterns=["*/*"],
            local_files_only=offline(),
        )
    except errors.HFValidationError:
        reason = "and it is no hub id either: those read 'organisation/name'"
    except errors.GatedRepoError:
        reason = f"and on the hub it is gated: accept its terms at https://huggingface.co/{model}, then `hf auth login`"
    except errors.RepositoryNotFoundError:
        reason = "nor a model of that name on the hub: check the spelling; if it is private, run `hf auth login`"
    except errors.RevisionNotFoundError:
        reason = f"and on the hub it has no revision {revision!r}: see https://huggingface.co/{model}/tree/main"
    except Exception as error:
        # Whatever else the client raises (sockets, proxies, TLS, a full disk) comes from getting it.
        raise CheckpointError(_unreachable(model, error)) from error
    else:
        return Path(folder)
    raise CheckpointError(f"there is no folder {model!r} here, {reason}")


def _unreachable(model: str, error: Exception) -> str:
    why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if offline():
        why = "HF_HUB_OFFLINE is set and it is not in the cache"
    return (
        f"there is no folder {model!r} here, and it could not be had from the hub ({why}): check the path, or connect "
        f"to the network, or copy https://huggingface.co/{model} here from another machine and give that folder"
    )
