"""Read by every interpreter that has this folder on its path: the folder `methods` stands beside the product's own."""

import os
import sys

METHODS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "methods")


class Beside:
    """Finds the package of methods as the other finders do, and gives it one more folder to look in."""

    def find_spec(self, name, path=None, target=None):
        """The package's own spec with one folder more; nothing for all other names."""
        if name != "pfl_common.methods":
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(spec for spec in found if spec is not None)
        spec.submodule_search_locations.append(METHODS)
        return spec


sys.meta_path.insert(0, Beside())
