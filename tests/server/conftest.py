"""One server of text and one of speech for all tests that need a real engine."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.folders import text_folder, whisper_folder
from tests.server.live import ENGINE, Live, live
from tests.test_mllama import written

GENERATION = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_length": 24}


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(text_folder(tmp_path_factory.mktemp("bart"), GENERATION)) as served:
        yield served


TEMPLATE = (
    "<s>{% for message in messages %}{{ message.role[0] }}:{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{% if part.type == 'image' %}<|image|>{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}{% endif %};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)
LIMITS: dict[str, Any] = {"allowed_media_domains": ("localhost",), "limit_mm_per_prompt": {"image": 2}}


@pytest.fixture(scope="session")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = written(tmp_path_factory.mktemp("mllama"))
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    with live(folder, ENGINE | LIMITS) as served:
        yield served


@pytest.fixture(scope="session")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(whisper_folder(tmp_path_factory.mktemp("whisper"), seed=0)) as served:
        yield served
