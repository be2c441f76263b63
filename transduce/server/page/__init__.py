"""The playground at `/`: static files beside this module, and the routes that hand them out.

The page learns all it shows from the public routes, relative to its own address. It knows nothing of the server's
state, and holds no data, so that it needs no API key.
"""

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from importlib.resources import files

from fastapi import APIRouter, Request, Response

JAVASCRIPT = "text/javascript; charset=utf-8"
FILES = (
    ("/", "index.html", "text/html; charset=utf-8"),
    ("/static/style.css", "style.css", "text/css; charset=utf-8"),
    ("/static/app.js", "app.js", JAVASCRIPT),
    ("/static/api.js", "api.js", JAVASCRIPT),
    ("/static/audio.js", "audio.js", JAVASCRIPT),
    ("/static/images.js", "images.js", JAVASCRIPT),
    ("/static/drops.js", "drops.js", JAVASCRIPT),
    ("/static/live.js", "live.js", JAVASCRIPT),
    ("/static/pcm.js", "pcm.js", JAVASCRIPT),
    ("/static/gauges.js", "gauges.js", JAVASCRIPT),
    ("/static/tasks.js", "tasks.js", JAVASCRIPT),
    ("/static/icon.svg", "icon.svg", "image/svg+xml"),
)
PATHS = frozenset(path for path, _, _ in FILES)
"""All that these routes answer."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


def _file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that hands out one file, or 304 to a browser that has it."""
    body = files(__name__).joinpath(name).read_bytes()
    headers = {
        "cache-control": "no-cache",  # kept, but asked for anew: files of two versions never mix
        "content-security-policy": POLICY,
        "etag": f'"{blake2b(body, digest_size=16).hexdigest()}"',
        "permissions-policy": "microphone=(self)",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }

    async def endpoint(request: Request) -> Response:
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media_type, headers=headers)

    return endpoint


def _router() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    for path, name, media_type in FILES:
        router.add_api_route(path, _file(name, media_type), methods=["GET", "HEAD"])
    return router


router = _router()
