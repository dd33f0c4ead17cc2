"""The noise of launches: a density, heavy enough that one launch decides nothing alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerprint.bisect.noise import PRIORS, Noise, prior


@pytest.mark.parametrize("noise", [Noise(), *PRIORS.values()])
def test_the_density_integrates_to_one(noise: Noise) -> None:
    x = np.linspace(-4000, 4000, 2_000_001)
    density = np.exp(noise.log_density(x, np.full(x.shape, 2.0)))
    assert density.sum() * (x[1] - x[0]) == pytest.approx(1, abs=2e-4)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_the_density_is_finite_even_and_falls_away_from_the_level(away: float, sigma: float) -> None:
    noise = Noise()
    near, far, other = noise.log_density(np.array([away, 2 * away, -away]), np.full(3, sigma))
    assert np.isfinite([near, far, other]).all()
    assert near == pytest.approx(other)
    assert far <= near + 1e-12


def test_no_single_launch_outweighs_a_few_others() -> None:
    noise = Noise()
    sigma = np.array([1.0])
    bad = noise.log_density(np.array([0.0]), sigma) - noise.log_density(np.array([50.0]), sigma)
    good = noise.log_density(np.array([0.0]), sigma) - noise.log_density(np.array([5.0]), sigma)
    assert bad < 3 * good


def test_single_precision_stays_single() -> None:
    values = np.array([0.5, 1.5], np.float32)
    assert Noise().log_density(values, np.ones(2, np.float32)).dtype == np.float32


def test_a_gpu_timer_is_quieter_than_a_clients_clock_and_the_unknown_gets_the_default() -> None:
    assert prior("sglang", "verify_ms").relative < prior("sglang", "cycle_ms").relative
    assert prior("nobody", "nothing") == Noise()


@pytest.mark.parametrize("wrong", [{"relative": 0.0}, {"spread": 1.0}, {"bad": 0.0}, {"drift": -1.0}])
def test_a_prior_that_means_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="noise"):
        Noise(**wrong)
