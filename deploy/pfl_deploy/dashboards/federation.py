"""The dashboard *Federation*: one run as its coordinator sees it. No series names a site."""

from __future__ import annotations

from dataclasses import replace

from pfl_deploy.dashboards.asking import ask_coordinator, gained, mean_of
from pfl_deploy.dashboards.building import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    Dashboard,
    Look,
    Panel,
    Row,
    Variable,
    by_name,
)
from pfl_deploy.dashboards.upkeep import MACHINE, NETWORK, SITES

_NOW = Look(height=4, base=BLUE, decimals=0)

_PROGRESS = Row(
    "Now",
    (
        Panel(
            "stat",
            "State",
            "How the run stands. `failed`: the coordinator's log says why, see runbook PflRunFailed. `gathering` for "
            "long: sites are missing; `pfl status` names those that have come.",
            "none",
            (ask_coordinator("pfl_run_state@ == 1", "{{state}}"),),
            4,
            replace(_NOW, names=True),
        ),
        Panel(
            "stat",
            "Progress",
            "The round under way among those planned. It stands still: look at “Attempt” and “Round open for”.",
            "percentunit",
            (ask_coordinator("pfl_round@ / pfl_rounds_planned@", "rounds begun"),),
            4,
            replace(_NOW, low=0, high=1),
        ),
        Panel(
            "stat",
            "Attempt",
            "Which attempt at the round this is. 2 happens; from 3 on the quorum keeps failing: see runbook "
            "PflQuorumFailing.",
            "none",
            (ask_coordinator("pfl_round_attempt@", "attempt"),),
            3,
            replace(_NOW, base=GREEN, steps=((2, YELLOW), (3, RED))),
        ),
        Panel(
            "stat",
            "Round open for",
            "Since the round was opened. Far above the usual time: see runbook PflRoundTooLong. After the run it "
            "only says how long that is ago.",
            "s",
            (ask_coordinator("time() - pfl_round_opened_timestamp_seconds@", "open for"),),
            3,
            _NOW,
        ),
        Panel(
            "stat",
            "Awaited",
            "Sites this round still waits for. The same number for long: `pfl status` names them.",
            "none",
            (ask_coordinator("pfl_round_awaited@", "awaited"),),
            3,
            _NOW,
        ),
        Panel(
            "stat",
            "Time left",
            "Rounds to come times the usual time of a round: a guess that gets better. It grows: rounds get slower, "
            "“Round time by phase” shows where.",
            "s",
            (
                ask_coordinator(
                    "(pfl_rounds_planned@ - pfl_round@) * on (job, instance) (sum by (job, instance) "
                    '(pfl_round_seconds_sum@{outcome="committed"}) / sum by (job, instance) '
                    '(pfl_round_seconds_count@{outcome="committed"}))',
                    "left",
                ),
            ),
            4,
            _NOW,
        ),
        Panel(
            "stat",
            "Running for",
            "Since the run began, breaks included. Nothing to do about it; runs are compared on *Comparison of runs*.",
            "s",
            (ask_coordinator("time() - pfl_run_started_timestamp_seconds@", "running for"),),
            3,
            _NOW,
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
            "Mean of the sites with a band of one standard deviation around it, mean of all samples, and the worst "
            "tenth of the sites, on their test data. A wide band or a low worst tenth: the model serves some sites "
            "badly; compare with a method that personalizes more, or look at a site's own dashboard. A fall for "
            "several rounds: training diverges, lower the learning rate in a new run.",
            "percentunit",
            (
                ask_coordinator(f"clamp_max({_MACRO} + {_STD}, 1)", "mean + deviation"),
                ask_coordinator(f"clamp_min({_MACRO} - {_STD}, 0)", "mean − deviation"),
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
                        custom_fillBelowTo="mean − deviation",
                        custom_fillOpacity=15,
                        custom_hideFrom=_HIDDEN,
                        color={"mode": "fixed", "fixedColor": BLUE},
                    ),
                    by_name(
                        "mean − deviation",
                        custom_lineWidth=0,
                        custom_hideFrom=_HIDDEN,
                        color={"mode": "fixed", "fixedColor": BLUE},
                    ),
                    by_name("mean of sites", custom_lineWidth=3, color={"mode": "fixed", "fixedColor": BLUE}),
                    by_name("worst tenth of sites", color={"mode": "fixed", "fixedColor": RED}),
                ),
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
            Look(height=10, low=0, high=1),
        ),
        Panel(
            "timeseries",
            "Variation over sites",
            "Deviation over mean: 0 is equal accuracy everywhere. It grows while the mean grows: the gain goes to "
            "those who were well off.",
            "none",
            (ask_coordinator('pfl_accuracy_ratio@{split="test", statistic="variation"}', "{{view}}"),),
            3,
            Look(height=10, low=0, decimals=2),
        ),
        Panel(
            "timeseries",
            "Gain over baselines",
            "Mean accuracy above the newest finished run of `local` and of `fedavg` in the same state folder; empty "
            "when there is none. Below 0 against local at the end: sites would do better alone, so compare methods.",
            "percentunit",
            (ask_coordinator("pfl_gain_ratio@", "above {{baseline}}"),),
            3,
            Look(height=10),
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
            (ask_coordinator(gained("pfl_rounds_total@"), "{{outcome}}"),),
            6,
            Look(
                stacked=True,
                bars=True,
                overrides=(by_name("abandoned", color={"mode": "fixed", "fixedColor": RED}),),
            ),
        ),
    ),
)

FEDERATION = Dashboard(
    "pfl-federation",
    "Federation",
    "One run as its coordinator sees it: progress, accuracy and fairness, time, bytes, sites, the machine. What to do "
    "about an alert stands in deploy/prometheus/runbook.md.",
    (
        Variable("job", "Job", "label_values(pfl_run_info, job)", many=True),
        Variable("instance", "Coordinator", 'label_values(pfl_run_info{job=~"$job"}, instance)', many=True),
        Variable("run", "Run", 'label_values(pfl_run_info{job=~"$job", instance=~"$instance"}, run)'),
        Variable("window", "Window", "5m,15m,1h,6h", "custom", chosen="15m"),
    ),
    (_PROGRESS, _LEARNING, _TIME, NETWORK, SITES, MACHINE),
)
