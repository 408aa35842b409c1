"""The web app: a page, its script and style, the profiles as blocks, and SQL; a request reads nothing from disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nki.explorer import guard
from nki.explorer.assets import page, script, style
from nki.explorer.protocol import PatientProtocol
from nki.explorer.shown import Page, title
from nki.explorer.sql import Database, QueryError

Endpoint = Callable[[Request], Awaitable[Response]]

_BODY_SECONDS = 10.0


class Guard:
    """Refuses requests for other hosts and from other origins, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in guard.HEADERS.items()),
                ]
            await send(message)

        request = Request(scope)
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not guard.allowed(host, self._host):
            await PlainTextResponse("this server has another name", 421)(scope, receive, answer)
        elif origin is not None and not guard.same_origin(origin, host):
            await PlainTextResponse("requests from other pages are refused", 403)(scope, receive, answer)
        else:
            await self._app(scope, receive, answer)


def application(shown: Page, databases: Sequence[Database], host: str) -> Starlette:
    """The app for one profile, or for two that are compared, each with its database."""
    blocks = [each.block() for each in shown]
    start = page(
        title=title(shown),
        mode="app",
        count=len(shown),
        policy="",
        style_tag='<link rel="stylesheet" href="style.css">',
        data="",
        script_tag='<script src="explorer.js"></script>',
    )

    routes = [
        Route("/", _fixed(start, "text/html")),
        Route("/explorer.js", _fixed(script(), "text/javascript")),
        Route("/style.css", _fixed(style(), "text/css")),
        Route("/api/profile/{number:int}", _block(blocks)),
        Route("/api/sql", _sql(databases), methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, host=host)])


def _block(blocks: Sequence[bytes]) -> Endpoint:
    """Gives the data of a profile."""

    async def block(request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(blocks):
            return PlainTextResponse("there is no such profile", 404)
        return Response(blocks[number], media_type="application/octet-stream")

    return block


def _sql(databases: Sequence[Database]) -> Endpoint:
    """Asks the database of a profile."""

    async def sql(request: Request) -> Response:
        asked = await _asked(request, len(databases))
        if isinstance(asked, str):
            return JSONResponse({"error": asked}, 400)
        number, statement = asked
        try:
            answer = await run_in_threadpool(databases[number].query, statement)
        except QueryError as problem:
            return JSONResponse({"error": str(problem)}, 400)
        return Response(json.dumps(asdict(answer), allow_nan=False), media_type="application/json")

    return sql


def _fixed(text: str, kind: str) -> Endpoint:
    data = text.encode()

    async def answer(request: Request) -> Response:
        return Response(data, media_type=kind)

    return answer


async def _asked(request: Request, count: int) -> tuple[int, str] | str:
    """The profile and the statement of a request, or what is wrong with it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return "the request is not JSON"
    body = await _body(request)
    if body is None:
        return f"the request has more than {guard.MOST_BODY} bytes, or takes longer than {_BODY_SECONDS:g} s"
    try:
        asked: Any = json.loads(body)
    except (ValueError, RecursionError):
        return "the request is not JSON"
    if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str):
        return "the request has no text `sql`"
    number = asked.get("profile", 0)
    if type(number) is not int or not 0 <= number < count:
        return "there is no such profile"
    return number, asked["sql"]


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too long, or takes too long."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > guard.MOST_BODY:
                    return None
                parts.append(part)
    except (ClientDisconnect, TimeoutError):
        return None
    return b"".join(parts)


def server(shown: Page, host: str, port: int) -> uvicorn.Server:
    """A server that is not running yet; `run` serves until it is interrupted."""
    databases = [Database(tables) for each in shown if (tables := each.tables) is not None]
    config = uvicorn.Config(
        application(shown, databases, host),
        host=host.strip("[]"),
        port=port,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=PatientProtocol,
        lifespan="off",
        limit_concurrency=64,
        timeout_graceful_shutdown=2,
    )
    return _Server(config, databases)


class _Server(uvicorn.Server):
    """Ends without waiting for queries, whose threads the process would have to wait for."""

    def __init__(self, config: uvicorn.Config, databases: Sequence[Database]) -> None:
        super().__init__(config)
        self._databases = databases

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called for a signal."""
        for database in self._databases:
            database.end()
        super().handle_exit(sig, frame)
