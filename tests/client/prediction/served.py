"""A finished model for tests, made as a site makes it: trained for a round, finished, written by the trainer."""

from __future__ import annotations

from pathlib import Path

from pfl_client.trainer.session import Workbench
from pfl_client.trainer_process.api import Done
from pfl_common.spec.run import Json, Kind
from tests.client.support.runs import Desk


def finish_site(folder: Path, method: str = "fedavg", **settings: Json) -> tuple[Desk, Path, Done]:
    """A site's folders, its serving model, and what it said at the end; below `hospital-a/runs/run-1` as a site's."""
    desk = Desk(folder, method, **settings)
    bench = Workbench()
    bench.open(desk.folder, desk.spec.to_json(), desk.init)
    trained = desk.job()
    bench.work(trained, lambda samples: None)
    model = folder / "state" / "hospital-a" / "runs" / "run-1" / "serving" / "serving.safetensors"
    model.parent.mkdir(parents=True)
    last = desk.job(Kind.FINISH, desk.spec.rounds, kept=trained.keep_as, since=1, serve_as=model)
    return desk, model, bench.work(last, lambda samples: None)
