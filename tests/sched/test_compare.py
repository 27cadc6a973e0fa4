"""What a comparison measures: against hand-made runs, and the same however it is computed."""

from functools import partial
from itertools import islice

import pytest

from batchproof import Limits
from batchproof.sched import compare as compare_module
from batchproof.sched.bound import earliest_end
from batchproof.sched.compare import (
    LOAD_STEPS,
    Case,
    Pair,
    Plan,
    Slowdown,
    Times,
    capacity,
    compare,
    latency_slowdown,
    search,
    serve,
    serve_alone,
    ttft_slowdown,
)
from batchproof.sched.compare_result import compare_result
from batchproof.sched.errors import InputError
from batchproof.sched.known_workload import known_workload
from batchproof.sched.latency import latency_model
from batchproof.sched.parallel import Workers
from batchproof.sched.policy import POLICIES
from batchproof.sched.request import Request
from batchproof.sched.request_gen import Arrival, PoissonWorkload
from batchproof.sched.simulation import Setup, Simulation
from batchproof.sched.slo import Objective, parse_slo


def never():
    return False


def generated(requests=30, users=3, rate=12.0, setup=None):
    arrivals = PoissonWorkload(requests=requests, users=users, rate=rate)
    return known_workload("generated", "generated", arrivals, setup or Setup())


def small_plan(**changes):
    fields = {"policies": ("fair-lane", "static"), "latencies": ("linear",), "loads": (0.8, 1.2)}
    return Plan((generated(),), **{**fields, **changes})


# Workloads


def test_a_rate_stretches_the_gaps_alike():
    workload = generated()
    moved = workload.at_rate(4.0).requests
    assert moved[0].at_s == 0.0
    assert (len(moved) - 1) / moved[-1].at_s == pytest.approx(4.0, rel=1e-6)
    first, second, last = (workload.requests[place].at_s for place in (0, 7, -1))
    part = (second - first) / (last - first)
    assert moved[7].at_s / moved[-1].at_s == pytest.approx(part, rel=1e-5)


def test_a_workload_without_gaps_has_no_rate():
    with pytest.raises(InputError, match="all 30 requests arrive at the same moment"):
        generated().all_at_once().at_rate(1.0)


def test_a_user_alone_comes_when_it_came():
    workload = generated()
    assert workload.users == ["u1", "u2", "u3"]
    alone = [workload.of(user).requests for user in workload.users]
    assert sorted(sum(alone, ())) == sorted(workload.requests)


def test_what_never_fits_is_left_out_and_counted():
    limits = Limits(max_kv_blocks=20)
    workload = generated(setup=Setup(limits=limits))
    assert 0 < workload.refused < 30
    assert len(workload.requests) == 30 - workload.refused
    with pytest.raises(InputError, match="empty workload: none of its 30 requests fits"):
        generated(setup=Setup(limits=Limits(max_kv_blocks=1)))


# Runs


@pytest.mark.parametrize("policy", ["fair-lane", "orca"])
def test_a_run_is_the_one_that_the_run_command_makes(policy):
    setup = Setup(policy=policy)
    workload = generated()
    gpu = setup.gpu()
    simulation = Simulation(setup.scheduler(gpu), gpu, PoissonWorkload(requests=30, users=3))
    assert simulation.run()
    run = serve(setup, workload)
    assert run.stats == simulation.scheduler.stats()
    for user, times in run.users.items():
        figures = run.stats["users"][user]
        assert max(times.ttft_s) == figures["ttft_s"]["max"]
        assert max(times.latency_s) == figures["latency_s"]["max"]
        assert len(times.ttft_s) == figures["finished"]


def test_all_tokens_fed_are_in_some_users_window():
    workload = generated().at_rate(2.0)
    run = serve(Setup(policy="vtc"), workload)
    assert sum(window.total() for window in run.fed) == run.stats["tokens"]["fed"]
    assert run.stats["tokens"]["recomputed"] == 0  # so that a user's tokens are its requests'
    of_u1 = sum(window["u1"] for window in run.fed)
    assert of_u1 == sum(r.prompt_len + r.output - 1 for r in workload.of("u1").requests)


