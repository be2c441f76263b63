"""Pictures and a question in, answers out, all of them in one batch.

Usage: python examples/vision_language.py -m mllama --num-prompts 4 [--random-weights]
"""

from time import perf_counter

from rich.console import Console
from rich.text import Text
from vision_models import MODELS, chosen, drawn, parser

from transduce import LLM, SamplingParams


def main() -> None:
    """Print what the model makes of some pictures that are drawn here."""
    arguments = parser(__doc__)
    arguments.add_argument("--num-prompts", type=int, default=4, help="how many pictures")
    arguments.add_argument("--prompt", help="what the model is asked; otherwise what its kind knows")
    given = arguments.parse_args()
    prompt = given.prompt or MODELS[given.model_type].prompt
    asked = {} if prompt is None else {"prompt": prompt}
    pictures = [drawn(f"Picture {number}") for number in range(1, given.num_prompts + 1)]
    with chosen(given) as model:
        llm = LLM(model)
        start = perf_counter()
        prompts = [{**asked, "multi_modal_data": {"image": picture}} for picture in pictures]
        outputs = llm.generate([*prompts], SamplingParams(max_tokens=32))
        seconds = perf_counter() - start
    console = Console(highlight=False)
    for number, output in enumerate(outputs, 1):
        console.print(Text(f"{number}: {output.error or output.outputs[0].text!r}"), soft_wrap=True)
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    console.print(f"[dim]{len(outputs)} pictures, {tokens} tokens in {seconds:.2f} s[/]")


if __name__ == "__main__":
    main()
