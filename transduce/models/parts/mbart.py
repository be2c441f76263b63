"""mBART's decoder: BART's, with the norms in front and one behind all layers."""

from dataclasses import dataclass
from functools import partial

from transduce.models.config import view
from transduce.models.parts import TextDecoder
from transduce.models.parts.bart import FILE, BartConfig, build
from transduce.stacks.style import Style


@dataclass(frozen=True, slots=True, kw_only=True)
class MBartConfig(BartConfig):
    """The decoder's part of config.json."""

    @property
    def style(self) -> Style:
        """As in TextConfig."""
        return self.decoder_style(pre_norm=True)


DECODER = TextDecoder(partial(view, MBartConfig, file=FILE), build)