def test_the_limit_is_that_of_the_requests_as_they_arrived():
    workload = generated().at_rate(6.0)
    run = serve(Setup(policy="stall-free"), workload)
    known = [request.known for request in workload.requests]
    assert run.limit_s == earliest_end(Limits(), latency_model("linear"), known)
    assert 0.5 < run.limit_s / run.stats["elapsed_s"] <= 1 + 1e-9


def test_wrong_tokens_are_not_taken_for_a_result():
    workload = generated()
    more = workload.requests[0]._replace(output=workload.requests[0].output + 1)
    wrong = type(workload)("w", "s", (more, *workload.requests[1:]), 0, 0, workload.eos_rate)
    with pytest.raises(RuntimeError, match=r"stall-free on w delivered \d+ tokens, not \d+"):
        serve(Setup(policy="stall-free"), wrong)


def test_capacity_is_what_is_served_when_all_are_there_at_once():
    one = Setup(eos_rate=0.0, limits=Limits(max_batch_size=1))
    arrivals = [Arrival(n * 9.0, Request("u", one_prompt(), 10, f"r{n}")) for n in range(4)]
    workload = known_workload("four", "hand", arrivals, one)
    # Ten ticks of 6 ms each, one request after the other.
    assert capacity(one, workload, never) == pytest.approx(1 / 0.06)


def one_prompt():
    (_, request), *_ = PoissonWorkload(requests=1)
    return request.prompt[:64]


# Slowdowns


def test_slowdowns_and_jains_index_by_hand():
    together = {"a": Times([1.0, 3.0, 9.0], [8.0]), "b": Times([2.0], [2.0, 4.0])}
    alone = {"a": Times([1.0, 1.0, 2.0], [2.0]), "b": Times([2.0], [3.0])}
    ttft = ttft_slowdown(together, alone)
    assert ttft.by_user == {"a": 3.0, "b": 1.0}
    assert (ttft.max, ttft.worst, ttft.median) == (3.0, "a", 2.0)
    assert ttft.jain == pytest.approx((1 / 3 + 1) ** 2 / (2 * (1 / 9 + 1)))
    assert latency_slowdown(together, alone).by_user == {"a": 4.0, "b": 1.0}


def test_jains_index_goes_from_one_over_users_to_one():
    assert Slowdown({"a": 7.0, "b": 7.0, "c": 7.0}).jain == pytest.approx(1.0)
    assert Slowdown({"a": 1.0, "b": 1e9, "c": 1e9}).jain == pytest.approx(1 / 3)


def test_an_only_user_is_not_slowed_down():
    workload = generated(users=1)
    setup = Setup(policy=compare_module.REFERENCE)
    alone = serve_alone(setup, workload, never)
    slowdown = ttft_slowdown(serve(setup, workload).users, alone)
    assert slowdown.by_user == {"u1": 1.0}


def test_without_gaps_between_tokens_there_is_nothing_to_plot_of_them():
    from batchproof.sched.report.plots import comparison_plots  # here: workers need no matplotlib

    arrivals = [Arrival(n, Request("u", one_prompt(), 1, f"r{n}")) for n in range(4)]
    workload = known_workload("ones", "hand", arrivals, Setup(eos_rate=0.0))
    comparison = compare(Plan((workload,), ("static",), ("linear",), (1.0,)))
    plots = dict(islice(comparison_plots(comparison), 3))
    assert list(plots)[-1] == "ones-linear-tbt-p99.svg"


# Search


@pytest.fixture(scope="module")
def searched():
    setup, workload = Setup(policy="stall-free"), generated(60)
    rate = capacity(setup, workload, never)
    return setup, workload, rate


def test_the_rate_found_meets_the_slo_and_the_next_does_not(searched):
    setup, workload, rate = searched
    slo = parse_slo("ttft_p99=500ms,tbt_p99=1s")
    found = search(setup, workload, rate, slo)
    assert 0 < found.load < 2
    at = [
        serve(setup, workload.at_rate(load * rate)).stats
        for load in (found.load, found.load + 1 / LOAD_STEPS)
    ]
    assert [stats["ttft_s"]["p99"] <= 0.5 for stats in at] == [True, False]
    assert found.stats == at[0]


