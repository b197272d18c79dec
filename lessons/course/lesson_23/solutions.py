"""Solutions of lesson 23."""

# pyright: reportInvalidTypeForm=false

import numpy as np

from course.gpu import tl, torch, triton


def phi(x):
    return np.maximum(x, 0) + np.exp(np.minimum(x, 0))


def phi_slope(x):
    return np.exp(np.minimum(x, 0))


def layers_until_heard(allowed):
    T = len(allowed)
    heard = np.eye(T, dtype=bool)  # before the first layer each position knows itself
    layers = np.where(heard, 0, -1)
    listens = np.logical_or(allowed, heard).astype(float)  # a position keeps what it has: the residual connection
    for layer in range(1, T):  # a shortest way visits no position twice
        more = listens @ heard > 0  # heard of by any position that it listens to
        if (more == heard).all():
            break
        layers[more & ~heard] = layer
        heard = more
    return layers


def global_token_backward(dout, out, query, value_g, weights_g):
    dvalue_g = weights_g @ dout  # out_i = … + weights_g[i] · value_g, for every i
    dweights_g = dout @ value_g  # (T,)
    dscores_g = weights_g * (dweights_g - np.sum(dout * out, axis=1))  # Σ_j dweights_j weights_j is dout · out
    return dscores_g @ query / np.sqrt(query.shape[1]), dvalue_g


def linear_attention(query, key, value, eps=1e-6):
    features, key_features = phi(query), phi(key)
    state, total = np.zeros((key.shape[1], value.shape[1])), np.zeros(key.shape[1])  # S (D, Dv), z (D,)
    out = np.empty_like(value)
    for t in range(len(query)):
        state += np.outer(key_features[t], value[t])
        total += key_features[t]
        out[t] = features[t] @ state / (features[t] @ total + eps)
    return out


def linear_attention_backward(dout, query, key, value, eps=1e-6):
    T, D = query.shape
    features, key_features = phi(query), phi(key)
    dfeatures, dkey_features, dvalue = np.empty_like(query), np.empty_like(key), np.empty_like(value)
    dnumerator, ddenominator = np.empty_like(dout), np.empty(T)

    state, total = np.zeros((D, value.shape[1])), np.zeros(D)
    for t in range(T):  # the forward again
        state += np.outer(key_features[t], value[t])
        total += key_features[t]
        denominator = features[t] @ total + eps
        out = features[t] @ state / denominator
        dnumerator[t] = dout[t] / denominator  # out = numerator / denominator
        ddenominator[t] = -dnumerator[t] @ out
        dfeatures[t] = state @ dnumerator[t] + total * ddenominator[t]  # numerator = φ(q) S, denominator = φ(q)·z + eps

    dstate, dtotal = np.zeros_like(state), np.zeros_like(total)
    for t in reversed(range(T)):  # the state of t is in all later ones: their gradients add up
        dstate += np.outer(features[t], dnumerator[t])
        dtotal += features[t] * ddenominator[t]
        dkey_features[t] = dstate @ value[t] + dtotal  # S += φ(k)ᵀ v, z += φ(k)
        dvalue[t] = key_features[t] @ dstate
    return dfeatures * phi_slope(query), dkey_features * phi_slope(key), dvalue


@triton.jit
def chunk_states_backward_kernel(query_ptr, dnumerator_ptr, dstates_ptr, CHUNKS: tl.constexpr, D: tl.constexpr):
    tile = tl.arange(0, D)[:, None] * D + tl.arange(0, D)[None, :]
    first = tl.program_id(0) * CHUNKS * D * D  # where this head begins, in all three arrays
    dstate = tl.zeros((D, D), tl.float32)  # of the chunks to come; it never leaves its registers
    for n in range(CHUNKS):
        place = first + (CHUNKS - 1 - n) * D * D + tile
        tl.store(dstates_ptr + place, dstate)
        query = tl.load(query_ptr + place)
        features = tl.maximum(query, 0.0) + tl.exp(tl.minimum(query, 0.0))
        dstate += tl.dot(tl.trans(features), tl.load(dnumerator_ptr + place), input_precision="ieee")


def chunk_states_backward(query, dnumerator):
    heads, time, width = query.shape
    dstates = torch.empty((heads, time // 16, width, width), device=query.device)
    chunk_states_backward_kernel[(heads,)](query, dnumerator, dstates, CHUNKS=time // 16, D=16)
    return dstates
