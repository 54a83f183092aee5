"""What all tests share: properties without deadlines, and a switch that refuses skips."""

import os

import pytest
from hypothesis import settings

# A loaded machine is no error: speed is measured in benchmarks/. The same tests give the same answer everywhere; random
# examples, and more of them, are tried with --hypothesis-profile=thorough.
settings.register_profile("simcore", deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("simcore")

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
