"""The neural networks a federation can train, each cut into an encoder and a head.

`build` makes one by name; `names` lists them. None of them needs torchvision: they are small and written out,
and their parameters' names are ours, so that a checkpoint outlives a change of library. `vision` is the door
to torchvision for those who want its transforms.
"""

from pfl_common.models.backbone import Backbone
from pfl_common.models.catalogue import build, names
from pfl_common.models.projector import ProjectorShape, build_projector

__all__ = ["Backbone", "ProjectorShape", "build", "build_projector", "names"]
