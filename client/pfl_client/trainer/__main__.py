"""`python -m pfl_client.trainer ADDRESS`: started by the daemon only."""

import sys

from pfl_client.trainer.loop import main

if __name__ == "__main__":
    main(sys.argv[1])
