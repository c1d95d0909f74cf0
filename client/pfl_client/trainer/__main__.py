"""`python -m pfl_client.trainer ADDRESS NICENESS`: started by the daemon only."""

import os
import sys

from pfl_common.app.loading import loading

with loading():
    from pfl_client.trainer.loop import main

if __name__ == "__main__":
    # Before any thread is there: on Linux each has a niceness of its own, and takes it from who starts it.
    address, *niceness = sys.argv[1:]
    os.nice(int(niceness[0]) if niceness else 0)
    main(address)
