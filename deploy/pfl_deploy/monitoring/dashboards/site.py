"""The dashboard *Site*: one site's own numbers, which only the site may publish."""

from __future__ import annotations

from dataclasses import replace

from pfl_deploy.monitoring.dashboards.build import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    Dashboard,
    Look,
    Panel,
    Row,
    Variable,
)
from pfl_deploy.monitoring.dashboards.queries import ask_site, gained, mean_of

_NOW = Look(height=4, base=BLUE, decimals=0)
_DAYS = replace(_NOW, base=RED, steps=((3, YELLOW), (8, GREEN)))

_PRESENT = Row(
    "Now",
    (
        Panel(
            "stat",
            "Connection",
            "Whether the coordinator answers. It does not for minutes: see runbook PflSiteDisconnected.",
            "bool_yes_no",
            (ask_site("pfl_site_connected@", "connected"),),
            3,
            replace(_NOW, base=RED, steps=((1, GREEN),)),
        ),
        Panel(
            "stat",
            "Doing",
            "What the site does now. `waiting for room`: the coordinator's disk is full, its operator knows from an "
            "alert. `uploading` for long: a slow line.",
            "none",
            (ask_site("pfl_site_doing@ == 1", "{{doing}}"),),
            4,
            replace(_NOW, names=True),
        ),
        Panel(
            "stat",
            "Round",
            "Round of the last task, and how many the run is to have. It stands still while the site waits: others "
            "are slower, or the cohort was drawn without this site.",
            "none",
            (ask_site("pfl_site_round@", "round"), ask_site("pfl_site_rounds_planned@", "of")),
            4,
            _NOW,
        ),
        Panel(
            "stat",
            "Last task began",
            "How long ago. Much longer than a round of this run: look at “Connection”, then ask the coordinator's "
            "operator whether the run goes on.",
            "s",
            (ask_site("time() - pfl_site_task_timestamp_seconds@", "ago"),),
            3,
            _NOW,
        ),
        Panel(
            "stat",
            "Method and device",
            "Where the trainer computes; empty until the first task is done. `cpu` on a machine with a graphics "
            "card: the driver is missing, or `--device cpu` was given.",
            "none",
            (ask_site("pfl_site_info@", "{{method}} on {{device}}"),),
            4,
            replace(_NOW, names=True),
        ),
        Panel(
            "stat",
            "Days until the certificate ends",
            "It is renewed below 10 days, every hour, while the site is connected. Below 8: see runbook "
            "PflCertificateEndsSoon.",
            "d",
            (ask_site("(pfl_site_certificate_end_timestamp_seconds@ - time()) / 86400", "days"),),
            3,
            _DAYS,
        ),
        Panel(
            "stat",
            "Disk",
            "Free for the state folder. Below 2 GiB: see runbook PflDiskAlmostFull.",
            "bytes",
            (ask_site("pfl_site_disk_free_bytes@", "free"),),
            3,
            replace(_NOW, base=RED, decimals=1, steps=((2.0 * 1024**3, GREEN),)),
        ),
    ),
)

_LEFT = Row(
    "What left the building",
    (
        Panel(
            "stat",
            "Updates that left",
            "Updates with the coordinator's receipt, over all runs this program has been in; `pfl audit` on "
            "the site's machine lists each. More than the rounds of the runs: compare with that list.",
            "none",
            (ask_site("pfl_site_left_updates_total@", "updates"),),
            4,
            _NOW,
        ),
        Panel(
            "stat",
            "Bytes of updates that left",
            "Their sealed size. Far more than the model for each update: ask the coordinator's operator what the "
            "method sends, and look into the list of what left.",
            "bytes",
            (ask_site("pfl_site_left_bytes_total@", "bytes"),),
            4,
            replace(_NOW, decimals=1),
        ),
        Panel(
            "bargauge",
            "Bytes that crossed",
            "Since the program was started, by direction and kind, repeated parts included: `up` beyond updates is "
            "measurements and calls. `up train` far above what left: lines break and parts are sent again.",
            "bytes",
            (ask_site("pfl_site_bytes_total@", "{{direction}} {{kind}}"),),
            8,
            Look(base=BLUE),
        ),
        Panel(
            "timeseries",
            "Bytes per second",
            "As they cross now. Flat at one height for minutes: that is what the line gives.",
            "Bps",
            (
                ask_site(
                    "sum by (job, instance, direction) (rate(pfl_site_bytes_total@[$__rate_interval]))",
                    "{{direction}}",
                ),
            ),
            8,
        ),
    ),
)

