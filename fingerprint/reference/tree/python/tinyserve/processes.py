"""The entry points of the child processes: a scheduler for each rank and a detokenizer."""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING

from tinyserve import proctitle, tokenizer

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tinyserve.io_struct import Output
    from tinyserve.server_args import ServerArgs


def configure_logging(args: ServerArgs, prefix: str = "") -> None:
    """Log lines to standard error, as the launcher and every child do."""
    logging.basicConfig(
        level=args.log_level.upper(), format=f"[%(asctime)s{prefix}] %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )


def _become(title: str, parent: int) -> None:
    """Start the life of a child: it dies with its parent, and Ctrl-C is the launcher's business."""
    proctitle.die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    proctitle.set_title(title)


def run_scheduler(
    args: ServerArgs,
    rank: int,
    parent: int,
    bootstrap: Connection | None,
    requests: Connection,
    out: Connection | None,
) -> None:
    """One rank; `out`, the way to the detokenizer, is None for all but rank 0."""
    _become("sglang::scheduler" if args.tp_size == 1 else f"sglang::scheduler_TP{rank}", parent)
    configure_logging(args, f" TP{rank}")
    from tinyserve.scheduler import Scheduler  # the launcher and the detokenizer need no numpy

    scheduler = Scheduler(args, rank, bootstrap, out)
    requests.send("ready")
    scheduler.run(requests)


def run_detokenizer(args: ServerArgs, parent: int, tokens: Connection, out: Connection) -> None:
    """Turns the tokens of rank 0 into text on their way to the HTTP front."""
    _become("sglang::detokenizer", parent)
    configure_logging(args, " detokenizer")
    while True:
        try:
            output: Output = tokens.recv()
        except EOFError:
            sys.exit(0)
        output.text = tokenizer.decode(output.output_ids)
        out.send(output)
