"""The rounds whose models the sites kept as their best, where a run does that and the sites' histories are known."""

from __future__ import annotations

from pfl_deploy.report.facts import Facts
from pfl_deploy.report.page.html import long_table, paragraph, section


def tell_best_rounds(facts: Facts) -> str:
    """One row for each site: its best round by its own validation samples, chosen without its test samples."""
    kept = {site: history.best for site, history in facts.run.histories.items() if history.best is not None}
    if not kept:
        return ""
    rows = [
        [site, str(best["round"]), f"{100 * best['accuracy']:.2f}", f"{best['samples']:.0f}"]
        for site, best in sorted(kept.items())
    ]
    words = (
        "Each site kept the model of the round that did best on its own validation samples, beside the last one "
        "(pfl predict --which best). The best of several numbers flatters: test accuracies above are of the last model."
    )
    head = ["site", "best round", "accuracy on validation samples", "samples"]
    return section(
        "best-rounds",
        "The best round at each site",
        paragraph(words, "soft"),
        long_table(head, rows, "sites"),
    )
