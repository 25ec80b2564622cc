"""Serve with a whole engine on one machine, and tell what the cache made of it.

    python -m benches.single_node --engine vllm --backend orbitkv --model auto --workload serial --output DIR

Each concurrency is an arm: a fresh manager and a fresh engine process. Sizes are numbers or, as 0.28pool,
fractions of the pool; the defaults are the reference window's proportions. A random model of a size that a
processor can serve is made for `--model auto`. A working set that fits the pool is refused, except by the
serial workload: it would measure nothing. Outputs are compared with what each prompt gave when it was first
served; where one differs, the prompt is served again cold and as a GPU hit without OrbitKV, and both are
kept (`controls.json`). Medium and I/O engine stand beside the figures.
"""

import signal
from pathlib import Path
from typing import get_args

import click
import msgspec

from benches.common import give_up, medium
from benches.single_node import toy_engine
from benches.single_node.plan import Arm, Backend, EngineKind, Workload
from benches.single_node.random_model import MID, make_model
from benches.single_node.report import conditions_of, write_summary
from benches.single_node.running import run_arm
from benches.single_node.sizes import GIB, Amount, AmountType, kv_bytes_per_token, positions_of

AMOUNT = AmountType()


def numbers(ctx: click.Context, param: click.Parameter, text: str) -> tuple[int, ...]:
    """`1,2,8`."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise click.BadParameter(f"{text!r} is not a list of positive numbers, as in 1,2,8")
    return found


def named_values(
    ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str | int | float | bool]:
    """`held_blocks_fraction=0.6`: a number or true or false where it reads as one, else text."""
    found: dict[str, str | int | float | bool] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise click.BadParameter(f"{text!r} is no NAME=VALUE")
        try:
            found[name] = msgspec.json.decode(value, type=int | float | bool)
        except msgspec.MsgspecError:
            found[name] = value
    return found


@click.command()
@click.option("--engine", type=click.Choice(get_args(EngineKind)), default="vllm", show_default=True)
@click.option(
    "--backend", type=click.Choice(get_args(Backend)), default="orbitkv", show_default=True,
    help="OrbitKV, vLLM's own offloading into ordinary memory, or nothing behind the GPU.",
)  # fmt: skip
@click.option("--model", default="auto", show_default=True, help="A folder, or auto.")
@click.option("--workload", type=click.Choice(get_args(Workload)), default="serial", show_default=True)
@click.option("--concurrencies", default="1", callback=numbers, help="As in 1,2,8. Serial: always 1.")
@click.option("--duration-seconds", type=click.FloatRange(0.1), default=30.0, show_default=True)
@click.option("--max-requests", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--working-set", type=AMOUNT, default="1.69pool", show_default=True, help="Prompts, or Xpool.")
@click.option("--reuse-ratio", type=click.FloatRange(0, 1), default=0.75, show_default=True)
@click.option("--lengths", default="4096", show_default=True, callback=numbers, help="Of prompts, in tokens.")
@click.option("--gpu-tokens", type=AMOUNT, default="0.28pool", show_default=True)
@click.option("--output-tokens", type=click.IntRange(1), default=16, show_default=True)
@click.option("--host-gib", type=click.FloatRange(0.001), default=0.4375, show_default=True, help="The pool.")
@click.option("--query-budget-gib", type=AMOUNT, default="0.75pool", show_default=True)
@click.option("--ssd-gib", type=AMOUNT, default="4pool", show_default=True)
@click.option("--queue-warmup", type=click.Choice(("on", "off")), default="off", show_default=True)
@click.option("--trace-transfers", is_flag=True, help="Also write and join both timelines.")
@click.option(
    "--connector-option", "options", multiple=True, callback=named_values, metavar="NAME=VALUE",
    help="Of OrbitKV's connector, as held_blocks_fraction=0.6.",
)  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="A new folder.")
def main(
    engine: EngineKind,
    backend: Backend,
    model: str,
    workload: Workload,
    concurrencies: tuple[int, ...],
    duration_seconds: float,
    max_requests: int,
    working_set: Amount,
    reuse_ratio: float,
    lengths: tuple[int, ...],
    gpu_tokens: Amount,
    output_tokens: int,
    host_gib: float,
    query_budget_gib: Amount,
    ssd_gib: Amount,
    queue_warmup: str,
    trace_transfers: bool,
    options: dict[str, str | int | float | bool],
    seed: int,
    output: Path,
) -> None:
    if engine == "toy" and backend != "orbitkv":
        give_up(f"The toy engine has no backend {backend}", "It is OrbitKV's own", "Use --backend orbitkv")
    try:
        output.mkdir(parents=True)
    except FileExistsError:
        give_up(f"{output} exists", "A run never mixes its files with another's", "Name another --output")
    # As Ctrl-C: on the way out everything that was started is ended, and the page file removed.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    model, per_token, page_tokens = model_of(engine, model, output, max(lengths) + output_tokens)
    pool_bytes = int(host_gib * GIB)
    arms = [
        Arm(
            engine=engine,
            backend=backend,
            model=model,
            workload=workload,
            concurrency=concurrency,
            duration_s=duration_seconds,
            max_requests=max_requests,
            prefixes=working_set.units(pool_bytes, max(lengths) * per_token),
            reuse_ratio=reuse_ratio,
            lengths=lengths,
            output_tokens=output_tokens,
            gpu_tokens=gpu_tokens.bytes(pool_bytes, per_token) // per_token // page_tokens * page_tokens,
            page_tokens=page_tokens,
            kv_bytes_per_token=per_token,
            pool_bytes=pool_bytes,
            query_budget_bytes=query_budget_gib.bytes(pool_bytes, GIB),
            ssd_bytes=ssd_gib.bytes(pool_bytes, GIB),
            queue_warmup=queue_warmup == "on",
            trace_transfers=trace_transfers,
            seed=seed,
            connector_options=options,
        )
        for concurrency in ((1,) if workload == "serial" else concurrencies)
    ]
    check(arms[0])
    conditions = conditions_of(medium(output))
    judged = [run_arm(arm, output / arm.name) for arm in arms]
    click.echo(write_summary(output, judged, conditions))


def model_of(engine: str, model: str, output: Path, tokens: int) -> tuple[str, int, int]:
    """(folder, bytes of KV per token, tokens of a page)"""
    if engine == "toy":
        return "embedded", toy_engine.KV_BYTES_PER_TOKEN, toy_engine.PAGE_TOKENS
    from benches.single_node import vllm_engine

    try:
        folder = make_model(MID, output / "model") if model == "auto" else Path(model)
        per_token, positions = kv_bytes_per_token(folder, vllm_engine.DTYPE), positions_of(folder)
    except ImportError as missing:
        give_up(
            f"A model cannot be made: {missing}",
            "This Python has no engine",
            "Run it in an engine's environment, as .env-vllm-0.29 of `python3 .ci/do engines vllm-0.29`",
        )
    except (OSError, KeyError, ValueError) as error:
        give_up(f"{model} cannot be served", f"Its config cannot be read ({error})", "Name a model's folder")
    if tokens > positions:
        give_up(
            f"Prompts and outputs of {tokens} tokens do not fit",
            f"The model has {positions} positions",
            "Give shorter --lengths",
        )
    return str(folder), per_token, vllm_engine.BLOCK_TOKENS


def check(arm: Arm) -> None:
    mib = 1 << 20
    if arm.workload != "serial" and arm.working_set_bytes <= arm.pool_bytes:
        give_up(
            f"The working set of {arm.prefixes} prompts has {arm.working_set_bytes / mib:.0f} MiB "
            f"and fits the pool of {arm.pool_bytes / mib:.0f} MiB",
            "Nothing would have to be read again, and the window would measure nothing",
            "Give a larger --working-set or a smaller --host-gib",
        )
    if max(arm.lengths) + arm.output_tokens > arm.gpu_tokens:
        give_up(
            f"A request of {max(arm.lengths)} tokens and its output do not fit {arm.gpu_tokens} GPU tokens",
            "It could never run",
            "Give more --gpu-tokens or shorter --lengths",
        )


if __name__ == "__main__":
    main()
