"""Whatever a client sends, as the OpenAPI schema has it or nearly so: an answer that the schema knows, never a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.live import Live

EXAMPLES = 25
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ROUTES = {
    "text": {"/v1/completions", "/v1/chat/completions", "/v1/score_target", "/tokenize", "/detokenize"},
    "speech": {"/v1/audio/transcriptions", "/v1/audio/translations"},
}


def operations(served: Live) -> Iterator[Any]:
    schema = schemathesis.openapi.from_url(str(served.http.base_url.join("/openapi.json")))
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        yield result.ok()


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
@pytest.mark.parametrize("family", ROUTES)
def test_no_input_is_too_much(family: str, mode: GenerationMode, request: pytest.FixtureRequest) -> None:
    served: Live = request.getfixturevalue(family)
    described = {operation.path: operation for operation in operations(served)}
    for path in ROUTES[family]:
        fuzz(described[path], mode)


def fuzz(operation: Any, mode: GenerationMode) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    check()
