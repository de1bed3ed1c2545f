"""The pages and what they fetch: the list of runs, a run, several compared, charts, events."""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fedmux.report.charts import CHARTS, Kind, spec, theme
from fedmux.report.page import part
from fedmux.runs.history import History
from fedmux.runs.layout import ENVIRONMENT, EXPERIMENT
from fedmux.runs.reading import read_text
from fedmux.runs.state import FINISHED, RunState
from fedmux.ui import views
from fedmux.ui.bundle import VERSION, Bundle
from fedmux.ui.follow import Follower, Snapshot
from fedmux.ui.library import Library, state

MOST_COMPARED = 24
MOST_DRAWN = 100  # charts that are kept, in case somebody else asks
INTERVAL = 0.5  # seconds between two snapshots of a run that somebody watches
BEAT = 10.0  # seconds between two updates of a run of which nothing but signs of life comes
SIGN_OF_LIFE = 15.0  # seconds without news after which a stream says so
OWN = ("ui.css", "morph.js", "list.js", "live.js")
FROM_REPORT = ("page.css", "charts.js")


@cache
def templates() -> Environment:
    """Everything that is put into a page is escaped."""
    environment = Environment(
        loader=PackageLoader("fedmux.ui"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals.update(
        version=version("fedmux"),
        vega=VERSION,
        address=views.address,
        query=views.query,
        moment=views.moment,
        percent=views.percent,
    )
    return environment


def render(name: str, **values: Any) -> bytes:
    """A page. Invalid UTF-8 bytes are replaced."""
    return templates().get_template(name).render(**values).encode("utf-8", "replace")


class Pages:
    """Answers requests for the runs of one folder."""

    def __init__(self, library: Library, bundle: Bundle, stopping: Callable[[], bool]) -> None:
        self.library = library
        self.bundle = bundle
        self.stopping = stopping
        self._drawing = Lock()  # one chart at a time: more would only delay each other
        self._drawn: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def routes(self) -> list[Route]:
        return [
            Route("/", self.home),
            Route("/rows", self.rows),
            Route("/run/{path:path}", self.run),
            Route("/compare", self.compare),
            Route("/events", self.events),
            Route("/events/{path:path}", self.events),
            Route("/chart/{key}", self.chart),
            Route("/themes.json", self.themes),
            Route("/static/vega.js", self.vega),
            Route("/static/{name}", self.static),
        ]

    def home(self, request: Request) -> Response:
        return _page(render("list.html", rows=self.library.rows(), folder=self.library.shown))

    def rows(self, request: Request) -> Response:
        """The body of the table, for a list that is open already."""
        return _tagged(request, render("rows.html", rows=self.library.rows()), "text/html; charset=utf-8")

    def run(self, request: Request) -> Response:
        key = request.path_params["path"]
        snapshots = [follower.snapshot() for follower in self._followers([key])]
        history = snapshots[0].history
        return _page(
            render(
                "run.html",
                key=key,
                history=history,
                figures=figures(snapshots, [key]),
                charts=views.kinds_for([history]),
                texts={name: read_text(history.path / name) for name in (EXPERIMENT, ENVIRONMENT)},
            )
        )

    def compare(self, request: Request) -> Response:
        asked = list(dict.fromkeys(_asked(request)))
        keys = [key for key in asked if self.library.follower(key) is not None][:MOST_COMPARED]
        if not keys:
            raise HTTPException(404, "Choose runs in the list to compare them.")
        snapshots = [follower.snapshot() for follower in self._followers(keys)]
        histories = [snapshot.history for snapshot in snapshots]
        return _page(
            render(
                "compare.html",
                keys=keys,
                left_out=[key for key in asked if key not in keys],
                figures=figures(snapshots, keys),
                charts=views.kinds_for(histories),
                differences=views.differences(histories),
                histories=histories,
            )
        )

    def chart(self, request: Request) -> Response:
        """What Vega draws; 204 if the runs have no data for it."""
        kind = next((kind for kind in CHARTS if kind.key == request.path_params["key"]), None)
        if kind is None:
            raise HTTPException(404, "There is no such chart.")
        snapshots = [follower.snapshot() for follower in self._followers(_asked(request))]
        with self._drawing:
            body = self._draw(kind, snapshots)
        return Response(body, media_type="application/json") if body else Response(status_code=204)

    def _draw(self, kind: Kind, snapshots: Sequence[Snapshot]) -> bytes:
        shown = (kind.key, *(snapshot.version for snapshot in snapshots))
        body = self._drawn.pop(shown, None)
        if body is None:
            chart = kind.draw([snapshot.history for snapshot in snapshots])
            body = b"" if chart is None else json.dumps({**spec(chart), "config": {}}).encode()
        self._drawn[shown] = body
        if len(self._drawn) > MOST_DRAWN:
            self._drawn.popitem(last=False)
        return body

    async def events(self, request: Request) -> Response:
        """Server-sent events: the figures whenever they have changed, until all runs are finished."""
        path = request.path_params.get("path")
        keys = _asked(request) if path is None else [path]
        followers = await asyncio.to_thread(self._followers, keys)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return StreamingResponse(self._stream(followers, keys), media_type="text/event-stream")

    async def _stream(self, followers: list[Follower], keys: list[str]) -> AsyncIterator[str]:
        seen: object = None
        reported = time.monotonic()
        yield "retry: 2000\n\n"
        while not self.stopping():
            now, update, done = await asyncio.to_thread(_news, followers, keys, seen)
            if update is not None:
                seen, reported = now, time.monotonic()
                yield f"event: update\ndata: {update}\n\n"
                if done:
                    return
            elif time.monotonic() - reported > SIGN_OF_LIFE:
                reported = time.monotonic()
                yield ": still here\n\n"
            await asyncio.sleep(INTERVAL)

    def themes(self, request: Request) -> Response:
        return JSONResponse({"light": theme(False), "dark": theme(True)})

    async def vega(self, request: Request) -> Response:
        """Vega, Vega-Lite and Vega-Embed; its address has its version in it."""
        while (script := self.bundle.script) is None:
            if self.stopping() or self.bundle.failed:
                raise HTTPException(503, "Vega could not be prepared.")
            await asyncio.sleep(0.05)
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(script, media_type="text/javascript", headers=headers)

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name in FROM_REPORT:
            body = str(part(name)).encode()
        elif name in OWN:
            body = (files("fedmux.ui") / "static" / name).read_bytes()
        else:
            raise HTTPException(404, "There is no such file.")
        return _tagged(request, body, "text/css" if name.endswith(".css") else "text/javascript")

    def _followers(self, keys: Sequence[str]) -> list[Follower]:
        found = [self.library.follower(key) for key in keys[:MOST_COMPARED]]
        known = [follower for follower in found if follower is not None]
        if not known or len(known) < len(found):
            raise HTTPException(404, "There is no such run; it may have been moved or deleted.")
        return known


def create(library: Library, bundle: Bundle, stopping: Callable[[], bool]) -> Starlette:
    """The application; `stopping` says that streams are to end."""
    pages = Pages(library, bundle, stopping)
    return Starlette(routes=pages.routes(), exception_handlers={HTTPException: _problem})


def figures(snapshots: Sequence[Snapshot], keys: Sequence[str]) -> Markup:
    """The part of a page that changes while runs go on."""
    histories = [snapshot.history for snapshot in snapshots]
    states = [state(snapshot) for snapshot in snapshots]
    if len(snapshots) > 1:
        rows = views.side_by_side(histories, [str(found) for found in states])
        return Markup(render("table.html", keys=keys, histories=histories, rows=rows).decode())
    shown, kinds = views.failures(histories[0])
    page = render(
        "figures.html",
        history=histories[0],
        state=states[0],
        written=max(snapshots[0].written, states[0].seen or 0.0),
        facts=views.facts(histories[0]),
        tasks=views.tasks(histories[0]),
        failures=shown,
        kinds=kinds,
    )
    return Markup(page.decode())


def _news(followers: list[Follower], keys: list[str], seen: object) -> tuple[object, str | None, bool]:
    """What there is now, an update unless that has been seen, and whether all runs are finished."""
    snapshots = [follower.snapshot() for follower in followers]
    states = [state(snapshot) for snapshot in snapshots]
    beats = [int((found.seen or 0.0) / BEAT) for found in states]
    drawn = [snapshot.version for snapshot in snapshots]
    now = ([str(found) for found in states], beats, drawn)
    if now == seen:
        return now, None, False
    done = all(found.name == FINISHED for found in states)
    said = "; ".join(_said(snapshot.history, found) for snapshot, found in zip(snapshots, states))
    news = {"figures": figures(snapshots, keys), "said": said, "finished": done, "drawn": drawn}
    return now, json.dumps(news), done


def _said(history: History, state: RunState) -> str:
    """An update in words, for screen readers."""
    what = f"{history.measure} {views.percent(history.overall())}"
    return f"{history.label}: {state}, round {history.last_round} of {history.rounds}, {what}"


def _asked(request: Request) -> list[str]:
    """The runs named in a query; bytes that are not UTF-8 decode as in file names."""
    text = request.scope["query_string"].decode("ascii", "replace")
    return [value for key, value in parse_qsl(text, errors="surrogateescape") if key == "run"]


def _page(body: bytes, status: int = 200) -> Response:
    return Response(body, status, {"Cache-Control": "no-store"}, "text/html; charset=utf-8")


def _tagged(request: Request, body: bytes, kind: str) -> Response:
    """Lets browsers cache it."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=kind)


def _problem(request: Request, error: Exception) -> Response:
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
    response = _page(render("problem.html", status=status, detail=detail), status)
    response.headers.update(getattr(error, "headers", None) or {})
    return response
