"""Routes about the server itself: is it alive, does it take requests, what does it serve, how is it doing."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client.exposition import choose_encoder

import transduce
from transduce.server.errors import NotServed
from transduce.server.service import Service

PROBES = frozenset({"/health", "/ready", "/metrics"})

ALIVE = {"loading", "ready", "restarting", "draining"}

router = APIRouter()


@router.get("/health", summary="200 while the server runs or can recover by itself, else 503")
async def health(http: Request) -> JSONResponse:
    """Liveness: to be restarted only where this fails. A loading or restarting engine is no reason to."""
    state = _service(http).state
    return JSONResponse({"status": state}, 200 if state in ALIVE else 503)


@router.get("/ready", summary="200 while requests are taken, else 503")
async def ready(http: Request) -> JSONResponse:
    """Readiness: 503 while the model loads, restarts or the server shuts down."""
    state = _service(http).state
    return JSONResponse({"status": state}, 200 if state == "ready" else 503)


@router.get("/version")
async def version() -> dict[str, str]:
    """The version of Transduce."""
    return {"version": transduce.__version__}


@router.get("/metrics")
async def metrics(http: Request) -> Response:
    """Metrics in Prometheus's text format, or OpenMetrics where that is asked for."""
    encode, kind = choose_encoder(http.headers.get("accept", ""))
    return Response(encode(_service(http).metrics.registry), headers={"content-type": kind})


@router.get("/v1/models")
async def models(http: Request) -> dict[str, Any]:
    """The served model, once under each of its names."""
    service = _service(http)
    return {"object": "list", "data": [_model(service, name) for name in service.names]}


@router.get("/v1/models/{name:path}")
async def model(http: Request, name: str) -> dict[str, Any]:
    """The served model under one of its names."""
    service = _service(http)
    if not name:
        raise NotServed("give a model's name", "model_not_found", "model")
    service.check_model(name)
    return _model(service, name)


def _model(service: Service, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "transduce",
        "root": service.llm.config.model,
        "max_model_len": service.llm.config.max_model_len,
        "tasks": sorted(service.tasks),
        "input_modalities": service.modalities,
    }


def _service(http: Request) -> Service:
    service: Service = http.app.state.service
    return service
