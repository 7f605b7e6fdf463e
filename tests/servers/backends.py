"""The servers: how each is installed, started and found, and what it can do."""

import shutil
from dataclasses import dataclass

import environments
import processes
from processes import ROOT, WORK
from recordings import Recorded

# Servers whose `previous_response_id` works as they are started here. LiteLLM's needs a database.
KEEP_HISTORY = ("vllm", "ogx")
# Names of the model where it is not "scripted".
MODELS = {"ogx": "llama/scripted"}

PROGRAMS = ROOT / "tests" / "servers" / "programs"


@dataclass
class Backend:
    """A running server at `port`."""

    name: str
    port: int
    # The programs to stop.
    children: list
    apis: tuple = ("chat", "responses")
    # Whether it keeps the history upstream (`previous_response_id`).
    keeps_history: bool = False
    model: str = "scripted"

    def stop(self):
        for child in self.children:
            processes.stop(child)


def stand_in(name):
    """Recorded replies in place of a server."""
    recorded = Recorded(name)
    return Backend(f"{name}*", recorded.port, [], keeps_history=name in KEEP_HISTORY)


def running(name, port):
    """A server that was started by somebody else."""
    return Backend(name, port, [], keeps_history=name in KEEP_HISTORY, model=MODELS.get(name, "scripted"))


def start_llama():
    python = environments.python_of("llama")
    model, port = WORK / "scripted.gguf", processes.free_port()
    environments.run([python, PROGRAMS / "gguf_model.py", model])
    child = processes.start("llama", [python, PROGRAMS / "llama_server.py", model, port])
    processes.wait_for_models(child, port, 120)
    return Backend("llama", port, [child])


def start_litellm():
    """LiteLLM's proxy. Its Responses API is a bridge to the chat completions of llama.cpp's server."""
    python = environments.python_of("litellm")
    behind, port = start_llama(), processes.free_port()
    config = WORK / "litellm.yaml"
    config.write_text(f"""
model_list:
  - model_name: scripted
    litellm_params:
      model: openai/scripted
      api_base: http://127.0.0.1:{behind.port}/v1
      api_key: none
      use_chat_completions_api: true
litellm_settings:
  telemetry: false
general_settings:
  dangerously_permit_weak_or_unset_master_key: true
""")
    child = processes.start(
        "litellm", [python.parent / "litellm", "--config", config, "--host", "127.0.0.1", "--port", port],
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", "LITELLM_TELEMETRY": "False"},
    )
    processes.wait_for_models(child, port, 900)
    return Backend("litellm", port, [child, *behind.children])


def start_ogx():
    """OGX in front of llama.cpp's server. It keeps responses, for `previous_response_id`, in files of this run."""
    python = environments.python_of("ogx", least=(3, 12))
    behind, port, data = start_llama(), processes.free_port(), WORK / "ogx"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    config = data / "config.yaml"
    config.write_text(OGX.format(behind=behind.port, port=port, data=data))
    # It wants a table of OpenAI's tokenizer, and would download it; LiteLLM's package has it.
    table = next((environments.python_of("litellm").parents[1] / "lib").glob("*/site-packages/litellm/litellm_core_utils/tokenizers"))
    variables = {"HF_HUB_OFFLINE": "1", "TIKTOKEN_CACHE_DIR": str(table)}
    child = processes.start("ogx", [python, python.parent / "ogx", "run", config, "--port", port, "--insecure"], variables)
    processes.wait_for_models(child, port, 900)
    return Backend("ogx", port, [child, *behind.children], keeps_history=True, model=MODELS["ogx"])


def start_vllm():
    python = environments.python_of("vllm")
    model, port = WORK / "scripted", processes.free_port()
    environments.run([python, PROGRAMS / "hf_model.py", model])
    child = processes.start(
        "vllm",
        # Its command `vllm serve` looks for a package of another name.
        [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", "scripted", "--host", "127.0.0.1", "--port", port,
         "--dtype", "float32", "--max-model-len", "16384", "--max-num-seqs", "2", "--enforce-eager",
         "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"],
        {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_RESPONSES_API_STORE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"},
    )
    processes.wait_for_models(child, port, 900)
    return Backend("vllm", port, [child], keeps_history=True)


# Without a host in `server`, OGX listens on every address.
OGX = """
version: 2
distro_name: servers
apis: [files, inference, responses, tool_runtime, vector_io]
providers:
  inference:
  - provider_id: llama
    provider_type: remote::llama-cpp-server
    config: {{base_url: "http://127.0.0.1:{behind}/v1"}}
  responses:
  - provider_id: builtin
    provider_type: inline::builtin
    config:
      persistence:
        responses: {{table_name: responses, backend: sql_default}}
  files:
  - provider_id: files
    provider_type: inline::localfs
    config:
      storage_dir: {data}/files
      metadata_store: {{table_name: files_metadata, backend: sql_default}}
  vector_io:
  - provider_id: sqlite-vec
    provider_type: inline::sqlite-vec
    config:
      db_path: {data}/vectors.db
      persistence: {{namespace: vectors, backend: kv_default}}
  tool_runtime: []
storage:
  backends:
    kv_default: {{type: kv_sqlite, db_path: {data}/keys.db}}
    sql_default: {{type: sql_sqlite, db_path: {data}/store.db}}
  stores:
    metadata: {{namespace: registry, backend: kv_default}}
    inference: {{table_name: inference_store, backend: sql_default}}
    conversations: {{table_name: conversations, backend: sql_default}}
    prompts: {{table_name: prompts, backend: sql_default}}
    connectors: {{table_name: connectors, backend: sql_default}}
server:
  host: 127.0.0.1
  port: {port}
"""

STARTS = {"llama": start_llama, "litellm": start_litellm, "ogx": start_ogx, "vllm": start_vllm}
