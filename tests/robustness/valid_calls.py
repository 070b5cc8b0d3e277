"""One valid, cheap call of every public function that takes numbers, by subpackage, to be varied by bad inputs.

Each builder is called once, on first use of its subpackage; the entries of `Call.arguments` are spoilt one by one.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np


class Call:
    """Function, or a partial one whose own arguments stay, with valid arguments by name."""

    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        self.function, self.arguments = function, arguments
        self.name: str = (function.func if isinstance(function, partial) else function).__name__

    def __call__(self, **changed: Any) -> Any:
        return self.function(**(self.arguments | changed))


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _measure() -> list[Call]:
    from saddlescope import measure as m
    from saddlescope.measure.singular_values import Spectrum

    draw = _rng().standard_normal
    values, times, losses = np.array([3.0, 2.0, 0.5]), np.linspace(0.0, 1.0, 50), np.linspace(1.0, 0.1, 50)
    activity = np.stack([np.linspace(0.0, 1.0, 50), np.linspace(0.0, 1.0, 50) ** 8], axis=1)
    history = np.abs(draw((50, 4))).cumsum(0)
    after, before = draw((5, 4)), draw((5, 4))
    factors = {"left": draw((5, 2)), "right": draw((6, 2)), "left0": draw((5, 2)), "right0": draw((6, 2))}
    return [
        *(Call(getattr(m, name), values=values) for name in ("stable_rank", "effective_rank", "second_ratio")),
        Call(m.numerical_rank, values=values, level=0.1),
        Call(m.energy_rank, values=values, fraction=0.9),
        Call(m.bulk_count, values=values, initial=values, margin=1.5),
        Call(m.nonlinearity, preactivations=draw((4, 7))),
        Call(m.bottleneck_rank, layer_ranks=(3, 2, 4)),
        Call(m.spectrum, matrix=after, top=2),  # pyright: ignore[reportArgumentType]
        Call(m.update_spectrum, after=after, before=before, top=2),
        Call(m.update_noise_floor, after=after, before=before),
        Call(m.product_spectrum, left=factors["left"], right=factors["right"], top=2),
        Call(m.product_update_spectrum, **factors, top=2),
        Call(m.product_update_orders, **factors, top=2),
        Call(m.product_update_subspaces, **factors, k=2),
        Call(m.principal_angles, first=np.eye(5)[:, :2], second=np.eye(5)[:, 1:3]),
        Call(m.subspace_overlap, first=np.eye(5)[:, :2], second=np.eye(5)[:, 1:3]),
        Call(
            partial(m.find_stages, time_unit="t"),
            times=times,
            losses=losses,
            activity=activity,
            level=0.5,
            min_duration=0.0,
        ),
        Call(m.find_plateaus, losses=losses, steps=np.linspace(1.0, 50.0, 50), singular_values=[history]),
        Call(m.find_descents, losses=losses, hysteresis=0.0),
        Call(
            partial(m.rank_staircases, time_unit="t"),
            times=times,
            values=np.sort(history)[:, ::-1].copy(),
            noise_floors=np.full(50, 1e-6),
            share=0.1,
            contrast=8.0,
            lead=2.0,
        ),
        Call(
            partial(
                m.rank_stairs, spectrum=Spectrum(np.sort(history)[:, ::-1].copy(), np.full(50, 1e-6)), time_unit="t"
            ),
            times=times,
            share=0.1,
            contrast=8.0,
            lead=2.0,
        ),
        Call(m.Stage, start=0.0, end=1.0, loss=0.5, rank=1),
    ]


@cache
def _tokens() -> Any:
    from saddlescope.models import gaussian_tokens

    return gaussian_tokens(3, 4, 6, seed=1)


def _models() -> list[Call]:
    from saddlescope import models as m

    draw = _rng(1).standard_normal
    data = _tokens()
    sizes = {"samples": 2, "tokens": 3, "dim": 6, "seed": 0}
    layers = (jnp.asarray(draw((4, 3))), jnp.asarray(draw((2, 4))))
    pair = {"outputs": jnp.asarray(draw((2, 5))), "targets": jnp.asarray(np.eye(2)[:, [0, 1, 0, 1, 0]])}
    perceptron = m.perceptron_weights((3, 4, 2), seed=0, dtype=jnp.float64)
    return [
        Call(m.TokenData, X=data.X, z=data.z, y=data.y, v=data.v),
        Call(m.gaussian_tokens, **sizes, gap=1.0, spread=0.1),
        Call(m.aligned_tokens, **sizes, gap=1.0, ratio=0.1),
        Call(m.conditioned_tokens, **sizes, gap=1.0, support=2, shrink=0.02),
        Call(m.with_gaps, data=data, gaps=1.0),
        Call(m.alignment_residual, data=data, K=draw((6, 2)), Q=draw((6, 2))),
        Call(m.check_token_assumptions, data=data, weights=draw((6, 6)), loss="logistic"),
        Call(m.separability, data=data),
        Call(m.require_separable, data=data),
        Call(m.attention_loss, data=data, kind="logistic"),
        Call(m.SelectionLoss, optimal_scores=data.optimal_scores, gaps=data.gaps, kind="logistic"),
        Call(m.attention_teacher_task, seed=0, samples=3, tokens=2, dim=3),
        Call(m.full_attention_teacher_task, seed=0, samples=3, tokens=2, dim=3, width=3, rank=2),
        Call(m.transformer_teacher_task, seed=0, layers=1, heads=1, samples=3, tokens=2, dim=3, hidden=4),
        Call(m.StructuredIdentityTask, mu=(1.0, 2.0), sigma=(0.1, 0.1), samples_per_cluster=3, dim=4),
        Call(m.random_rotation, dim=3, seed=0),
        Call(m.diagonal_linear_network, features=draw((5, 3)), targets=draw(5)),
        Call(m.layered_weights, widths=(3, 4, 2), seed=0, deviation=1.0, num_starts=2),
        Call(m.perceptron_weights, widths=(3, 4, 2), seed=0, num_starts=2),
        Call(m.symmetric_weights, dim=3, width=4, seed=0, log_scale=-2.0, law="normal", num_starts=2),
        Call(m.symmetric_factor, W=np.diag([2.0, 1.0])),
        Call(m.LayeredLoss, inputs=draw((5, 3)), targets=draw((5, 2))),
        Call(m.identity_loss, inputs=draw((5, 3))),
        Call(m.perceptron_loss, inputs=draw((5, 3)), directions=np.eye(3)),
        Call(
            m.DiagonalNetwork,
            inputs=jnp.asarray(draw((4, 2, 3))),
            targets=jnp.asarray(draw((4, 2, 3))),
            h=m.attention_head,
        ),
        Call(m.PopulationLoss, second_moment=np.diag([2.0, 1.0])),
        Call(m.preactivations, weights=layers, inputs=draw((5, 3))),
        Call(m.layered_output, weights=layers, inputs=draw((5, 3))),
        Call(m.layered_map, weights=layers),
        Call(m.balancedness, weights=layers),
        Call(partial(m.perceptron_output, weights=perceptron), points=draw((5, 3))),
        Call(m.half_squared_error, **pair),
        Call(m.cross_entropy, **pair),
        Call(m.attention_head, x=jnp.asarray(draw((4, 3))), beta=jnp.asarray(draw(6))),
        Call(
            m.full_attention_head, x=jnp.asarray(draw((4, 3))), A=jnp.asarray(draw((3, 3))), B=jnp.asarray(draw((3, 3)))
        ),
    ]


def _theory() -> list[Call]:
    from saddlescope import theory as t

    draw = _rng(2).standard_normal
    data = _tokens()
    inputs, gradients = np.abs(draw((3, 4))).T, draw((2, 4)).T
    weights = t.on_sphere([draw((3, 3)), draw((3, 3)), draw((2, 3))])
    escaping = (*weights[:2], -weights[2])  # of positive speed
    saddle = {"inputs": inputs, "gradients": gradients}
    net = saddle | {"weights": weights}
    multipliers = np.full(data.gaps.shape, 0.5)
    growth = {"norm": 1e-3, "speed": 1.0, "depth": 3}
    svm = t.l1_svm(data)
    separating, rates = svm.beta, svm.multipliers / svm.multipliers.sum()
    line = {"inputs": inputs[:, :2], "gradients": gradients[:, :1]}
    return [
        Call(t.incremental_learning, size=2, tolerance=1e-11, max_stages=3, loss=_quadratic),
        Call(t.low_rank_learning, shapes=[(2, 2)], width=2, tolerance=1e-9, loss=_matrix_quadratic),
        Call(t.unit_learning, **_UNITS, parameters=np.zeros(2), kinds=2, width=1, tolerance=1e-9, max_stages=1, seed=0),
        Call(
            t.width_ladder,
            **_UNITS,
            widths=[0, 1],
            parameters=np.zeros(2),
            kinds=2,
            num_starts=1,
            log_scale=-18.0,
            tolerance=1e-9,
            seed=0,
        ),
        Call(t.l1_svm, data=data),
        Call(t.nuclear_svm, data=data, rank_bound=2, num_starts=2, seed=0),
        Call(t.frobenius_svm, data=data),
        Call(t.certify_svm, data=data, weights=(draw((6, 2)), draw((6, 2))), multipliers=multipliers, norm="nuclear"),
        Call(
            t.kkt_residuals,
            features=data.features,
            beta=separating,
            multipliers=multipliers,
            support=np.array([True] * 6),
        ),
        Call(t.averaged_multipliers, phi=multipliers, log_margin=2.0),
        Call(t.incremental_multipliers, features=data.features, beta=separating, rates=rates, offsets=0.0),
        Call(t.aligned_time, speed=1.0, depth=2, initial=0.1, share=0.5),
        Call(t.deep_linear_stages, inputs=draw((5, 3)), targets=draw((5, 2)), width=2),
        Call(t.escape_time, reached=0.5, **growth),
        Call(t.norm_at, times=[0.0, 1.0], **growth),
        Call(t.escape_speed, **net),
        Call(
            t.escape_directions,
            **saddle,
            depth=3,
            widths=(2, 3),
            num_starts=2,
            steps=20,
            record=np.array([5, 20]),
            seed=0,
        ),
        Call(t.certified_escape_speed, **line, tolerance=1e-6, max_programs=200),
        Call(t.rank_one_escape_speed, **line, depth=3),
        Call(t.deepen, **saddle, weights=escaping, depth=4),
        Call(t.layer_ratios, **net),
        Call(t.layer_deficits, **net),
        Call(t.on_sphere, weights=weights),
        Call(t.speed_deficit, **saddle, speed=0.5),
        Call(t.first_layer_with_content, **saddle, speed=0.5),
        Call(t.low_rank_activations, **saddle, speed=0.5, depth=4, share=0.5),
        Call(t.nearly_rank_one_bound, gradients=gradients, speed=0.5, distance=0.1),
        Call(t.optimal_layer_bound, **saddle, speed=0.5, layer=2),
        Call(t.gradient_at_zero, cost=jnp.sum, samples=3, outputs=2),
    ]


def _quadratic(beta: Any) -> Any:
    return jnp.sum((beta - jnp.array([2.0, 1.0])) ** 2) / 2


def _matrix_quadratic(products: Any) -> Any:
    return jnp.sum((products[0] - jnp.diag(jnp.array([2.0, 1.0]))) ** 2) / 2


def _bilinear_unit(theta: Any, x: Any, kind: Any) -> Any:
    return theta[0] * theta[1] * x[kind]


def _squared(output: Any, target: Any) -> Any:
    return (output - target) ** 2 / 2


_UNITS: dict[str, Any] = {"unit": _bilinear_unit, "data": (np.eye(2), np.array([1.0, 0.5])), "loss": _squared}


def _concepts() -> list[Call]:
    from saddlescope.theory import concepts as c

    a, U = [1.0, 0.25], [[1e-3, 0.0], [1e-3, 1e-3]]
    W, times = (np.array(U) @ np.array(U).T), [0.0, 1.0, 5.0]
    constants = {"log_P": 10.0, "K": 20.0, "kappa": 1.11, "C": 2.0, "step": 0.0, "log_scale": 0.0}
    lemma = {"log_start": -10.0, "strength": 1.0, "log_phase": 2.0, "kappa": 1.1}
    return [
        Call(c.update_terms, strengths=a, W=W),
        Call(c.concept_stages, strengths=a, factor=U),
        Call(c.deep_stages, strengths=a, weights=[np.array(U), np.array(U)]),
        Call(c.check_assumptions, strengths=a, start=W, **constants),
        Call(c.largest_start, strengths=a, beta=1.5, K=20.0, kappa=1.11),
        Call(
            c.early_alignment,
            inputs=np.abs(_rng(3).standard_normal((6, 2))),
            weights=[np.array(U), np.array(U).T],
            drop=0.1,
        ),
        Call(c.one_layer_output, second_moment=np.diag(a), start=np.array(U), point=[1.0, 2.0], times=times, printed=1),
        Call(c.lemma_d2_time, strongest=1.0, log_P=10.0, kappa=1.1),
        Call(c.lemma_d3_time, **lemma),
    ]


def _flow() -> list[Call]:
    from saddlescope import flow as f
    from saddlescope.models import SelectionLoss

    draw = _rng(4).standard_normal
    data = _tokens()
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    start = f.DiagonalInit(np.array([1.0, 1.0]), np.array([0.1, 0.1]), -5.0)
    factors = f.FactorInit(pairs=[(draw((2, 2)), draw((2, 2)))], log_scale=-10.0)
    run = {"until": 0.5, "tolerance": 1e-3, "record": np.array([0.1, 0.2]), "max_evaluations": 2000}
    margins = {"log_until": 1.0, "record": [0.0, 1.0], "tolerance": 1e-5, "max_evaluations": 5000}
    K, Q = 0.1 * draw((2, 6, 2))
    symmetric = {"until": 1.0, "tolerance": 1e-8}
    weights = (jnp.asarray(draw((2, 2))), jnp.asarray(draw((1, 2))))
    descent = {"steps": 3, "record": np.array([1, 2])}
    return [
        Call(f.DiagonalInit, u=np.array([1.0, 1.0]), v=np.array([0.1, 0.1]), log_scale=-5.0),
        Call(f.ParameterInit, params=np.array([1.0, 2.0])),
        Call(f.FactorInit, pairs=[(draw((2, 2)), draw((2, 2)))], log_scale=-10.0),
        Call(f.DiagonalMarginInit, plus=np.ones(3), minus=np.ones(3)),
        Call(f.gradient_flow, **run, level=0.1, loss=_quadratic, start=start),
        Call(f.gradient_flow_batched, **run, level=0.1, loss=_quadratic, starts=[start, start]),
        Call(f.factored_flow, **run, start=factors, loss=_matrix_quadratic),
        Call(
            f.unit_flow,
            **run,
            **_UNITS,
            weights=np.ones((2, 2)),
            degree=2.0,
            log_scale=-10.0,
            level=0.1,
            kinds=np.array([0, 1]),
        ),
        Call(
            f.gradient_descent,
            steps=3,
            learning_rate=0.1,
            seed=0,
            record=np.array([1, 2]),
            level=0.1,
            loss=_quadratic,
            start=start,
        ),
        Call(
            partial(f.escape_flow, output=_product, cost=jnp.sum),
            weights=weights,
            degree=2,
            until=0.5,
            log_norm=-5.0,
            record=np.array([0.1, 0.2]),
            tolerance=1e-4,
            max_evaluations=6000,
        ),
        Call(f.diagonal_margin_flow, **margins, features=data.features, start=0.1, loss=loss),
        Call(
            f.matrix_margin_flow, **margins, differences=data.differences, queries=data.z, start=draw((6, 6)), loss=loss
        ),
        Call(f.key_query_margin_flow, **margins, differences=data.differences, queries=data.z, start=(K, Q), loss=loss),
        Call(
            f.symmetric_flows,
            **symmetric,
            moment=np.array([1.0, 0.5]),
            starts=0.1 * draw((2, 2, 2)),
            test_point=np.array([1.0, 1.0]),
            record=np.array([0.5, 1.0]),
        ),
        Call(f.symmetric_path, **symmetric, strengths=[1.0, 0.25], start=[[0.1, 0.0], [0.1, 0.1]]),
        Call(
            f.find_start,
            moment=np.array([1.0, 0.5]),
            test_point=np.array([1.0, 1.0]),
            descents=1,
            until=5.0,
            seed=0,
            num_starts=64,
            generations=1,
            bound=0.3,
            least=0.0,
        ),
        Call(f.geometric_steps, steps=100, per_doubling=8, every=10),
        Call(f.homogeneous_rate, rate=0.1, degree=2),
        Call(
            partial(f.sgd, loss=_sum_of_squares, learning_rate=f.homogeneous_rate(0.1, 2), observe=_first),
            **descent,
            weights=weights,
            seed=0,
        ),
        Call(
            partial(f.sgd_batched, loss=_sum_of_squares, observe=_first),
            **descent,
            weights=tuple(jnp.stack([w, w]) for w in weights),
            learning_rate=0.1,
        ),
    ]


def _product(weights: Any) -> Any:
    return weights[1] @ weights[0]


def _sum_of_squares(weights: Any) -> Any:
    return sum(jnp.sum(weight**2) for weight in weights)


def _first(weights: Any) -> Any:
    return weights[0]


def _train() -> list[Call]:
    from saddlescope import ranks, training
    from saddlescope.training.diffusion import CircleProcess, UNetConfig

    spectra = {"a": np.array([3.0, 2.0]), "b": np.array([1.0, 0.5])}
    return [
        Call(
            training.ViTConfig,
            image_size=8,
            channels=1,
            patch=2,
            embedding=8,
            depth=1,
            heads=2,
            head_width=4,
            mlp_width=8,
            classes=3,
            initial_scale=1.0,
        ),
        Call(training.TrainConfig, epochs=3, warmup_epochs=1, batch=4, pieces=1, test_every=1, seed=0, threads=1),
        Call(training.Adam, learning_rate=1e-3, betas=(0.9, 0.999)),
        Call(training.SGD, learning_rate=0.1, momentum=0.9),
        Call(ranks.Every, n=3),
        Call(ranks.Geometric, ratio=1.5),
        Call(ranks.Values, top=3),
        Call(ranks.Vectors, k=3),
        Call(ranks.Angles, k=3),
        Call(ranks.ranks_for_energy, spectra=spectra, energy=0.9),
        Call(ranks.allocate_ranks, spectra=spectra, shapes={"a": (8, 8), "b": (8, 8)}, parameters=48),
        Call(CircleProcess, pixels=16, color_signal=0.4, size_signal=0.4, diameter=0.5, noise=0.001),
        Call(UNetConfig, pixels=8, channels=(8, 16), blocks=1, groups=8, dropout=0.0, heads=4),
        Call(training.load, name="digits"),
    ]


def _studies() -> list[Call]:
    from saddlescope.studies import implicit_bias, norm_verdict

    return [
        Call(
            implicit_bias,
            data=_tokens(),
            loss="logistic",
            log_until=5.0,
            record=np.array([1.0, 3.0]),
            log_scale=-2.0,
            seed=0,
            tolerance=1e-5,
        ),
        Call(norm_verdict, excess=np.array([0.001, 0.2]), contrast=np.array([0.1, 0.25])),
    ]


SUBPACKAGES = {
    "measure": _measure,
    "models": _models,
    "theory": _theory,
    "concepts": _concepts,
    "flow": _flow,
    "train": _train,
    "studies": _studies,
}


@cache
def calls(subpackage: str) -> dict[str, Call]:
    """Return the valid calls of a subpackage, by name."""
    return {call.name: call for call in SUBPACKAGES[subpackage]()}
