"""The shipped measurements, predicted once for all tests of this folder."""

import pytest

from simcore.cost.published.reading import sort_rows
from simcore.cost.published.validate import default_documents, score


@pytest.fixture(scope="session")
def documents():
    return default_documents()


@pytest.fixture(scope="session")
def scores(documents):
    """Every suite, predicted once."""
    return {one.suite.name: score(one) for one in sort_rows(documents)}
