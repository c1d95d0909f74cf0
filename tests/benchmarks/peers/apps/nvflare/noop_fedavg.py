"""The coordinator's half: NVFlare's own FedAvg, which also says when a round begins."""

from noop_model import Marks, make_model, read_change
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg


class MarkedFedAvg(FedAvg):
    """FedAvg as it is delivered, starting from the no-op model and storing it after each round."""

    def __init__(self, sites: int, rounds: int, size: str, marks: str) -> None:
        super().__init__(
            num_clients=sites,
            num_rounds=rounds,
            persistor_id="",
            model=make_model(size),
            save_filename="model.fobs",
        )
        self._size = size
        self._marks = Marks(marks)

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Say that the round begins, then do as FedAvg does; it asks once a round, first of all."""
        self._marks.begin_round()
        return super().sample_clients(num_clients)

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        """Count who answered, then do as FedAvg does."""
        self._marks.count_answers(aggr_result.meta["nr_aggregated"])
        self._last = super().update_model(model, aggr_result)
        return self._last

    def run(self) -> None:
        """Run all rounds and say that they are over, or why they cannot be."""
        try:
            super().run()
        except Exception as error:
            self._marks.fail(error)
            raise
        self._marks.end(read_change(self._last.params, self._size))
