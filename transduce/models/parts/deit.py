"""DeiT: a ViT with one more row in front, for what a teacher said of the image."""

from dataclasses import dataclass

from transduce.models.parts.vit import ViTConfig, encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class DeiTConfig(ViTConfig):
    """The encoder's part of config.json."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The rows in front of the patches."""
        return ("cls_token", "distillation_token")


ENCODER = encoder(DeiTConfig)
