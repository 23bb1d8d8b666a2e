"""A stand-in for vLLM's server that really samples: completions by token ids, and LoRA adapters loaded while it runs.

The calls and their fields are those of vLLM's documentation: ``/v1/models``, ``/v1/completions`` with
``return_token_ids``, ``/v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``; and those by which TRL sends whole
weights. What NCCL carries between two GPUs goes through :attr:`ServedModel.wire` here.
"""

from __future__ import annotations

import copy
import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

from sleuth.samplers.transformers import TransformersSampler
from sleuth.types import SampleRequest, SamplingParams, StopRule

TRANSFER = ("/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache")


class ServedModel:
    """Serves ``model`` under the name ``base``.

    Args:
        stale: go on with the first adapter, whatever is loaded later.

    Attributes:
        loaded: names of adapters, in order. ``models``: what is there now.
        calls: of the transfer of weights, in order. ``wire``: tensors by name, in the order in which they were sent.
    """

    def __init__(self, model: Any, tokenizer: Any, *, stale: bool = False):
        self.models: dict[str, Any] = {"base": model}
        self.loaded: list[str] = []
        self.calls: list[str] = []
        self.wire: queue.Queue[tuple[str, torch.Tensor]] = queue.Queue()
        self._tokenizer, self._stale = tokenizer, stale
        self._lock = threading.Lock()
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path == "/get_world_size":
                    served._answer(self, 200, {"world_size": 1})
                elif self.path == "/health":
                    served._answer(self, 200, "")
                else:
                    served._answer(self, 200, {"object": "list", "data": [{"id": name} for name in served.models]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
                with served._lock:
                    served._post(self, body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> ServedModel:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _post(self, call: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if call.path == "/v1/load_lora_adapter":
            self._load(call, body["lora_name"], Path(body["lora_path"]))
        elif call.path == "/v1/unload_lora_adapter":
            known = self.models.pop(body["lora_name"], None) is not None
            self._answer(call, 200 if known else 404, "Success" if known else {"message": "no such adapter"})
        elif call.path == "/v1/completions" and body["model"] in self.models:
            self._complete(call, body)
        elif call.path in TRANSFER:
            self.calls.append(call.path)
            if call.path == "/update_weights":
                self._update(body["update_info"])
            self._answer(call, 200, {"success": True})
        else:
            self._answer(call, 404, {"message": f"no such model or call: {body.get('model', call.path)}"})

    def _load(self, call: BaseHTTPRequestHandler, name: str, folder: Path) -> None:
        if name in self.models or not (folder / "adapter_config.json").is_file():
            self._answer(call, 400, {"message": f"adapter {name} is there already, or not in {folder}"})
            return
        if self._stale and self.loaded:
            self.models[name] = self._first
        else:
            from peft import PeftModel

            base = copy.deepcopy(self.models["base"])
            self.models[name] = self._first = PeftModel.from_pretrained(base, str(folder)).merge_and_unload().eval()
        self.loaded.append(name)
        self._answer(call, 200, f"Success: LoRA adapter '{name}' added successfully.")

    def _update(self, told: dict[str, Any]) -> None:
        model = self.models["base"]
        parameters = dict(model.named_parameters())
        for name, dtype, shape in zip(told["names"], told["dtype_names"], told["shapes"], strict=True):
            sent, tensor = self.wire.get(timeout=60)
            assert (sent, f"torch.{dtype}", shape) == (name, str(tensor.dtype), list(tensor.shape))
            if not self._stale:
                with torch.no_grad():
                    parameters[name].copy_(tensor)

    def _complete(self, call: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        model, stops = self.models[body["model"]], body["stop"]
        rule = StopRule(
            lambda ids: any(stop in self._tokenizer.decode(ids) for stop in stops),
            frozenset(range(model.config.vocab_size)),
            frozenset(body["stop_token_ids"]),
        )
        request = SampleRequest("only", body["prompt"], body["max_tokens"], rule, body["seed"])
        with torch.no_grad():
            params = SamplingParams(body["temperature"], body["top_p"], body["top_k"])
            (done,) = TransformersSampler(model).sample([request], params)
        logprobs = {"token_logprobs": done.logprobs, "tokens": [f"token_id:{i}" for i in done.ids]}
        choice = {"index": 0, "text": "", "finish_reason": "stop", "token_ids": done.ids, "logprobs": logprobs}
        self._answer(call, 200, {"object": "text_completion", "choices": [choice]})

    @staticmethod
    def _answer(call: BaseHTTPRequestHandler, status: int, body: Any) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        call.send_response(status)
        call.send_header("content-length", str(len(data)))
        call.end_headers()
        call.wfile.write(data)
