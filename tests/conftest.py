"""What all tests share: properties without deadlines, and a switch that refuses skips."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no error (neither a deadline nor a check of how long drawing takes): speed is measured in
# benchmarks/. The same tests give the same answer everywhere, with a fifth of the examples that a property asks for
# (100 unless it says); --hypothesis-profile=thorough takes random ones, five times as many.
LEAST_EXAMPLES = 8
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("simcore", UNTIMED, derandomize=True, database=None)
settings.register_profile("thorough", UNTIMED)
settings.load_profile("simcore")
ASKED = "_hypothesis_internal_use_settings"  # where Hypothesis keeps what @settings asked for: there is no public place


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Numbers of examples in the proportion that the profile says."""
    times = 1 / 5 if settings.default.derandomize else 5
    for test in {getattr(item, "obj", None) for item in items if hasattr(getattr(item, "obj", None), ASKED)}:
        asked = getattr(test, ASKED)
        count = max(int(asked.max_examples * times), min(asked.max_examples, LEAST_EXAMPLES))
        setattr(test, ASKED, settings(asked, max_examples=count))


def pytest_collection_finish() -> None:
    """What was imported and collected lives as long as the tests: the garbage collector need not look at it again.

    It looks at what is young less often, too: tests make much and keep little.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


EXPECTED_SKIPS = ("shared/ beside the checkout",)
REFUSED = os.environ.get("SIMCORE_SKIPS") == "refused"


def refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Let a test fail that is skipped, unless it compares with material that is not shipped.

    A test that runs and is known to fail (xfail) is reported as skipped, too, but is none.
    """
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if REFUSED and skipped and not any(reason in str(report.longrepr) for reason in EXPECTED_SKIPS):
        report.outcome, report.longrepr = "failed", f"unexpected skip: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    report = yield
    refuse(report)
    return report
