"""Read by every interpreter of a benchmark at its start: the folder `methods` stands beside the product's own."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


class Beside:
    """Finds the package of methods as the other finders do, and gives it one more folder to look in."""

    def find_spec(self, name, path=None, target=None):
        if name != "pfl_common.methods":
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                spec.submodule_search_locations.append(os.path.join(os.path.dirname(HERE), "methods"))
                return spec
        return None


sys.meta_path.insert(0, Beside())

if os.environ.get("BENCHMARK_STACKS"):
    import stacks

    stacks.watch(os.environ["BENCHMARK_STACKS"])

if os.environ.get("BENCHMARK_COSTS"):
    import costs

    costs.watch(os.environ["BENCHMARK_COSTS"])
