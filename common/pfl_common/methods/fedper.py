"""FedPer: share what turns an image into features, and keep at each site the last layer that names the class.

Arivazhagan et al., Federated Learning with Personalization Layers (arXiv:1912.00818, 2019).
Rule: each site trains encoder and head together for E epochs, as one network with one loss; the next
encoder is the mean weighted by training samples.
Travels: the encoder, less what `bn_policy` keeps at home. Stays: the head, batch-norm statistics, counters.
Departures: the paper varies how many of the last blocks are personal; here it is the head alone. Every site's
head starts from the same first values.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from pfl_common.halves import STRICT, Averaging, LocalData, Metrics, Participant, Settings
from pfl_common.learning import sgd
from pfl_common.partition import travelling
from pfl_common.run import Task


@dataclass(frozen=True, config=STRICT)
class Config(Settings):
    """FedPer has no symbols of its own."""


class Client(Participant):
    """Train the received encoder together with one's own head."""

    def travels(self, phase: str) -> Iterable[str]:
        """The encoder."""
        return travelling(self, self.settings.bn_policy, ["encoder"])

    def learn(self, data: LocalData, task: Task) -> Metrics:
        """E epochs of SGD on the cross entropy, encoder and head in the same step."""
        loss = sgd.train(
            self, self.parameters(), lambda x, y: cross_entropy(self(x), y), data=data, task=task
        )
        return {"loss": loss}


Server = Averaging
DIAGNOSTICS = {"loss": "Cross entropy in the last epoch of a site's training."}
"""What is told by `learn`, in a sentence."""
SHOWS = ""
