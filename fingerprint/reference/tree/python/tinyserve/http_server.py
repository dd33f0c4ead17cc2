"""The HTTP front: SGLang's paths and shapes on the standard library's server."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tinyserve import __version__, metrics, tokenizer

if TYPE_CHECKING:
    from tinyserve.engine import Engine

logger = logging.getLogger(__name__)

_MAX_BODY_BYTES = 1 << 22
_OPEN = ("/health", "/ready", "/metrics")
"""Beginnings of paths that nobody needs a key for."""


class BadRequest(Exception):  # noqa: N818 - the name of the HTTP status
    """The client asked for something that cannot be served; the text says what."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        """Health, information and metrics."""
        engine = self.server.engine
        path = self.path.partition("?")[0]
        if not path.startswith(_OPEN) and not self._may():
            return
        if path in ("/health", "/ready"):
            self._reply(HTTPStatus.OK if engine.ready.is_set() else HTTPStatus.SERVICE_UNAVAILABLE, b"")
        elif path == "/health_generate":
            if engine.ready.is_set():
                for _ in engine.generate([1], max_new_tokens=1, ignore_eos=True, stream=False):
                    pass
            self._reply(HTTPStatus.OK if engine.ready.is_set() else HTTPStatus.SERVICE_UNAVAILABLE, b"")
        elif path in ("/server_info", "/get_server_info"):
            self._json(HTTPStatus.OK, self._server_info())
        elif path in ("/model_info", "/get_model_info"):
            args = engine.args
            self._json(
                HTTPStatus.OK, {"model_path": args.model_path, "is_generation": True, "weight_version": "default"}
            )
        elif path == "/metrics" and engine.args.enable_metrics:
            page = metrics.render(engine.counters, engine.args, engine.running)
            self._reply(HTTPStatus.OK, page.encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._json(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Generation."""
        if not self._may():
            return
        if self.path.partition("?")[0] != "/generate":
            self.close_connection = True  # its body has not been read
            self._json(HTTPStatus.NOT_FOUND, {"detail": "Not Found"})
            return
        try:
            ids, max_new_tokens, ignore_eos, stream = self._request()
        except BadRequest as problem:
            self._json(HTTPStatus.BAD_REQUEST, {"error": {"message": str(problem)}})
            return
        if not self.server.engine.ready.is_set():
            self._json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": {"message": "the server is starting"}})
            return
        answers = self.server.engine.generate(ids, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos, stream=stream)
        if not stream:
            self._json(HTTPStatus.OK, next(answers))
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for answer in answers:
            self._event(json.dumps(answer))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """One access line; not at the usual level, for clients poll until the server is ready."""
        logger.debug(format, *args)

    def _may(self) -> bool:
        """Whether the client showed the key; one that did not is refused here."""
        key = self.server.engine.args.api_key
        if not key or self.headers.get("Authorization") == f"Bearer {key}":
            return True
        self.close_connection = True  # its body has not been read
        self._json(HTTPStatus.UNAUTHORIZED, {"error": "Unauthorized"})
        return False

    def _request(self) -> tuple[list[int], int, bool, bool]:
        """The prompt, the number of tokens wanted, whether to run past the end token, and whether to stream."""
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            length = -1
        if not 0 <= length <= _MAX_BODY_BYTES:
            self.close_connection = True
            raise BadRequest(f"Content-Length must be given, up to {_MAX_BODY_BYTES}")
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            raise BadRequest("the body is not JSON") from None
        if not isinstance(body, dict) or not isinstance(params := body.get("sampling_params") or {}, dict):
            raise BadRequest("the body must be an object, and so must sampling_params")
        text, ids = body.get("text"), body.get("input_ids")
        if isinstance(text, str) and ids is None:
            ids = tokenizer.encode(text)
        if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
            raise BadRequest("give a prompt as `text` or as a list `input_ids`")
        if not all(0 <= token < self.server.vocab_size for token in ids):
            raise BadRequest(f"input_ids must be below {self.server.vocab_size}")
        max_new_tokens = params.get("max_new_tokens", 128)
        if type(max_new_tokens) is not int or max_new_tokens < 1:
            raise BadRequest("max_new_tokens must be a positive integer")
        if params.get("temperature", 0) != 0:
            raise BadRequest("only temperature 0 is served")
        args = self.server.engine.args
        room = args.context_length - args.speculative_num_draft_tokens
        if len(ids) + max_new_tokens > room:
            raise BadRequest(f"prompt and max_new_tokens together must be at most {room} tokens")
        return ids, max_new_tokens, bool(params.get("ignore_eos", False)), bool(body.get("stream", False))

    def _server_info(self) -> dict[str, object]:
        engine = self.server.engine
        state = {
            "avg_spec_accept_length": metrics.accept_length(engine.counters),
            "last_gen_throughput": engine.counters.last_gen_throughput,
        }
        return {
            **asdict(engine.args),
            "version": __version__,
            "launch_command": shlex.join(sys.orig_argv),
            "status": "ready" if engine.ready.is_set() else "starting",
            "pid": os.getpid(),
            "internal_states": [state],
        }

    def _json(self, status: HTTPStatus, value: object) -> None:
        self._reply(status, json.dumps(value).encode(), "application/json")

    def _reply(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")


class Server(ThreadingHTTPServer):
    """The listening socket and what its connections share."""

    daemon_threads = True

    def __init__(self, engine: Engine, vocab_size: int) -> None:
        self.engine = engine
        self.vocab_size = vocab_size
        super().__init__((engine.args.host, engine.args.port), Handler)
        if engine.args.ssl_certfile:
            import ssl

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(engine.args.ssl_certfile, engine.args.ssl_keyfile)
            # The handshake is made by the thread of the connection: a client that makes none holds nobody up.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's signature
        """A client that hung up, or speaks another protocol, is no event; anything else is shown."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
