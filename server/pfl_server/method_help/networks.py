"""`--list-backbones`: the networks a run can name, and where each comes from."""

from __future__ import annotations

from importlib.metadata import version

from rich.console import Console

from pfl_common import models
from pfl_common.app import plugins
from pfl_common.spec.run import Json

OWN = "pfl"


def list_all() -> list[Json]:
    """Every network as plain values: its name, what it is, what it comes from."""
    theirs = f"torchvision {version('torchvision')}"
    return [
        *(_row(name, models.describe(name), OWN) for name in models.names()),
        *(_row(name, "", _owner(name)) for name in plugins.names("backbone")),
        *(_row(name, "", theirs) for name in models.list_torchvision()),
    ]


def show_all(console: Console) -> None:
    """Our own with a sentence, packages' with the package, torchvision's by name."""
    for name in models.names():
        console.print(f"{name}: {models.describe(name)}", markup=False)
    for name in plugins.names("backbone"):
        console.print(f"{name}: from the installed package {_owner(name)}", markup=False)
    console.print(f"\nOf torchvision {version('torchvision')}, for pictures:", markup=False)
    console.print("  ".join(models.list_torchvision()), markup=False)
    console.print("A network that does not end in a linear layer (squeezenet) is refused.", markup=False)


def _row(name: str, about: str, owner: str) -> Json:
    return {"backbone": name, "about": about, "from": owner}


def _owner(name: str) -> str:
    plugin = plugins.find("backbone", name, models.names())
    return str(plugin.package) if plugin else OWN
