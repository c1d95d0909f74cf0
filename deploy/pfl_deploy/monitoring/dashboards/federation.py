"""The dashboard *Federation*: runs as their coordinator sees them. No series names a site, but where the operator asks
for that (--site-metrics).
"""

from __future__ import annotations

from dataclasses import replace

from pfl_deploy.monitoring.dashboards.build import (
    BLUE,
    CLEAR,
    GREEN,
    RED,
    YELLOW,
    Dashboard,
    Look,
    Panel,
    Row,
    Variable,
    by_name,
    by_pattern,
    paint,
)
from pfl_deploy.monitoring.dashboards.queries import (
    ask_alone,
    ask_coordinator,
    gained_in_run,
    mean_of,
    when_running,
)
from pfl_deploy.monitoring.dashboards.upkeep import MACHINE, NETWORK, SITES

_NOW = Look(height=4, base=BLUE, decimals=0)

_OVER = 'pfl_run_state@{state=~"finished|stopped|failed"} == 1'
_END = (
    f"pfl_round_closed_timestamp_seconds@ and on (job, instance) {_OVER} "
    f"or time() + 0 * pfl_run_started_timestamp_seconds@ unless on (job, instance) {_OVER}"
)

_PROGRESS = Row(
    "Now",
    (
        Panel(
            "stat",
            "State",
            "The run that is served now, and how it stands. `failed`: the coordinator's log says why, see runbook "
            "PflRunFailed. `gathering` for long: sites are missing; `pfl status` names those that have come. Nobody: "
            "see runbook PflCoordinatorDown.",
            "none",
            (ask_coordinator("pfl_run_state@ == 1", "{{state}}"),),
            5,
            replace(_NOW, names=True, empty="nobody serves a run"),
        ),
        Panel(
            "stat",
            "Round",
            "The round under way, or the last one, and how many the run is to have. It stands still: look at “Attempt” "
            "and “Round open for”.",
            "none",
            (ask_coordinator("pfl_round@", "round"), ask_coordinator("pfl_rounds_planned@", "of")),
            4,
            _NOW,
        ),
        Panel(
            "stat",
            "Attempt",
            "Which attempt at the round this is. 2 happens; from 3 on the quorum keeps failing: see runbook "
            "PflQuorumFailing.",
            "none",
            (ask_coordinator("pfl_round_attempt@", "attempt"),),
            3,
            replace(_NOW, base=GREEN, steps=((2, YELLOW), (3, RED)), empty="no round yet"),
        ),
        Panel(
            "stat",
            "Round open for",
            "Since the round under way was opened, or the last attempt at it. Far above “Time of a round”: see runbook "
            "PflRoundTooLong.",
            "s",
            (ask_coordinator(when_running("time() - pfl_round_opened_timestamp_seconds@"), "open for"),),
            3,
            replace(_NOW, empty="no round is open"),
        ),
        Panel(
            "stat",
            "Awaited",
            "Sites this round still waits for; in the state `finishing`, those that have yet to fetch their model. "
            "The same number for long: `pfl status` names them.",
            "none",
            (ask_coordinator("pfl_round_awaited@", "awaited"),),
            3,
            replace(_NOW, empty="no round yet"),
        ),
        Panel(
            "stat",
            "Time left",
            "Rounds not yet committed, the one under way among them, times the mean of those that are: a guess that "
            "gets better. It grows: rounds get slower, “Round time by phase” shows where.",
            "s",
            (
                ask_coordinator(
                    when_running(
                        "(pfl_rounds_planned@ - pfl_round@ + 1) * on (job, instance) (sum by (job, instance) "
                        '(pfl_round_seconds_sum@{outcome="committed"}) / (sum by (job, instance) '
                        '(pfl_round_seconds_count@{outcome="committed"}) > 0))'
                    ),
                    "left",
                ),
            ),
            3,
            replace(_NOW, empty="not known"),
        ),
        Panel(
            "stat",
            "Run time",
            "From the run's begin until now, breaks included; of a run that is over, until its last round was closed. "
            "Nothing to do about it; runs are compared on *Comparison of runs*.",
            "s",
            (ask_coordinator(f"({_END}) - pfl_run_started_timestamp_seconds@", "run time"),),
            3,
            replace(_NOW, empty="no round was closed"),
        ),
    ),
)

_ACCURACY = 'pfl_accuracy_ratio@{split="test", view="combined", statistic='
_MACRO, _STD = f'{_ACCURACY}"macro"}}', f'ignoring (statistic) {_ACCURACY}"std"}}'
_HIDDEN = {"legend": True, "tooltip": False, "viz": False}

