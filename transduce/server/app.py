"""The application: routes, what becomes of exceptions, and the middlewares in their order."""

from collections.abc import Iterable, Sequence
from functools import partial

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Match, Route, WebSocketRoute
from starlette.types import Scope

import transduce
from transduce.server import audio, chat, completions, health, page, realtime, score, tokens
from transduce.server.access_log import AccessLog
from transduce.server.errors import handlers
from transduce.server.middleware import Authenticate, CancelOnDisconnect, Failures, Gate, LimitBody, SameOrigin
from transduce.server.options import FORM
from transduce.server.service import Service

OPEN = frozenset({"/", "/health", "/ready", "/metrics", "/version"})
OPEN_FOLDER = "/static/"

OTHER = "other"
"""The template of all paths without a route."""

ROUTERS = (completions.router, chat.router, score.router, audio.router, realtime.router, tokens.router, health.router)


def create_app(service: Service) -> FastAPI:
    """The server of one model as an ASGI application; `app.state.service` is the service."""
    app = FastAPI(
        title="Transduce",
        version=transduce.__version__,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    for kind, handler in handlers().items():
        app.add_exception_handler(kind, handler)
    routers = ROUTERS if service.options.disable_playground else (*ROUTERS, page.router)
    routes = _routes([app.router, *routers])
    for router in routers:
        app.include_router(router)
    _wrap(app, service, routes)
    return app


def _wrap(app: FastAPI, service: Service, routes: Sequence[Route | WebSocketRoute]) -> None:
    """From the inside out."""
    options = service.options
    app.add_middleware(CancelOnDisconnect, patience=options.request_timeout)
    app.add_middleware(
        LimitBody,
        largest=options.max_body_bytes,
        largest_form=options.max_file_bytes + FORM,
        forms=frozenset(route.path for route in _routes([audio.router])),
        longest=options.request_timeout,
    )
    app.add_middleware(SameOrigin, allowed=options.allowed_origins)
    app.add_middleware(Gate, closed=service.closed, inside=service.inside, is_open=_is_open)
    if keys := options.keys():
        app.add_middleware(Authenticate, keys=keys, is_open=_is_open)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=("*",),
            allow_headers=("*",),
            expose_headers=("x-request-id",),
        )
    app.add_middleware(Failures)
    service.tracing.install(app)
    app.add_middleware(
        AccessLog, responded=service.metrics.responded, template=partial(_template, routes), probes=health.PROBES
    )


def _routes(routers: Iterable[APIRouter]) -> list[Route | WebSocketRoute]:
    return [route for router in routers for route in router.routes if isinstance(route, Route | WebSocketRoute)]


def _template(routes: Sequence[Route | WebSocketRoute], scope: Scope) -> str:
    """The path of a request's route, whether it gets there or not: so many labels, and no more."""
    return next((route.path for route in routes if route.matches(scope)[0] is not Match.NONE), OTHER)


def _is_open(path: str) -> bool:
    """Whether it is answered without a key, also while the model loads and the server ends: probes, and the page."""
    return path in OPEN or path.startswith(OPEN_FOLDER)
