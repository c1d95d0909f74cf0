"""A site's half: change one number and send the model back, until there are no more rounds."""

import argparse

import nvflare.client as flare
from noop_model import change_one_number


def main() -> None:
    """Answer every round with the model as it came, but for one number."""
    words = argparse.ArgumentParser()
    words.add_argument("--size", required=True)
    size = words.parse_args().size
    flare.init()
    while flare.is_running():
        received = flare.receive()
        if received is None:
            break
        changed = change_one_number(received.params, size)
        flare.send(flare.FLModel(params=changed, meta={"NUM_STEPS_CURRENT_ROUND": 1}))


if __name__ == "__main__":
    main()