_LEARNING = Row(
    "Learning",
    (
        Panel(
            "timeseries",
            "Accuracy over sites",
            "Mean of the sites with a band of one standard deviation around it (where several runs are served at once: "
            "without it), mean of all samples, and the worst tenth of the sites, on their test data. A wide band or a "
            "low worst tenth: the model serves some sites badly; compare with a method that personalizes more, or "
            "look at a site's own dashboard. A fall for several rounds: training diverges, lower the learning rate "
            "in a new run. Nothing at all: fewer sites have measured than --fewest-reporters (5) asks for.",
            "percentunit",
            (
                ask_alone(f"clamp_max({_MACRO} + {_STD}, 1)", "mean + deviation"),
                ask_alone(f"clamp_min({_MACRO} - {_STD}, 0)", "mean − deviation"),
                ask_coordinator(_MACRO, "mean of sites"),
                ask_coordinator(f'{_ACCURACY}"micro"}}', "mean of samples"),
                ask_coordinator(f'{_ACCURACY}"worst_decile"}}', "worst tenth of sites"),
            ),
            12,
            Look(
                height=10,
                low=0,
                high=1,
                overrides=(
                    by_name(
                        "mean + deviation",
                        custom_lineWidth=0,
                        custom_showPoints="never",
                        custom_fillBelowTo="mean − deviation",
                        custom_fillOpacity=15,
                        custom_hideFrom=_HIDDEN,
                        color={"mode": "fixed", "fixedColor": BLUE},
                    ),
                    by_name(
                        "mean − deviation",
                        custom_lineWidth=0,
                        custom_showPoints="never",
                        custom_hideFrom=_HIDDEN,
                        color={"mode": "fixed", "fixedColor": BLUE},
                    ),
                    # In its turn of the palette, so that those of several runs differ.
                    by_pattern("^mean of sites", custom_lineWidth=3),
                ),
                empty="nothing was measured yet, or by too few sites",
            ),
        ),
        Panel(
            "timeseries",
            "Accuracy by split and head",
            "Mean of the sites for each split of the data and each head of the method. Training far above test: the "
            "sites' models learn by heart; fewer epochs, or more data.",
            "percentunit",
            (ask_coordinator('pfl_accuracy_ratio@{statistic="macro"}', "{{split}} {{view}}"),),
            6,
            Look(height=10, low=0, high=1, empty="nothing was measured yet, or by too few sites"),
        ),
        Panel(
            "timeseries",
            "Variation over sites",
            "Deviation over mean: 0 is equal accuracy everywhere. It grows while the mean grows: the gain goes to "
            "those who were well off.",
            "none",
            (ask_coordinator('pfl_accuracy_ratio@{split="test", statistic="variation"}', "{{view}}"),),
            3,
            Look(height=10, low=0, decimals=2, empty="nothing was measured yet, or by too few sites"),
        ),
        Panel(
            "timeseries",
            "Gain over baselines",
            "Mean accuracy less that of the newest finished run of `local` and of `fedavg` in the same state folder, "
            "in percentage points; empty while there is none. Below the red line against local at the end: sites "
            "would do better alone, so compare methods.",
            "percentunit",
            (ask_coordinator("pfl_gain_ratio@", "above {{baseline}}"),),
            3,
            Look(
                height=10,
                base=RED,
                steps=((0, CLEAR),),
                empty="no finished run of local or fedavg to compare with",
            ),
        ),
    ),
)

_TIME = Row(
    "Time",
    (
        Panel(
            "timeseries",
            "Round time by phase",
            "Mean seconds of a phase in the chosen window: download, work, upload and verify for each site, the "
            "others for each round. `work` has grown: sites are busy. `upload` or `download`: the line. `fold` or "
            "`commit`: this machine or its disk.",
            "s",
            (ask_coordinator(mean_of("pfl_phase_seconds", "phase"), "{{phase}}"),),
            12,
            Look(stacked=True, bars=True),
        ),
        Panel(
            "timeseries",
            "Time of a round",
            "Mean seconds from opening to end in the chosen window, by outcome. Abandoned rounds as long as the "
            "deadline: sites are too slow for it.",
            "s",
            (ask_coordinator(mean_of("pfl_round_seconds", "outcome"), "{{outcome}}"),),
            6,
        ),
        Panel(
            "timeseries",
            "Rounds in the window",
            "Rounds that ended in the chosen window, by outcome. Abandoned ones among them: see runbook "
            "PflQuorumFailing.",
            "none",
            (ask_coordinator(gained_in_run("pfl_rounds_total@"), "{{outcome}}"),),
            6,
            Look(
                stacked=True,
                bars=True,
                overrides=(paint("^committed", GREEN), paint("^abandoned", RED)),
            ),
        ),
    ),
)

FEDERATION = Dashboard(
    "pfl-federation",
    "Federation",
    "Runs as their coordinator sees them, one after the other: progress, accuracy and fairness, time, bytes, sites, "
    "the machine. What to do about an alert stands in deploy/prometheus/runbook.md.",
    (
        Variable("job", "Job", "label_values(pfl_run_info, job)", many=True),
        Variable("instance", "Coordinator", 'label_values(pfl_run_info{job=~"$job"}, instance)', many=True),
        Variable(
            "run",
            "Run",
            'label_values(pfl_run_info{job=~"$job", instance=~"$instance"}, run)',
            many=True,
            words="All: whatever was served in the time range; the row “Now” has what is served now. Choose one run "
            "where several coordinators are watched: panels that stack then add up what is one run's.",
        ),
        Variable("window", "Window", "5m,15m,1h,6h", "custom", chosen="15m"),
    ),
    (_PROGRESS, _LEARNING, _TIME, NETWORK, SITES, MACHINE),
)