_LEARNING = Row(
    "Learning",
    (
        Panel(
            "timeseries",
            "Own accuracy",
            "On this site's own data, as last measured; `pre` is before the site trained in a round. It falls while "
            "the federation's rises: the model does not fit this site, tell the coordinator's operator.",
            "percentunit",
            (ask_site("pfl_site_accuracy_ratio@", "{{measure}}"),),
            10,
            Look(low=0, high=1, empty="nothing was measured yet"),
        ),
        Panel(
            "timeseries",
            "Loss",
            "On this site's own data. It rises for rounds: training diverges here, the learning rate is too high for "
            "these data.",
            "none",
            (ask_site("pfl_site_loss@", "{{measure}}"),),
            7,
            Look(decimals=3, empty="nothing was measured yet"),
        ),
        Panel(
            "timeseries",
            "What training said",
            "The method's own numbers at the end of the last training, by its names. What they should be is the "
            "method's matter; not a number or ever growing: training diverges.",
            "none",
            (ask_site("pfl_site_learning@", "{{name}}"),),
            7,
            Look(decimals=3, empty="no training is done yet"),
        ),
    ),
)

_TIME = Row(
    "Time",
    (
        Panel(
            "timeseries",
            "Time by phase",
            "Mean seconds of a phase in the chosen window. `load`: the data's disk is slow. `train`: the processor or "
            "the graphics card. `download`, `upload`: the line. `wait`: the others.",
            "s",
            (ask_site(mean_of("pfl_site_phase_seconds", "phase"), "{{phase}}"),),
            10,
            Look(stacked=True, bars=True),
        ),
        Panel(
            "state-timeline",
            "Doing, over time",
            "What the site was doing when it was looked at. Long stretches of `joining` or `waiting for room`: the "
            "coordinator cannot take it; ask its operator.",
            "none",
            (ask_site("pfl_site_doing@", "{{doing}}"),),
            8,
            Look(base="transparent", steps=((1, BLUE),), options={"rowHeight": 0.9}),
        ),
        Panel(
            "timeseries",
            "Tasks in the window",
            "Tasks begun in the chosen window, by kind. Several `train` for one round: the site was killed or its "
            "attempt abandoned; see the log.",
            "none",
            (ask_site(gained("pfl_site_tasks_total@"), "{{kind}}"),),
            6,
            Look(stacked=True, bars=True),
        ),
    ),
)

_TROUBLE = Row(
    "Trouble and machine",
    (
        Panel(
            "timeseries",
            "Tasks not done",
            "Declined since the program was started, by reason. Any but `stopping`: see runbook PflSiteDeclining.",
            "none",
            (ask_site("pfl_site_declined_total@ > 0", "{{reason}}"),),
            5,
            Look(stacked=True, low=0, empty="none seen"),
        ),
        Panel(
            "timeseries",
            "Refused by the coordinator",
            "Messages it did not take since the program was started, by code; empty is good. `late`: the round went "
            "on without this site. Others: see runbook PflRefusalsRising.",
            "none",
            (ask_site("pfl_site_refused_total@", "{{code}}"),),
            5,
            Look(stacked=True, low=0, empty="none seen"),
        ),
        Panel(
            "timeseries",
            "Trainers lost",
            "Trainer processes that died since the program was started. More than one in an hour: see runbook "
            "PflTrainerLost. `halved` is 1 where memory is too little for whole batches, and "
            "halves of them are trained.",
            "none",
            (
                ask_site("pfl_site_lost_trainers_total@", "died"),
                ask_site("pfl_site_batches_halved@", "halved"),
            ),
            4,
            Look(low=0, decimals=0),
        ),
        Panel(
            "timeseries",
            "Memory",
            "The daemon (small, always there) and the trainer at the end of its last task; `device` is what lies on "
            "the graphics card. It climbs for hours: see runbook PflMemoryClimbing.",
            "bytes",
            (
                ask_site("process_resident_memory_bytes@", "daemon"),
                ask_site("pfl_site_trainer_memory_bytes@", "trainer, {{of}}"),
            ),
            6,
            Look(low=0),
        ),
        Panel(
            "timeseries",
            "Processor of the daemon",
            "Cores in use beside the trainer. Near 1 outside of transfers: it tries again and again, see its log.",
            "none",
            (ask_site("rate(process_cpu_seconds_total@[$__rate_interval])", "cores"),),
            4,
            Look(low=0, decimals=2),
        ),
    ),
)

SITE = Dashboard(
    "pfl-site",
    "Site",
    "One site's own numbers: what it does, what left the building, how well the model fits its data. They stay with "
    "the site: no coordinator has them. What to do about an alert stands in deploy/prometheus/runbook.md.",
    (
        Variable("job", "Job", "label_values(pfl_site_info, job)", many=True),
        Variable("instance", "Program", 'label_values(pfl_site_info{job=~"$job"}, instance)', many=True),
        Variable("site", "Site", 'label_values(pfl_site_info{job=~"$job", instance=~"$instance"}, site)'),
        Variable("window", "Window", "5m,15m,1h,6h", "custom", chosen="15m"),
    ),
    (_PRESENT, _LEFT, _LEARNING, _TIME, _TROUBLE),
)
