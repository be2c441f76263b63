"""What becomes of a group's hypotheses: candidates in, surviving continuations out.

Owns when a hypothesis ends. Knows no pages and no runner; a Search holds no sequence, only what it must remember.
"""

from transduce.core.request import Request
from transduce.core.search.base import Search
from transduce.core.search.beam import Beam
from transduce.core.search.sample import Sample


def make(request: Request) -> Search:
    """The search a request asks for."""
    return Sample(request) if request.beams is None else Beam(request, request.beams)
