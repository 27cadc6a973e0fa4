"""What /metrics says, against what the scheduler itself counts."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.builders import SMALL, a_gpu, a_request

from batchproof import Scheduler
from batchproof.sched.errors import RequestError
from batchproof.sched.serving.metrics import METRICS, ServingMetrics


def figures(metrics: ServingMetrics) -> dict[tuple[str, ...], float]:
    """Return every figure by its name, without prefix, and the values of its labels."""
    return {
        (
            sample.name.removeprefix("batchproof_"),
            *(value for label, value in sample.labels.items() if label != "model_name"),
        ): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
        if sample.labels["model_name"] == "test"
    }


def worked() -> tuple[Scheduler, ServingMetrics]:
    """Return a scheduler that finished, cancelled, preempted and refused, checked at every tick."""
    metrics = ServingMetrics(SMALL, "test")
    scheduler = Scheduler(SMALL, executor=a_gpu(eos_rate=0.05), observer=metrics)
    for i in range(40):
        request = a_request(f"r{i}", prompt=1 + i % 9, max_tokens=1 + i % 20, user=f"u{i % 3}")
        request.deadline_s = 0.02 if i % 13 == 0 else None
        scheduler.submit(request)
    for prompt in (0, 1_000):
        with pytest.raises(RequestError):
            scheduler.submit(a_request("bad", prompt=prompt))
    ticks = 0
    while scheduler.has_active():
        scheduler.tick()
        ticks += 1
        if ticks % 7 == 0:
            scheduler.cancel(f"r{ticks % 40}")
        live = scheduler.stats()["live"]
        assert metrics.waiting == live["waiting"]
        assert metrics.running == live["prefilling"] + live["decoding"]
        assert metrics.blocks_held == SMALL.max_kv_blocks - live["free_blocks"]
    return scheduler, metrics


def test_the_figures_are_those_that_the_scheduler_counts() -> None:
    scheduler, metrics = worked()
    seen, stats = figures(metrics), scheduler.stats()
    requests, reasons, ttft = stats["requests"], stats["finish_reasons"], stats["ttft_s"]
    assert min(reasons.values()) > 0
    assert stats["preemptions"] > 0
    aborted = reasons["cancelled"] + reasons["expired"]
    assert {
        "stop": seen["request_success_total", "stop"],
        "length": seen["request_success_total", "length"],
        "abort": seen["request_success_total", "abort"],
    } == {"stop": reasons["eos"], "length": reasons["length"], "abort": aborted}
    assert seen["requests_refused_total", "invalid"] == 1
    assert seen["requests_refused_total", "infeasible"] == 1
    assert seen["num_preemptions_total",] == stats["preemptions"]
    assert seen["generation_tokens_total",] == stats["tokens"]["output"]
    assert seen["iteration_tokens_total_sum",] == stats["tokens"]["fed"]
    assert seen["iteration_tokens_total_count",] == stats["ticks"]
    assert seen["e2e_request_latency_seconds_count",] == requests["finished"]
    assert seen["e2e_request_latency_seconds_sum",] == pytest.approx(
        stats["latency_s"]["mean"] * requests["finished"]
    )
    assert seen["request_queue_time_seconds_sum",] == pytest.approx(
        stats["queue_time_s"]["mean"] * requests["finished"]
    )
    assert seen["time_to_first_token_seconds_count",] >= requests["finished"]
    assert ttft["max"] < 1
    assert (
        seen["time_to_first_token_seconds_bucket", "1.0"]
        == seen["time_to_first_token_seconds_count",]
    )
    gaps = stats["tokens"]["output"] - seen["time_to_first_token_seconds_count",]
    assert seen["inter_token_latency_seconds_count",] == gaps
    gap_sum = seen["inter_token_latency_seconds_sum",]
    assert gap_sum == pytest.approx(stats["tbt_s"]["mean"] * gaps)


def test_nothing_is_kept_of_requests_that_have_ended() -> None:
    _, metrics = worked()
    kept: Any = [metrics._live, metrics._resident, metrics._token_counts, metrics._token_times]
    assert kept == [{}, set(), {}, {}]


def test_every_metric_is_there_from_the_start_under_its_own_name() -> None:
    text = ServingMetrics(SMALL, "test").exposition().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    # The text format has no type for an info: its name ends in what says so.
    names = {"cache_config_info" if name == "cache_config" else name for name in METRICS}
    exposed = {name for name in families if not name.endswith("_created")}
    assert exposed == {f"batchproof_{name}" for name in names}
    assert all(family.documentation for family in families.values())
