"""The process that serves one arm: `python -m benches.single_node.arm ORDER`. Fresh for every arm.

`ORDER` is a file with an Order; the Result goes where it says. It ends with another code than 0 when the
arm could not be served, and then there is no result.
"""

import sys
from pathlib import Path

import msgspec

from benches.common import give_up
from benches.single_node.backing import backing_of
from benches.single_node.plan import Order, Result
from benches.single_node.serving import ServingEngine, serve
from benches.single_node.workloads import play
from orbitkv.adapters.errors import AdapterError


def main(order_path: Path) -> None:
    order = msgspec.json.decode(order_path.read_bytes(), type=Order)
    arm, places = order.arm, order.places
    kept: list[ServingEngine] = []

    def played(engine: ServingEngine) -> Result:
        kept.append(engine)
        with backing_of(places) as backing:
            return play(arm, engine, backing)

    try:
        result = serve(arm, places, played)
    except AdapterError as error:
        give_up(error.what.rstrip("."), error.why.rstrip("."), error.remedy)
    result.byte_mismatches = kept[0].byte_mismatches()
    Path(places.result).write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
