"""The neural networks a federation can train, each cut into an encoder and a head.

`build` makes one by name; `names` lists those of this house. None of these needs torchvision: they are small and
written out, and their parameters' names are ours, so that a checkpoint outlives a change of library. torchvision's
own networks are `torchvision:` and their name (`torchvision_networks`, which `torchvision_import` lets in);
installed packages may bring others (`app.plugins`).
"""

from pfl_common.models.backbone import Backbone
from pfl_common.models.catalogue import build, check_name, describe, list_torchvision, names
from pfl_common.models.projector import ProjectorShape, build_projector

__all__ = [
    "Backbone",
    "ProjectorShape",
    "build",
    "build_projector",
    "check_name",
    "describe",
    "list_torchvision",
    "names",
]
