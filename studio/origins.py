"""Which web pages may use the dev server: Studio's, and pages of this machine.

Settings name programs to start (MCP servers), so that no other page that happens to be open in a browser may send
any. The server itself lets every page in, and refuses the question that browsers ask before a public page calls this
machine (Private Network Access), which Studio needs answered.
"""

import re

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ALLOWED = r"https://([a-z]+\.)?smith\.langchain\.com|https?://(localhost|127\.0\.0\.1)(:\d+)?"


class OtherPagesRefused:
    """Refuses requests that pages from elsewhere send; programs, which name no page, are let in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        origin = Headers(scope=scope).get("origin") if scope["type"] in ("http", "websocket") else None
        if origin is None or re.fullmatch(ALLOWED, origin):
            await self._app(scope, receive, send)
        else:
            said = f"pages of {origin} may not use this server: Studio's and those of this machine may"
            await PlainTextResponse(said, 403)(scope, receive, send)


app = Starlette(
    middleware=[
        Middleware(OtherPagesRefused),
        Middleware(
            CORSMiddleware,
            allow_origin_regex=ALLOWED,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_private_network=True,
            expose_headers=["x-pagination-total", "x-pagination-next", "content-location"],
        ),
    ]
)
"""What LangGraph's server adds its own routes to."""
