"""One engine on one machine, with OrbitKV, with the engine's own offloading, or with neither.

`python -m benches.single_node --help`. `plan` says what an arm is, `sizes` what a fraction of the pool
comes to, `workloads` what is served in which order; `arm` is the process that serves it, on one of the
engines (`toy_engine`, `vllm_engine`); `managing` runs the manager beside it; `judging`, `joined` and
`report` say what came of it.
"""
