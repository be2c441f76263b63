"""One server of text and one of speech for all tests that need a real engine."""

from collections.abc import Iterator

import pytest

from tests.folders import text_folder, whisper_folder
from tests.server.live import Live, live

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 24}


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(text_folder(tmp_path_factory.mktemp("bart"), GENERATION)) as served:
        yield served


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0)) as served:
        yield served
