"""/v1/score_target: how likely the model finds given targets for their sources."""

from functools import partial

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from transduce.frontend import targets
from transduce.server.answers import Serving, answers, has_room, head, takes_text
from transduce.server.errors import documented
from transduce.server.protocol.score import ScoreRequest, Scores, score

router = APIRouter(tags=["text"], dependencies=[Depends(takes_text), Depends(has_room)])


@router.post("/v1/score_target", response_model=Scores, responses=documented())
async def score_target(body: ScoreRequest, http: Request, service: Serving) -> Response:
    """The log-probability of each target, given its source."""
    service.check_model(body.model)
    with body.blamed():
        salt = {} if body.cache_salt is None else {"cache_salt": body.cache_salt}
        pairs = targets.paired(body.sources, body.targets)
        prompts = [{**targets.prompt(*pair), **salt} for pair in pairs]
        params = targets.params(body.truncate_prompt_tokens)
        asked = partial(service.generate, http, params=params, priority=body.priority, stream=False)
        made = answers(service, params, [*map(asked, prompts)])
        data = [score(index, targets.score(output)) for index, output in enumerate(await made.outputs())]
    return JSONResponse({**head("score", "list", http, service), "data": data, "usage": made.usage})