@pytest.mark.parametrize(("slo", "load"), [("ttft_p50=1us", 0.0), ("ttft_p50=1000s", 2.0)])
def test_an_slo_may_be_met_by_no_rate_or_by_all(searched, slo, load):
    found = search(*searched, parse_slo(slo))
    assert found.load == load
    assert (found.stats is None) == (load == 0.0)


@pytest.mark.parametrize(
    ("text", "objectives"),
    [
        ("tbt_p99=100ms", [("tbt", "p99", 0.1)]),
        ("ttft_p50=2s, latency_max=1.5s", [("ttft", "p50", 2.0), ("latency", "max", 1.5)]),
        ("tbt_mean=250us", [("tbt", "mean", 0.00025)]),
    ],
)
def test_an_slo_is_read(text, objectives):
    assert [objective[1:] for objective in parse_slo(text)] == [
        (figure, statistic, pytest.approx(limit)) for figure, statistic, limit in objectives
    ]


def test_an_objective_is_met_up_to_its_limit_and_where_there_is_no_figure():
    objective = Objective("tbt_p99=1s", "tbt", "p99", 1.0)
    met = {value: objective.is_met({"tbt_s": {"p99": value}}) for value in (0.5, 1.0, 1.01)}
    assert met == {0.5: True, 1.0: True, 1.01: False}
    assert objective.is_met({"tbt_s": {"p99": float("nan")}})


# Whole comparisons


def test_every_combination_is_run_once_and_counted():
    plan = small_plan(slo=parse_slo("ttft_p50=1s"))
    finished = []
    comparison = compare(plan, finished=lambda: finished.append(1))
    assert len(finished) == plan.calls == 1 + 2 + 4 + 2
    pair = Pair("generated", "linear")
    assert set(comparison.runs) == {
        Case(pair, load, policy) for load in plan.loads for policy in plan.policies
    }
    assert set(comparison.found) == {(pair, policy) for policy in plan.policies}
    assert comparison.complete


def test_the_number_of_jobs_changes_nothing():
    plan = small_plan(slo=parse_slo("ttft_p50=1s"))
    one, two = (compare_result("0", compare(plan, jobs=jobs)) for jobs in (1, 2))
    assert one == two
    assert len(one["runs"]) == 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_comparison_that_is_stopped_says_so_and_keeps_what_it_has(jobs):
    finished = []
    comparison = compare(
        small_plan(),
        jobs=jobs,
        stop=lambda: len(finished) >= 3,
        finished=lambda: finished.append(1),
    )
    assert not comparison.complete
    result = compare_result("0", comparison)
    assert len(result["capacities"]) == 1
    assert len(result["runs"]) < 4


def test_a_policy_below_another_stays_below_it_in_the_result():
    result = compare_result("0", compare(small_plan(policies=("stall-free", "static"))))
    runs = {(run["policy"], run["load"]): run for run in result["runs"]}
    for load in (0.8, 1.2):
        good, bad = runs["stall-free", load], runs["static", load]
        assert 1 >= good["throughput_of_limit"] > bad["throughput_of_limit"] > 0
        assert good["ttft_slowdown"]["max"] < bad["ttft_slowdown"]["max"]
        assert good["throughput_of_limit"] == pytest.approx(
            good["throughput_tokens_per_s"] / good["limit_tokens_per_s"], rel=1e-4
        )


def test_no_policy_is_above_the_limit_on_a_generated_workload():
    plan = small_plan(policies=tuple(POLICIES), latencies=("a100-llama3-8b",))
    for run in compare_result("0", compare(plan))["runs"]:
        assert 0 < run["throughput_of_limit"] <= 1, run["policy"]


def failing(_stop):
    raise ZeroDivisionError("of a call")


def double(number, _stop):
    return 2 * number


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_calls_and_errors_pass_through(jobs):
    with Workers(jobs) as workers:
        assert workers.run([partial(double, n) for n in range(5)]) == [0, 2, 4, 6, 8]
        with pytest.raises(ZeroDivisionError, match="of a call"):
            workers.run([partial(double, 1), failing])
