"""Chats about images by the official client: URLs of both kinds, what is refused, and who waits for a slow host."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from openai import BadRequestError, NotFoundError

from tests.folders import _letters as letters
from tests.server.asgi import acall, request
from tests.server.canned import serving
from tests.server.conftest import LIMITS, TEMPLATE
from tests.server.fakes import FakeLLM, app
from tests.server.live import MODEL, Live
from tests.test_mllama import IMAGE, picture, tokenizer
from transduce import SamplingParams

PATH = "/v1/chat/completions"


def encoded(width: int, height: int) -> bytes:
    file = BytesIO()
    picture(width, height).save(file, "PNG")
    return file.getvalue()


def data(content: bytes) -> str:
    return f"data:image/png;base64,{b64encode(content).decode()}"


def linked(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*parts]}


@pytest.fixture(scope="module")
def gallery() -> Iterator[str]:
    """The address of a server of images, by a name that is not public."""
    server = FastAPI()

    @server.get("/{width}x{height}.png")
    async def image(width: int, height: int) -> Response:
        return Response(encoded(width, height), media_type="image/png")

    with serving(server) as address:
        yield address.replace("127.0.0.1", "localhost")


def chats(first: str, second: str) -> list[Any]:
    return [
        user(linked(first, detail="low"), said("who?")),
        {"role": "assistant", "content": "me"},
        user(said("and "), linked(second), said("?")),
    ]


RENDERED = f"<s>u:{IMAGE}who?;a:me;u:and {IMAGE}?;a:"


def test_images_stand_where_the_messages_have_them(seeing: Live, gallery: str) -> None:
    messages = chats(data(encoded(9, 8)), f"{gallery}/40x9.png")
    asked: dict[str, Any] = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0.0}
    made = seeing.openai.chat.completions.create(**asked)
    ids = tokenizer()(RENDERED, add_special_tokens=False)["input_ids"]
    prompt = {"prompt_token_ids": ids, "multi_modal_data": {"image": [picture(9, 8), picture(40, 9)]}}
    (output,) = seeing.offline.generate(prompt, SamplingParams(max_tokens=8, temperature=0.0))
    answer = made.choices[0].message.content
    assert answer == output.outputs[0].text != ""
    usage = seeing.http.post(PATH, json=asked).json()["usage"]
    assert usage["prompt_tokens_details"]["encoder_tokens"] == output.encoder_rows > 0
    assert usage["prompt_tokens"] == output.encoder_rows + len(ids)
    chunks = seeing.openai.chat.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer


def test_the_offline_chat_says_the_same(seeing: Live, gallery: str) -> None:
    first, second = data(encoded(9, 8)), f"{gallery}/40x9.png"
    params = SamplingParams(max_tokens=8, temperature=0.0)
    whole = chats(first, second)
    here = [{**whole[0], "content": [{"type": "image", "image": picture(9, 8)}, said("who?")]}, *whole[1:]]
    text = [{"role": "user", "content": "hi"}]
    outputs = seeing.offline.chat([whole, text, [user(linked("ftp://x"))], here, 5], params)
    expected = seeing.http.post(PATH, json={"messages": whole, "max_tokens": 8, "temperature": 0.0}).json()
    assert [output.outputs[0].text for output in (outputs[0], outputs[3])] == [
        expected["choices"][0]["message"]["content"]
    ] * 2
    assert outputs[1].outputs[0].text == seeing.offline.chat(text, params)[0].outputs[0].text
    assert "messages[0].content[0].image_url: 'ftp://x' is no" in str(outputs[2].error)
    assert "give a list of messages" in str(outputs[4].error)


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([said(f"{IMAGE}what?")], "the prompt has 1 image tokens and 0 images"),
        ([linked(data(encoded(8, 8)))] * 3, "image: 3 in one prompt, and at most 2 may be"),
        (
            [said("a"), linked("http://127.0.0.1:1/x.png")],
            r"messages\[0\].content\[1\].image_url: .*'127.0.0.1' is not",
        ),
        ([linked("file:///etc/passwd")], "file:// URLs are not read here"),
        ([linked(data(encoded(8, 8))), linked(data(b"GIF89a"))], "image 2 of 2: "),
    ],
)
def test_what_cannot_be_seen_is_the_requests_fault(parts: list[Any], match: str, seeing: Live) -> None:
    with pytest.raises(BadRequestError, match=match) as refused:
        seeing.openai.chat.completions.create(model=MODEL, messages=[user(*parts)])  # type: ignore[list-item]
    assert refused.value.param == "messages"


def test_a_model_that_sees_says_so(seeing: Live, text: Live) -> None:
    (model,) = seeing.http.get("/v1/models").json()["data"]
    assert (model["tasks"], model["input_modalities"]) == (["generate"], ["text", "image"])
    with pytest.raises(NotFoundError, match="takes images beside text; use /v1/chat/completions"):
        seeing.openai.completions.create(model=MODEL, prompt="a")
    with pytest.raises(
        BadRequestError, match=r"messages\[0\].content\[0\].image_url: this model takes text, no images"
    ):
        text.openai.chat.completions.create(model=MODEL, messages=[user(linked("http://localhost/"))])  # type: ignore[list-item]


def test_a_slow_host_holds_up_its_own_request_until_the_client_leaves() -> None:
    llm = FakeLLM(media="image")
    llm.config = llm.frontend.config = replace(llm.config, **LIMITS)
    llm.frontend.processor.tokenizer = letters()
    llm.frontend.processor.tokenizer.chat_template = TEMPLATE

    async def run() -> None:
        asked, hung_up = asyncio.Event(), asyncio.Event()

        async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await reader.read()
            hung_up.set()
            writer.close()

        async with await asyncio.start_server(never, "127.0.0.1", 0) as host:
            url = f"http://localhost:{host.sockets[0].getsockname()[1]}/x.png"
            served = app(llm)
            client, headers = request(served, {"messages": [user(linked(url))]})
            running = asyncio.create_task(client.run("POST", PATH, headers))
            await asked.wait()
            other = await acall(served, "POST", PATH, {"messages": [{"role": "user", "content": "a"}]})
            assert other.status == 200
            client.leave()
            await asyncio.wait_for(hung_up.wait(), 30)
            await asyncio.wait([running])

    asyncio.run(run())
    assert len(llm.asked) == 1


def test_a_local_image_is_read_where_its_folder_is_allowed_and_its_answer_parsed(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(encoded(8, 8))
    llm = FakeLLM(media="image")
    llm.config = llm.frontend.config = replace(llm.config, allowed_local_media_path=str(tmp_path))
    llm.frontend.processor.interleaved = False
    llm.frontend.processor.parsed = lambda start, answer, text, size: {"of": [text, *size]}
    body = {"messages": [user(linked(f"file://{tmp_path}/x.png"), said("<OCR>"))]}
    (choice,) = asyncio.run(acall(app(llm), "POST", PATH, body)).json["choices"]
    assert choice["message"]["parsed"] == {"of": ["x y", 8, 8]}
    source = {"multi_modal_data": {"image": encoded(8, 8)}, "prompt": "<OCR>"}
    assert llm.asked[0]["prompt"] == {"encoder_prompt": source, "decoder_prompt": None}
