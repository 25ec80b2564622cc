"""OrbitKV as vLLM's KV connector. See README.md beside this file.

`kv_connector="OrbitKVConnector", kv_connector_module_path="orbitkv.adapters.vllm"` is all that vLLM needs.
vLLM is imported by few modules of this package, and only when vLLM itself asks for the connector:

    connector                    vLLM's hooks, each handed on to one of the two sides
    scheduler                    the engine's scheduler: lookups, gate, hints, saving
    worker                       one rank: layout, restoring, staging
    orders, metadata             what the one tells the other
    options, versions, groups,   what is checked before anything runs
    namespace, weights
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "OrbitKVConnector":
        from orbitkv.adapters.vllm.connector import OrbitKVConnector

        return OrbitKVConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
