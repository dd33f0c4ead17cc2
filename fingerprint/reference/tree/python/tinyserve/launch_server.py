"""Start the server: python -m tinyserve.launch_server --model-path MODEL [flags]."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path

from tinyserve.engine import Engine
from tinyserve.http_server import Server
from tinyserve.processes import configure_logging
from tinyserve.server_args import ServerArgs, parse

logger = logging.getLogger(__name__)


def main() -> None:
    """Serve until SIGTERM or SIGINT (exit code 0) or until a child process ends (exit code 1)."""
    args = parse()
    configure_logging(args)
    engine = Engine(args)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        _serve(engine, args)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        engine.stop()


def _serve(engine: Engine, args: ServerArgs) -> None:
    try:
        vocab_size = json.loads((Path(args.model_path) / "config.json").read_text())["vocab_size"]
        http = Server(engine, vocab_size)
    except OSError as problem:
        sys.exit(f"cannot serve {args.model_path} at {args.host}:{args.port}: {problem}")
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        engine.start()
    except EOFError:
        logger.error("Initialization failed")  # the child that ended has said why
    logger.error(engine.watch())
    sys.exit(1)


if __name__ == "__main__":
    main()
