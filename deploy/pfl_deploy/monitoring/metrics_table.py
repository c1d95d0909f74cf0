"""The table of all numbers that the two programs expose, generated from the declarations in the code.

`python -m pfl_deploy.monitoring.metrics_table > deploy/prometheus/metrics.md` makes it anew after a change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pfl_client.daemon import exporter as site
from pfl_common.metric import Number
from pfl_server.status import exporter as coordinator

HEAD = """\
# Metrics

What `pfl-server` and `pfl-client` expose under `/metrics`, for Prometheus (OpenMetrics). This table is made from the
code by `python -m pfl_deploy.monitoring.metrics_table`; a test compares. A number that is not known is left out. The
coordinator's counters and summaries (`…_count`, `…_sum`) go on when it is started again with the same run; a site's
begin at 0 when the program starts, but for what left the building. Beside these, both programs expose their process's
own numbers (`process_…`, on Linux alone, and `python_…`): memory, CPU, open files.

Bytes are those of messages. What TLS, HTTP/2, TCP and IP add is not in them: some 330 bytes a call, and a site makes
three calls a round. On a loopback interface that is 0.4 % of a round with a model of 5 MB, and 15 % of one in which
`fedproto` sends prototypes of 1 kB. Where packets are as small as Ethernet's, their headers add another 4 to 5 %
(reckoned, not measured).

No label of the coordinator names a site. A site's page is served on the site's own machine; the coordinator never reads
it.
"""
SUFFIX = {"counter": "_total", "info": "_info", "gauge": "", "summary": ""}


def render() -> str:
    """The page as Markdown."""
    parts = (
        ("Coordinator", coordinator.NUMBERS, "the coordinator's operator"),
        ("Site", site.NUMBERS, "the site alone"),
    )
    return HEAD + "".join(_render(title, numbers, who) for title, numbers, who in parts)


def _render(title: str, numbers: Iterable[Number], who: str) -> str:
    lines = [f"\n## {title}\n", "| name | type | labels | meaning | who sees it |", "|---" * 5 + "|"]
    for number in numbers:
        name = f"`{number.name}{SUFFIX[number.kind]}`"
        cells = (name, number.kind, _describe_labels(number), number.words, who)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _describe_labels(number: Number) -> str:
    """Each label with the values it can have, where they are said."""
    if all(f"{label}:" in number.values for label in number.labels):
        return number.values
    names = ", ".join(number.labels)
    if not number.values:
        return names
    return f"{names}: {number.values}" if len(number.labels) == 1 else f"{names} ({number.values})"


if __name__ == "__main__":
    sys.stdout.write(render())
