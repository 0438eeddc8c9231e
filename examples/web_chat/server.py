"""A chat in the browser: FastAPI serves the page, cubecast carries the rooms between the servers.

    pip install fastapi uvicorn websockets
    python examples/web_chat/server.py --port 8000 --listen 127.0.0.1:7400
    python examples/web_chat/server.py --port 8001 --listen 127.0.0.1:7401 --join 127.0.0.1:7400

Open both addresses: a room is the same room on both servers.  Each server is a member of the
cluster, so there is no broker; a browser never shows an answer above its question.
docs/web-chat.md explains the program.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI, WebSocket, WebSocketDisconnect
from fastapi import Path as PathPart
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field, ValidationError

import cubecast

PAGE = Path(__file__).with_name("page.html")
MAX_FRAME = 16 * 1024
"""Bytes of the largest message that a browser may send."""
MAX_BROWSERS = 1000
UNREAD_BYTES = 256 * 1024
"""The most bytes that a slow browser may leave unread before its connection ends."""
Room = Annotated[str, PathPart(pattern="^[a-z0-9-]{1,40}$")]


class Line(BaseModel):
    """A line of one person; JSON in the browser and on the wire."""

    name: str = Field(min_length=1, max_length=40)
    text: str = Field(min_length=1, max_length=2000)


def make_app(seed: str | None, listen: str = "127.0.0.1:0", secret: str = "") -> FastAPI:
    """The application; while it runs, it is a member of the cluster of `seed`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with cubecast.join(seed, listen=listen, secret=secret) as node:
            app.state.node = node
            print(f"node {node.slot} at {node.address}", flush=True)
            yield

    app = FastAPI(lifespan=lifespan)
    app.get("/")(page)
    app.websocket("/rooms/{room}")(talk)
    return app


async def page() -> FileResponse:
    return FileResponse(PAGE)


async def talk(socket: WebSocket, room: Room) -> None:
    """One browser in one room, until one of the two sides ends the connection."""
    node: cubecast.Node = socket.app.state.node
    topic = f"chat/{room}"
    await socket.accept()
    reading = node.subscribe(topic, policy="disconnect", queue_bytes=UNREAD_BYTES)
    async with reading as messages:
        showing = asyncio.create_task(show(messages, socket))
        try:
            async for text in socket.iter_text():
                await say(node, topic, text, socket)
        except WebSocketDisconnect:  # it closed while we answered
            pass
        finally:
            showing.cancel()
            await asyncio.wait([showing])


async def show(messages: cubecast.Subscription, socket: WebSocket) -> None:
    """Send the lines of the room to the browser, in causal order."""
    with suppress(WebSocketDisconnect, RuntimeError):  # the browser has gone
        await socket.send_json({"entered": True})  # all later lines arrive
        try:
            async for message in messages:
                await socket.send_text(line_of(message).model_dump_json())
        except cubecast.Overflow:
            await socket.close(1013, "this browser reads too slowly")
        except cubecast.Closed:
            await socket.close(1012, "the server stops")


async def say(node: cubecast.Node, topic: str, text: str, socket: WebSocket) -> None:
    """Publish the browser's text; tell it why, if that fails."""
    try:
        line = Line.model_validate_json(text)
        await node.publish(topic, line.model_dump_json())
    except ValidationError:
        await socket.send_json({"error": "a line is a JSON object with a name and a text"})
    except cubecast.CubecastError as error:
        await socket.send_json({"error": str(error)})


def line_of(message: cubecast.Message) -> Line:
    """The line in a message; text of another program, such as `cubecast pub`, is a line, too."""
    try:
        return Line.model_validate_json(message.payload)
    except ValidationError:
        text = message.payload.decode(errors="replace")[:2000] or "(nothing)"
        return Line(name=f"node {message.source}", text=text)


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat in the browser, on cubecast.")
    parser.add_argument("--host", default="127.0.0.1", help="where browsers connect to")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--listen", default="127.0.0.1:0", help="where other servers connect to")
    parser.add_argument("--join", metavar="HOST:PORT", help="any server of the cluster")
    parser.add_argument("--secret", default="", help="the secret of the cluster")
    options = parser.parse_args()
    app = make_app(options.join, options.listen, options.secret)
    uvicorn.run(
        app,
        host=options.host,
        port=options.port,
        ws_max_size=MAX_FRAME,
        limit_concurrency=MAX_BROWSERS,
        timeout_graceful_shutdown=5,
    )


if __name__ == "__main__":
    main()
