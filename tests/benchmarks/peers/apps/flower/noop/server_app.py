"""The coordinator's half: Flower's own FedAvg, which also says when a round begins."""

from collections.abc import Iterable

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from noop.noop_model import Marks, make_model, read_change

app = ServerApp()


class MarkedFedAvg(FedAvg):
    """FedAvg as it is delivered, with evaluation off and all sites in every round."""

    def __init__(self, sites: int, marks: Marks) -> None:
        super().__init__(
            fraction_evaluate=0.0,
            min_train_nodes=sites,
            min_available_nodes=sites,
        )
        self._marks = marks

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Say that the round begins, then do as FedAvg does."""
        self._marks.begin_round()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Count who answered, then do as FedAvg does."""
        came = list(replies)
        self._marks.count_answers(sum(not reply.has_error() for reply in came))
        return super().aggregate_train(server_round, came)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds and say that they are over, or why they cannot be."""
    size, sites, rounds = (context.run_config[name] for name in ("size", "sites", "rounds"))
    marks = Marks(str(context.run_config["marks"]))
    model = make_model(str(size))
    arrays = ArrayRecord({name: Array(array) for name, array in model.items()})
    strategy = MarkedFedAvg(int(sites), marks)
    try:
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=int(rounds))
    except Exception as error:
        marks.fail(error)
        raise
    last = {name: array.numpy() for name, array in result.arrays.items()}
    marks.end(read_change(last, str(size)))
