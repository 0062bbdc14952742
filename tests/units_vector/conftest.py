"""A fresh core for every test; compiled code is shared."""

from __future__ import annotations

import pytest

from units_vector.rig import Core


@pytest.fixture
def core() -> Core:
    return Core()
