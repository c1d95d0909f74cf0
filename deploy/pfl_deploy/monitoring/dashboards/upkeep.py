"""The part of *Federation* about a run's network, its sites and the coordinator's machine."""

from __future__ import annotations

from pfl_deploy.monitoring.dashboards.build import (
    BLUE,
    CLEAR,
    GREEN,
    RED,
    YELLOW,
    Look,
    Panel,
    Row,
    by_pattern,
    make_thresholds,
    paint,
)
from pfl_deploy.monitoring.dashboards.queries import ask_coordinator, gained_in_run, when_running

_COMMITTED = 'pfl_rounds_total@{outcome="committed"}'
_EACH_ROUND = f"/ on (job, instance) group_left () (sum by (job, instance) ({gained_in_run(_COMMITTED)}) > 0)"

NETWORK = Row(
    "Network",
    (
        Panel(
            "timeseries",
            "Bytes per round",
            "What crossed in the chosen window, for each round committed in it; down is to the sites. More than "
            "twice a model for each site of the cohort: transfers are repeated, so lines break.",
            "bytes",
            (
                ask_coordinator(
                    f"sum by (job, instance, direction, kind) ({gained_in_run('pfl_bytes_total@')}) {_EACH_ROUND}",
                    "{{direction}} {{kind}}",
                ),
            ),
            10,
            Look(stacked=True, bars=True, empty="no round was committed in the window"),
        ),
        Panel(
            "timeseries",
            "Bytes per second",
            "As they cross now, by direction. Flat at one height for long: the line is full, rounds wait for it.",
            "Bps",
            (
                ask_coordinator(
                    "sum by (job, instance, direction) (rate(pfl_bytes_total@[$__rate_interval]))",
                    "{{direction}}",
                ),
            ),
            8,
        ),
        Panel(
            "bargauge",
            "Bytes in total",
            "Of the run, through all restarts of its coordinator. `calls` that are not small beside `train`: very many "
            "sites ask for work; nothing is broken.",
            "bytes",
            (ask_coordinator("pfl_bytes_total@", "{{direction}} {{kind}}"),),
            6,
            Look(base=BLUE),
        ),
    ),
)

SITES = Row(
    "Sites",
    (
        Panel(
            "timeseries",
            "Cohort",
            "Sites asked in the round, counted in the last closed one, still awaited. Counted far below asked: see "
            "“Updates that did not come”.",
            "none",
            (
                ask_coordinator("pfl_round_cohort@", "asked"),
                ask_coordinator("pfl_round_counted@", "counted"),
                ask_coordinator("pfl_round_awaited@", "awaited"),
            ),
            6,
            Look(low=0, decimals=0),
        ),
        Panel(
            "timeseries",
            "Registered sites",
            "Sites that are heard, that are silent (`away`) and that said goodbye (`left`). `away` for more than "
            "minutes: see runbook PflSitesAway.",
            "none",
            (ask_coordinator("pfl_sites@", "{{state}}"),),
            6,
            Look(
                stacked=True,
                low=0,
                decimals=0,
                overrides=(paint("^here", GREEN), paint("^away", YELLOW), paint("^left", BLUE)),
            ),
        ),
        Panel(
            "timeseries",
            "Updates that did not come",
            "In the chosen window, by reason and by how far the site was; `drawn` are drop-outs that the run itself "
            "draws. `lease`: the site was silent. `deadline`: too slow. Others are the site's own words: see runbook "
            "PflSiteDeclining.",
            "none",
            (ask_coordinator(gained_in_run("pfl_losses_total@"), "{{reason}} ({{stage}})"),),
            6,
            Look(stacked=True, bars=True, empty="none seen"),
        ),
        Panel(
            "timeseries",
            "Refusals",
            "Messages the coordinator did not take in the chosen window, by code. A few `late` are harmless; for "
            "others, and for many, see runbook PflRefusalsRising.",
            "none",
            (ask_coordinator(f"{gained_in_run('pfl_refusals_total@')} > 0", "{{code}}"),),
            6,
            Look(stacked=True, bars=True, empty="none seen"),
        ),
        Panel(
            "bargauge",
            "Rounds each site was counted in",
            "Of the run, through all restarts; with --site-metrics alone, because it names the sites. One that stands "
            "far behind: `pfl status` says what it does, “Updates that did not come” why.",
            "none",
            (ask_coordinator("pfl_member_counted_total@", "{{site}}"),),
            12,
            Look(decimals=0, empty="not asked for: --site-metrics"),
        ),
        Panel(
            "timeseries",
            "Sites that are here, by name",
            "1 while a site is heard, 0 while it is away or has left; with --site-metrics alone. 0 for more than "
            "minutes: ask that site's people, and see runbook PflSitesAway.",
            "none",
            (ask_coordinator("pfl_member_here@", "{{site}}"),),
            12,
            Look(low=0, high=1, decimals=0, empty="not asked for: --site-metrics"),
        ),
    ),
)

MACHINE = Row(
    "Machine",
    (
        Panel(
            "bargauge",
            "Days until certificates end",
            "`site_soonest` is the first of the registered sites; it is renewed below 10 days. A full bar is 30 days "
            "and more. Red or yellow: see runbook PflCertificateEndsSoon.",
            "d",
            (ask_coordinator("(pfl_certificate_end_timestamp_seconds@ - time()) / 86400", "{{of}}"),),
            6,
            Look(
                base=RED,
                steps=((3, YELLOW), (8, GREEN)),
                low=0,
                high=30,
                decimals=0,
                # The alert about these two begins earlier: nobody renews them while they are in use.
                overrides=(
                    by_pattern(
                        "^(coordinator|authority)",
                        thresholds=make_thresholds(RED, ((3, YELLOW), (14, GREEN))),
                    ),
                ),
            ),
        ),
        Panel(
            "timeseries",
            "Age of the checkpoint, and since the last round",
            "While a run is under way: the last round's falls to 0 with each committed one, the checkpoint's when the "
            "disk is looked at next, every 30 seconds. It goes on growing: see runbook PflCheckpointOld.",
            "s",
            (
                ask_coordinator(
                    when_running("time() - pfl_checkpoint_timestamp_seconds@"), "newest checkpoint"
                ),
                ask_coordinator(
                    when_running("time() - pfl_round_closed_timestamp_seconds@"), "last committed round"
                ),
            ),
            6,
            Look(low=0, empty="no run was under way"),
        ),
        Panel(
            "timeseries",
            "Disk",
            "Free on the disk of the state folder, and taken by this run. Free falls towards the red line: see "
            "runbook PflDiskFilling.",
            "bytes",
            (
                ask_coordinator("pfl_disk_free_bytes@", "free"),
                ask_coordinator("pfl_disk_used_bytes@", "taken by the run"),
            ),
            4,
            Look(base=RED, steps=((2.0 * 1024**3, CLEAR),), low=0),
        ),
        Panel(
            "timeseries",
            "Memory",
            "The coordinator's resident memory: some models, whatever the number of sites. It climbs for hours: see "
            "runbook PflMemoryClimbing.",
            "bytes",
            (ask_coordinator("process_resident_memory_bytes@", "resident"),),
            4,
            Look(low=0),
        ),
        Panel(
            "timeseries",
            "Processor",
            "Cores in use by the coordinator. At the machine's number while `fold` or `verify` is long: give it more.",
            "none",
            (ask_coordinator("rate(process_cpu_seconds_total@[$__rate_interval])", "cores"),),
            4,
            Look(low=0, decimals=2),
        ),
    ),
)
