"""The launch flags: their names, defaults and the values that follow from each other."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from typing import Any


def _flag(*names: str, default: Any, help: str, **options: Any) -> Any:  # noqa: A002, ANN401 - as argparse says it
    return field(default=default, metadata={"names": names, "options": {"help": help, **options}})


@dataclass
class ServerArgs:
    """All resolved arguments of one server; `/server_info` shows them."""

    model_path: str = _flag("--model-path", "--model", default="", help="folder of the target model")
    served_model_name: str = _flag("--served-model-name", default="", help="name shown to clients")
    host: str = _flag("--host", default="127.0.0.1", help="address to listen on")
    port: int = _flag("--port", default=30000, type=int, help="port to listen on")
    tp_size: int = _flag("--tp-size", "--tp", default=1, type=int, choices=(1, 2), help="ranks that split each layer")
    cores_per_rank: int = _flag(
        "--cores-per-rank", default=1, type=int, help="CPUs to confine the server to, per rank; 0: all of them"
    )
    context_length: int = _flag("--context-length", default=1024, type=int, help="tokens a sequence can have")
    chunked_prefill_size: int = _flag("--chunked-prefill-size", default=128, type=int, help="prompt rows a step")
    attention_backend: str = _flag(
        "--attention-backend", default="fused", choices=("fused", "native"), help="who computes attention"
    )
    speculative_algorithm: str = _flag(
        "--speculative-algorithm", default="NONE", choices=("NONE", "EAGLE3"), help="how to draft, if at all"
    )
    speculative_draft_model_path: str = _flag(
        "--speculative-draft-model-path", "--speculative-draft-model", default="", help="folder of the draft model"
    )
    speculative_num_steps: int = _flag("--speculative-num-steps", default=3, type=int, help="draft steps a cycle")
    speculative_eagle_topk: int = _flag(
        "--speculative-eagle-topk", default=1, type=int, choices=(1,), help="branches of a draft step"
    )
    speculative_num_draft_tokens: int = _flag(
        "--speculative-num-draft-tokens", default=0, type=int, help="tokens verified a cycle: num-steps + 1"
    )
    disable_cuda_graph: bool = _flag(
        "--disable-cuda-graph", default=False, action="store_true", help="verify row after row, not in one pass"
    )
    stream_interval: int = _flag("--stream-interval", default=1, type=int, help="cycles between streamed chunks")
    decode_log_interval: int = _flag("--decode-log-interval", default=40, type=int, help="cycles between log lines")
    log_level: str = _flag(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="least level to log"
    )
    watchdog_timeout: float = _flag(
        "--watchdog-timeout", default=300.0, type=float, help="seconds without a token until a request fails"
    )
    enable_metrics: bool = _flag("--enable-metrics", default=False, action="store_true", help="serve /metrics")
    skip_server_warmup: bool = _flag(
        "--skip-server-warmup", default=False, action="store_true", help="be ready without a first request"
    )
    api_key: str = _flag("--api-key", default="", help="the key that a request must show")
    ssl_certfile: str = _flag("--ssl-certfile", default="", help="certificate; with it TLS is spoken")
    ssl_keyfile: str = _flag("--ssl-keyfile", default="", help="its private key")

    def resolve(self, parser: argparse.ArgumentParser) -> None:
        """Fill in what follows from other flags; refuse what contradicts them."""
        if not self.model_path:
            parser.error("--model-path is missing: name the folder of the target model")
        self.served_model_name = self.served_model_name or self.model_path
        if bool(self.ssl_certfile) != bool(self.ssl_keyfile):
            parser.error("--ssl-certfile and --ssl-keyfile go together")
        if self.speculative_algorithm == "EAGLE3":
            if not self.speculative_draft_model_path:
                parser.error("--speculative-algorithm EAGLE3 needs --speculative-draft-model-path")
            if self.speculative_num_steps < 1:
                parser.error("--speculative-num-steps must be at least 1")
            wanted = self.speculative_num_steps + 1
            if self.speculative_num_draft_tokens not in (0, wanted):
                parser.error(f"with topk 1, --speculative-num-draft-tokens is num-steps + 1 = {wanted}")
            self.speculative_num_draft_tokens = wanted
        else:
            self.speculative_num_draft_tokens = 0


def parse(argv: list[str] | None = None) -> ServerArgs:
    """Read the command line; wrong flags end the process with exit code 2, as argparse does."""
    parser = argparse.ArgumentParser(prog="tinyserve.launch_server")
    for entry in fields(ServerArgs):
        parser.add_argument(
            *entry.metadata["names"], dest=entry.name, default=entry.default, **entry.metadata["options"]
        )
    args = ServerArgs(**vars(parser.parse_args(argv)))
    args.resolve(parser)
    return args
