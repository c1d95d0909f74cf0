"""One way of training in a process of its own: `python -m tests.benchmarks.training.worker '{"way": "ours", ...}'`.

For each line of its input it trains one epoch, from the same model each time, and prints the processor's seconds.
"""

from __future__ import annotations

import copy
import json
import sys
from time import process_time

import torch

from pfl_client.trainer.device import settle
from pfl_common.app.allocator import keep_batches_warm
from tests.benchmarks.training.by_hand import BY_HAND
from tests.benchmarks.training.measuring import Network, build, train_ours


def main() -> int:
    """Train as told, until the input ends."""
    said = json.loads(sys.argv[1])
    ours, method = said["way"] == "ours", said["method"]
    torch.set_num_threads(1)
    if ours:
        # As a trainer when it takes a run.
        settle(1)
        keep_batches_warm()
    case = build(method, Network(**said["network"]))
    for _ in sys.stdin:
        twin = copy.deepcopy(case.participant)
        began = process_time()
        if ours:
            train_ours(case, twin)
        else:
            BY_HAND[method](twin, case.site)
        sys.stdout.write(f"{process_time() - began}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
