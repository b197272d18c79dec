"""Answers to lesson 03: right ones written in another way, and plausible wrong ones (see `answers`)."""

import numpy as np


def _rnn(dhidden, hidden, recurrent, *, backwards=True, carry=True, slope=1, transposed=True, before=0):
    """Right as it stands; each option makes one mistake."""
    B, T, C = dhidden.shape
    dprojected, dbefore = np.zeros_like(dhidden), np.zeros((B, C))
    for t in reversed(range(T)) if backwards else range(T):
        dstate = dhidden[:, t] + (dbefore if carry else 0)
        dprojected[:, t] = dstate * (1 - hidden[:, t + slope] ** 2)
        dbefore = dprojected[:, t] @ (recurrent.T if transposed else recurrent)
    states = hidden[:, before : before + T]
    return dprojected, dbefore, states.reshape(-1, C).T @ dprojected.reshape(-1, C)


def _no_slope(dhidden, hidden, recurrent):
    dprojected, dbefore = np.zeros_like(dhidden), np.zeros_like(hidden[:, 0])
    for t in reversed(range(dhidden.shape[1])):
        dprojected[:, t] = dhidden[:, t] + dbefore
        dbefore = dprojected[:, t] @ recurrent.T
    return dprojected, dbefore, np.einsum("bti,btj->ij", hidden[:, :-1], dprojected)


def _averaged(dhidden, hidden, recurrent):
    dprojected, dfirst, drecurrent = _rnn(dhidden, hidden, recurrent)
    return dprojected, dfirst, drecurrent / len(dhidden)


def _last_step_only(dhidden, hidden, recurrent):
    dprojected, dfirst, _ = _rnn(dhidden, hidden, recurrent)
    return dprojected, dfirst, hidden[:, -2].T @ dprojected[:, -1]


def _always_float64(dhidden, hidden, recurrent):
    return _rnn(np.array(dhidden, dtype=float), hidden, recurrent)


def _scores(dscores, features, score_weight, slope=lambda f: 1 - f**2, total=np.sum):
    dsum = dscores[..., None] * score_weight * slope(features)
    return dsum.sum(axis=2), total(dsum, axis=1), np.tensordot(dscores, features, axes=3)


def _swapped(dscores, features, score_weight):
    dquery, dkey, dscore_weight = _scores(dscores, features, score_weight)
    return dkey, dquery, dscore_weight


def _no_weight(dscores, features, score_weight):
    dsum = dscores[..., None] * (1 - features**2)
    return dsum.sum(axis=2), dsum.sum(axis=1), np.tensordot(dscores, features, axes=3)


def _averaged_weight(dscores, features, score_weight):
    dquery, dkey, dscore_weight = _scores(dscores, features, score_weight)
    return dquery, dkey, dscore_weight / len(dscores)


def _weight_through_tanh(dscores, features, score_weight):
    dquery, dkey, _ = _scores(dscores, features, score_weight)
    return dquery, dkey, np.tensordot(dscores, 1 - features**2, axes=3)


def _clipped(dhidden, hidden, recurrent):
    dprojected, dfirst, drecurrent = _rnn(dhidden, hidden, recurrent)
    return dprojected, dfirst, drecurrent.clip(-5, 5)


def _truncated(dhidden, hidden, recurrent, steps=3):
    dprojected = np.zeros_like(dhidden)
    for end in range(dhidden.shape[1]):
        dstate = dhidden[:, end]
        for t in range(end, max(-1, end - steps), -1):
            dsum = dstate * (1 - hidden[:, t + 1] ** 2)
            dprojected[:, t] += dsum
            dstate = dsum @ recurrent.T
    return dprojected, dprojected[:, 0] @ recurrent.T, np.einsum("bti,btj->ij", hidden[:, :-1], dprojected)


def _drecurrent(change):
    """With `change(drecurrent, T)` for drecurrent."""

    def backward(*arrays):
        dprojected, dfirst, drecurrent = _rnn(*arrays)
        return dprojected, dfirst, change(drecurrent, arrays[0].shape[1])

    return backward


def _into_dhidden(dhidden, hidden, recurrent):
    for t in reversed(range(1, dhidden.shape[1])):
        dhidden[:, t - 1] += dhidden[:, t] * (1 - hidden[:, t + 1] ** 2) @ recurrent.T
    return _rnn(dhidden, hidden, recurrent, carry=False)


def _without_u(dhidden, hidden, recurrent):
    dprojected, _, drecurrent = _rnn(dhidden, hidden, recurrent)
    return dprojected, dprojected[:, 0], drecurrent


