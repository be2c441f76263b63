"""Florence-2's inputs and answers: an image by the checkpoint's preprocessor, a task spelt out, places read from text.

Tasks and places are transformers' own processor's. Knows no file format.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import CLIPImageProcessorPil
from transformers import Florence2Processor as Tasks
from transformers.image_processing_backends import PilBackend

from transduce.core.request import EncoderItem
from transduce.errors import CheckpointError, MediaError, RequestError
from transduce.media import image
from transduce.models.config import inherited, read_json, start_token
from transduce.models.florence2 import older
from transduce.models.florence2.config import Florence2Config
from transduce.models.text import TextProcessor
from transduce.models.vision import PROCESSOR, pil_preprocessor


class Florence2Processor(TextProcessor):
    """One image for the encoder, and the prompt beside it.

    tasks: None without a tokenizer.
    """

    media = "image"
    prompted = True

    def __init__(
        self, tokenizer: Any, start: int | None, pixels: PilBackend, tasks: Tasks | None, config: Florence2Config
    ) -> None:
        super().__init__(tokenizer, start)
        self._pixels = pixels
        self._tasks = tasks
        self._config = config

    def source_ids(self, text: str) -> list[int]:
        """Of a text, or of the question that a task such as "<CAPTION>" stands for, between BOS and EOS."""
        tokenizer = self._tokenizer(text)
        assert self._tasks is not None, "there is a tokenizer"
        try:
            _, (question,), *_ = self._tasks.prepare_inputs_layout(text=[text])
        except ValueError as error:
            raise RequestError(f"prompt {text!r}: {error}") from error
        whole = tokenizer.bos_token + question + tokenizer.eos_token
        ids: list[int] = tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def target_ids(self, text: str) -> list[int]:
        raise RequestError(f"this model's answers are not scored; leave out the target {text!r}")

    def item(self, source: object) -> EncoderItem:
        """An image in RGB, as the checkpoint's preprocessor makes it. MediaError where it becomes too large."""
        picture = image.load(cast(image.Image, source))
        (pixels,) = self._pixels(images=picture, return_tensors="np")["pixel_values"]
        rows = self._config.vision.rows(*pixels.shape[1:])
        if rows is None:
            raise MediaError(
                f"image of {picture.width} x {picture.height} pixels becomes {pixels.shape}, and the model has "
                f"{self._config.vision.max_position_embeddings} positions down and across; scale it"
            )
        return EncoderItem(np.asarray(pixels, np.float32), rows=rows, cost=rows)

    def parsed(
        self, start: Sequence[int], answer: Sequence[int], text: str | None, size: tuple[int, int] | None
    ) -> object:
        """By the task in the text: {"<OD>": {"bboxes": [[x, y, x, y]], "labels": […]}}, in pixels of an image."""
        if self._tasks is None or text is None or size is None:
            return None
        task = next((task for task in self._tasks.tasks_answer_post_processing_type if task in text), None)
        if task is None:
            return None
        said = self.tokenizer.decode(answer, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        made: dict[str, object] = self._tasks.post_process_generation(text=said, task=task, image_size=size)
        return made

    def updated(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return inherited(fields, "text_config")


def processor(
    folder: Path, config: Florence2Config, generation: Mapping[str, Any], tokenizer: Any
) -> Florence2Processor:
    """The processor of a checkpoint, as Family asks for it."""
    tasks = None if tokenizer is None else _tasks(folder, tokenizer)
    start = start_token(inherited(generation, "text_config"))
    return Florence2Processor(tokenizer, start, pil_preprocessor(folder), tasks, config)


def _tasks(folder: Path, tokenizer: Any) -> Tasks:
    """transformers' processor, of which only what it knows of texts is used."""
    older.complete(tokenizer)
    whole = read_json(folder / PROCESSOR) if (folder / PROCESSOR).is_file() else {}
    try:
        made = Tasks(
            CLIPImageProcessorPil(image_seq_length=0),
            tokenizer,
            post_processor_config=whole.get("post_processor_config"),
        )
    except AttributeError as error:
        raise CheckpointError(f"the tokenizer in {str(folder)!r} names no image_token ({error})") from error
    kinds: dict[str, dict[str, object]] = {kind: {} for kind in made.tasks_answer_post_processing_type.values()}
    made.post_processor.parse_task_config = kinds | made.post_processor.parse_task_config
    return made