def _six_steps_back(dhidden, hidden, recurrent):
    dprojected, dbefore = np.empty_like(dhidden), np.zeros_like(dhidden[:, 0])
    for t in reversed(range(dhidden.shape[1])):
        dstate = dhidden[:, t] + (dbefore if t >= dhidden.shape[1] - 6 else 0)
        dprojected[:, t] = dstate * (1 - hidden[:, t + 1] ** 2)
        dbefore = dprojected[:, t] @ recurrent.T
    return dprojected, dbefore, np.einsum("btc,btd->cd", hidden[:, :-1], dprojected)


def _rnn_too(dhidden, hidden, recurrent):
    drecurrent, dprojected, dbefore = np.zeros_like(recurrent), np.zeros_like(dhidden), 0
    for t in range(dhidden.shape[1] - 1, -1, -1):
        dprojected[:, t] = (dhidden[:, t] + dbefore) * (1 - hidden[:, t + 1]) * (1 + hidden[:, t + 1])
        drecurrent += hidden[:, t].T @ dprojected[:, t]
        dbefore = np.einsum("bj,ij->bi", dprojected[:, t], recurrent)
    return [dprojected, dbefore, drecurrent]


def _scores_loops(dscores, features, score_weight):
    B, Tq, Tk, C = features.shape
    dquery, dkey = np.zeros((B, Tq, C), features.dtype), np.zeros((B, Tk, C), features.dtype)
    dscore_weight = np.zeros_like(score_weight)
    for b, i, j in np.ndindex(B, Tq, Tk):
        dsum = dscores[b, i, j] * score_weight * (1 - features[b, i, j] ** 2)
        dquery[b, i] += dsum
        dkey[b, j] += dsum
        dscore_weight += dscores[b, i, j] * features[b, i, j]
    return dquery, dkey, dscore_weight


RIGHT = {"rnn_backward": [_rnn_too], "additive_scores_backward": [_scores_loops]}


WRONG = {
    "rnn_backward": {
        "the future is forgotten": (lambda *a: _rnn(*a, carry=False), "does not reach every position before it"),
        "the loop runs forward": (lambda *a: _rnn(*a, backwards=False), "does the loop run from the last"),
        "U is not transposed": (lambda *a: _rnn(*a, transposed=False), "dfirst is not dprojected_1 Uᵀ"),
        "the slope of the state before": (lambda *a: _rnn(*a, slope=0), "with U = 0"),
        "no slope of tanh": (_no_slope, "where every state is 1 or −1"),
        "the state after instead of before": (lambda *a: _rnn(*a, before=1), "U multiplied the state before"),
        "averaged over sentences": (_averaged, "drecurrent must double"),
        "drecurrent of the last step alone": (_last_step_only, "the gradient of recurrent is wrong"),
        "two arrays": (lambda *a: _rnn(*a)[:2], "must return 3 arrays"),
        "always float64": (_always_float64, "np.zeros makes float64"),
        "drecurrent transposed": (_drecurrent(lambda d, T: d.T), "drecurrent is transposed"),
        "drecurrent averaged over time": (_drecurrent(lambda d, T: d / T), "0.2 times the true gradient"),
        "clipped": (_clipped, "1000 times the dhidden must give 1000 times the drecurrent"),
        "truncated": (_truncated, "reaches 3 of the 5 positions and must reach all"),
        "float32": (lambda *a: tuple(np.float32(gradient) for gradient in _rnn(*a)), "a gradient is float32"),
        "adds into dhidden": (_into_dhidden, "writes into its argument dhidden"),
        "dfirst without U": (_without_u, "as if h_0 had been added without going through U"),
        "cut off after 6 steps": (_six_steps_back, "or the way back cut off after some steps?"),
    },
    "additive_scores_backward": {
        "swapped": (_swapped, "what is summed over is the key's axis"),
        "tanh twice": (lambda *a: _scores(*a, slope=lambda f: 1 - np.tanh(f) ** 2), "tanh is flat"),
        "without score_weight": (_no_weight, "so it is a factor of their gradient"),
        "averaged over queries": (lambda *a: _scores(*a, total=np.mean), "query and key enter only as their sum"),
        "dscore_weight averaged": (_averaged_weight, "dscore_weight must double"),
        "dscore_weight through tanh's slope": (_weight_through_tanh, "the gradient of score_weight is wrong"),
        "1 − |features|": (
            lambda *a: _scores(*a, slope=lambda f: 1 - abs(f)),
            "is not dscore · score_weight · (1 − features²)",
        ),
        "float32": (lambda *a: tuple(np.float32(gradient) for gradient in _scores(*a)), "a gradient is float32"),
        "always float64": (lambda *a: _scores(*(np.float64(array) for array in a)), "np.zeros makes float64"),
        "a score_weight for each sentence": (
            lambda *a: (*_scores(*a)[:2], np.einsum("bqk,bqkc->bc", a[0], a[1])),
            "dscore_weight has shape (2, 4)",
        ),
    },
}
