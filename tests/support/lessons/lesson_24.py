"""Answers to lesson 24: right ones written in another way, and plausible wrong ones (see `answers`)."""

import json
import struct

import numpy as np


def _header_by_struct(data):
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(bytes(data[8 : 8 + length]).decode("utf-8"))
    header.pop("__metadata__", None)
    tensors = {
        name: (entry["dtype"], tuple(entry["shape"]), *(8 + length + offset for offset in entry["data_offsets"]))
        for name, entry in header.items()
    }
    for name, (_, _, _, stop) in tensors.items():
        if stop > len(data):
            raise ValueError(f"{name} is cut off")
    return tensors


def _header_of_eight_bytes_or_more(data):
    if len(data) < 8:
        raise ValueError("the file ends in the length of its header")
    return _header_by_struct(data)


def _zeros_before(bits):
    pairs = np.zeros((*bits.shape, 2), "<u2")
    pairs[..., 1] = bits  # the upper half is the second of two little-endian numbers
    return pairs.view("<f4")[..., 0]


def _times_65536(bits):
    return np.multiply(bits, 65536, dtype=np.uint32).view("f4")


def _thirds(dweights, dbiases):
    thirds = [np.concatenate(list(heads), axis=1) for heads in dweights]  # (C, H·D) each
    return np.concatenate(thirds, axis=1), np.concatenate([np.concatenate(list(heads)) for heads in dbiases])


def _adapter_row_by_row(dout, cache):
    x, low, weight, A, B, alpha = cache
    dx, dA, dB = np.zeros(x.shape), np.zeros(A.shape), np.zeros(B.shape)
    for row in np.ndindex(x.shape[:-1]):
        dlow = B @ dout[row] * alpha / len(B)
        dx[row] = weight @ dout[row] + A @ dlow
        dA += x[row][:, None] * dlow
        dB += np.outer(low[row], dout[row]) * alpha / len(B)
    return dx, dA, dB


def _adapter_by_einsum(dout, cache):
    x, _, weight, A, B, alpha = cache
    rows, drows = x.reshape(-1, len(A)), dout.reshape(-1, B.shape[1])
    scale = alpha / B.shape[0]
    dx = np.einsum("...f,cf->...c", dout, weight) + scale * np.einsum("...f,rf,cr->...c", dout, B, A)
    return dx, scale * np.einsum("nc,nf,rf->cr", rows, drows, B), scale * np.einsum("nc,cr,nf->rf", rows, A, drows)


RIGHT = {
    "read_header": [_header_of_eight_bytes_or_more],
    "widen": [_zeros_before, _times_65536],
    "split_c_attn_backward": [_thirds],
    "adapter_backward": [_adapter_row_by_row, _adapter_by_einsum],
}


def _widened_in_a_loop(bits):
    numbers = [struct.unpack("<f", struct.pack("<I", int(each) << 16))[0] for each in bits.ravel()]
    return np.array(numbers, np.float32).reshape(bits.shape)


def _widened_by_arithmetic(bits):
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent, fraction = (bits >> 7 & 255).astype(int), bits & 127
    return (sign * (1 + fraction / 128) * 2.0 ** (exponent - 127)).astype(np.float32)


MISTAKES = r"""
[read_header]
no exception of its own for a file of 5 bytes | is _header_by_struct | it has 5 bytes, fewer than the header's
four bytes of the length | data[:8] → data[:4] | read as if it had 4 bytes
the highest byte first | "little" → "big" | the lowest byte first
counted from the header's end | first + start, first + stop → start, stop | counted from the end of the header: start
the 8 bytes forgotten | first + start, first + stop → length + start, length + stop | which is 8 too early
metadata taken for a tensor | if name != "__metadata__": → if True: | KeyError: 'data_offsets'
metadata with an empty place
    start, stop = entry["data_offsets"] → start, stop = entry.get("data_offsets", (0, 0))
    entry["dtype"], tuple(entry["shape"]) → entry.get("dtype", "F32"), tuple(entry.get("shape", ()))
    if name != "__metadata__": → if True:
    __metadata__ is no tensor
a list for a shape | tuple(entry["shape"]) → entry["shape"] | must be a tuple
how many bytes | first + start, first + stop → first + start, stop - start | how many bytes it has
the last byte | first + start, first + stop → first + start, first + stop - 1 | as in a slice
NumPy's type
    entry["dtype"], tuple → {"F32": "f4", "BF16": "u2"}.get(entry["dtype"]), tuple
    and the header says 'F32'
only types that are known | if name != "__metadata__": → if entry.get("dtype") in ("F32", "BF16", "F64"): | 'mask'
single numbers left out | if name != "__metadata__": → if entry.get("shape"): | 'scale'
names made longer | found[name] → found["model." + name] | a tensor is called ['model.
the order of the header
    found = {} → found, place = {}, 0
    start, stop = entry["data_offsets"] → start, stop = place, place + np.diff(entry["data_offsets"]).item()
    found[name] = → place = stop\n            found[name] =
    its data_offsets say where
never too short | raise ValueError → str | is read as if it were whole
another error | raise ValueError → raise EOFError | it must raise ValueError
the last tensor's stop alone
    max([stop for *_, stop in found.values()], default=first) → [first, *(stop for *_, stop in found.values())][-1]
    2 bytes short; the header names the tensors in another order
an assertion | raise ValueError(f → assert False, (f | must raise ValueError, and it raises AssertionError
two bytes of the length | data[:8] → data[:2] | a file whose header has more than 65,536 bytes
one byte of the length | int.from_bytes(data[:8], "little") → data[0] | of a file with 120 tensors: it raises JSON
a stop from the header's end | first + start, first + stop → first + start, stop | its data_offsets say where
how many bytes, taken for the stop | first + stop → first + start + stop | (this file is whole: its 290 bytes
no room to spare | end > len(data) → end >= len(data) | 290 bytes of 290
a list | returns list(answer) | it must return a dictionary
a pair of places
    returns {name: (sort, shape, (start, stop)) for name, (sort, shape, start, stop) in answer.items()}
    four entries
letters of ASCII alone | json.loads(data[8:first]) → json.loads(data[8:first].decode("ascii")) | größe
[widen]
shifted by 15 | << 16 → << 15 | the bits are shifted by 15
as float16 | is lambda bits: bits.view(np.float16).astype(np.float32) | are those of float16
the bits as numbers | is lambda bits: bits.astype(np.float32) | not `astype`
shifted as 16 bits | bits.astype(np.uint32) << 16 → (bits << 16).astype(np.uint32) | were the 16 bits shifted out
never made 32 bits | bits.astype(np.uint32) → bits | one number comes from 16 bits
converted, not looked at | .view(np.float32) → .astype(np.float32) | where `astype` or a product
not shifted | << 16 → << 0 | they are the upper half
the other order of bytes | bits.astype → bits.byteswap().astype | two bytes exchanged
without a sign | bits.astype → (bits & 0x7FFF).astype | lost their sign
float64 | returns answer.astype(np.float64) | must return float32
NaN made 0 | returns np.nan_to_num(answer) | infinity, 0x7F80
small numbers made 0 | returns np.where(np.abs(answer) < 1e-38, 0, answer).astype(np.float32) | −0, 0x8000
by arithmetic | is _widened_by_arithmetic | 0, 0x0000
one line of numbers | returns answer.reshape(-1) | the shape stays as it is
the bits twice | (bits.astype(np.uint32) << 16) → (bits * np.uint32(65537)) | has become 1.00193787
an axis more | returns answer[..., None] | have become (6, 1): the shape stays as it is
a list | returns list(answer) | it must return an array
in a loop | is _widened_in_a_loop | hundreds of millions
read through its buffer
    is lambda bits: (np.frombuffer(bits, "<u2").astype("u4") << 16).view("f4").reshape(bits.shape)
    contiguous
[split_c_attn_backward]
reshaped alone | dweights.transpose(2, 0, 1, 3) → dweights | numbers of other rows
as a Linear | returns solution(dweights, dbiases)[0].T, dbiases.reshape(-1) | a Linear's layout
head by head
    dweights.transpose(2, 0, 1, 3) → dweights.transpose(2, 1, 0, 3)
    in dweight queries, keys and values alternate
the bias head by head | dbiases.reshape(-1) → dbiases.swapaxes(0, 1).reshape(-1) | in dbias queries, keys and values
every H-th column
    dweights.transpose(2, 0, 1, 3) → dweights.transpose(2, 0, 3, 1)
    in dweight the columns of the heads
every H-th place of the bias
    dbiases.reshape(-1) → dbiases.swapaxes(1, 2).reshape(-1)
    in dbias the columns of the heads
values first | dweights.transpose(2, 0, 1, 3) → dweights[::-1].transpose(2, 0, 1, 3) | [V|K|Q]
keys before queries | dweights.transpose(2, 0, 1, 3) → dweights[[1, 0, 2]].transpose(2, 0, 1, 3) | [K|Q|V]
the bias's keys before its queries | dbiases.reshape(-1) → dbiases[[1, 0, 2]].reshape(-1) | in dbias the thirds are [K
the last head first | dweights.transpose(2, 0, 1, 3) → dweights[:, ::-1].transpose(2, 0, 1, 3) | the reverse order
one third | dweights.transpose(2, 0, 1, 3) → dweights[0].transpose(1, 0, 2) | one third of it
the bias in thirds | dbiases.reshape(-1) → dbiases.reshape(3, -1) | dbias has shape
the other order | returns answer[::-1] | the other order
a mean | returns answer[0] / 3, answer[1] | dweight
queries three times
    dweights.transpose(2, 0, 1, 3) → dweights[[0, 0, 0]].transpose(2, 0, 1, 3)
    dweight is wrong in 200 of its 300 places
a bias of zeros | returns answer[0], 0 * answer[1] | dbias is zero everywhere
a bias from the weights | returns answer[0], dweights.sum(axis=2).reshape(-1) | should be 2104.5
the last head's bias first | dbiases.reshape(-1) → dbiases[:, ::-1].reshape(-1) | in dbias the heads are in the reverse
H·D for C
    return dweight.reshape(C, -1) → return dweight.reshape(dbiases[0].size, -1)
    with C = 7
an axis of 3 kept | dweight.reshape(C, -1) → dweight.reshape(C, 3, -1) | (10, 3, 10) and must have (10, 30)
columns turned
    dweights.transpose(2, 0, 1, 3) → dweights[..., ::-1].transpose(2, 0, 1, 3)
    columns of a head are in another
[adapter_backward]
what arrives at low for low
    low.reshape(-1, r).T @ dout → (dout @ B.T).reshape(-1, r).T @ dout | where `low` itself belongs
alpha times r | scale = alpha / r → scale = alpha * r | which is r²
the scale forgotten | scale = alpha / r → scale = 1.0 | has the factor alpha/r been forgotten?
the scale twice in dA | dA = x.reshape(-1, C).T → dA = scale * x.reshape(-1, C).T | it belongs in here only once
the scale twice in dB | dB = scale * ( → dB = scale * scale * ( | dB is 1.5 times
alpha without r | scale = alpha / r → scale = alpha | dA is 4 times what it should be everywhere, which is r
r over alpha | scale = alpha / r → scale = r / alpha | so is the factor r/alpha?
the scale forgotten in dB | dB = scale * ( → dB = ( | dB is 0.666667 times
the scale forgotten in dx | + dlow @ A.T → + dlow / scale @ A.T | the adapter's part without the factor
the scale twice in dx | + dlow @ A.T → + scale * dlow @ A.T | the adapter's part with the factor alpha/r twice
alpha without r in dx | + dlow @ A.T → + r * dlow @ A.T | the factor alpha, and it is alpha/r
r over alpha in dx | + dlow @ A.T → + dlow / scale**2 @ A.T | the factor r/alpha
the scale on W's part | dout @ weight.T → scale * dout @ weight.T | on W's part too
W's part alone | + dlow @ A.T → + 0 * dlow @ A.T | through W alone: x goes into A too
the adapter's part alone | dx = dout @ weight.T + → dx = | W is frozen, and x still goes through it
a difference | weight.T + dlow → weight.T - dlow | y is a sum, and so is dx
dA without B | dlow = scale * (dout @ B.T) → dlow = scale * dout | is x and dout alone, scaled
dA without B and scale | @ dlow.reshape(-1, r)  # → @ dout.reshape(-1, F)  # | is x and dout alone:
B not transposed | dout @ B.T → dout @ B | dA has B where Bᵀ belongs
B not transposed in dx | + dlow @ A.T → + scale * dout @ B @ A.T | dx has B where Bᵀ belongs
A not transposed | dlow @ A.T → dlow @ A | dx has A where Aᵀ belongs
W not transposed | weight.T → weight | dx has W where Wᵀ belongs
neither transposed | + dlow @ A.T → + scale * dout @ A @ B | first Bᵀ, then Aᵀ
A first | + dlow @ A.T → + scale * dout @ A.T @ B.T | goes back through A first
dA transposed | return dx, dA, dB → return dx, dA.T, dB | dA is the transpose
dB transposed | return dx, dA, dB → return dx, dA, dB.T | dB is the transpose
low for x | dA = x.reshape(-1, C).T → dA = low.reshape(-1, r).T | has `low` where x belongs
x for low | low.reshape(-1, r).T → x.reshape(-1, C).T | dB has x where `low` belongs: B has
x for low without scale
    dB = scale * (low.reshape(-1, r).T → dB = (x.reshape(-1, C).T
    without the factor alpha/r: B has
not summed
    x.reshape(-1, C).T @ dlow.reshape(-1, r) → np.einsum("...c,...r->...cr", x, dlow)
    dA has shape (7, 4, 4) and must have (4, 4): all rows of x
dB not summed
    low.reshape(-1, r).T @ dout.reshape(-1, F) → low[..., None] * dout[..., None, :]
    dB has shape (7, 4, 4)
the first axis alone summed
    x.reshape(-1, C).T @ dlow.reshape(-1, r) → (x[..., None] * dlow[..., None, :]).sum(axis=0)
    dA has shape (5, 6, 2)
the mean over rows | return dx, dA, dB → return dx, dA / max(1, x.size // C), dB | the number of rows of x
the mean over sentences | return dx, dA, dB → return dx, dA / (len(x) if x.ndim > 2 else 1), dB | the first axis of x
the first sentence in dA
    x.reshape(-1, C).T @ dlow.reshape(-1, r) → x[:1].reshape(-1, C).T @ dlow[:1].reshape(-1, r)
    dA has only what the first of x gives
the first sentence in dB
    low.reshape(-1, r).T @ dout.reshape(-1, F) → low[:1].reshape(-1, r).T @ dout[:1].reshape(-1, F)
    dB has only what the first of x gives
the last sentence alone
    dx = dout → last = -1 if x.ndim > 2 else slice(None)\n    dx = dout
    x.reshape(-1, C).T @ dlow.reshape(-1, r) → x[last].reshape(-1, C).T @ dlow[last].reshape(-1, r)
    lacks a part of x
axes turned round | x.reshape(-1, C).T → x.T.reshape(C, -1) | dA pairs rows of x with other rows
axes turned round in dB | low.reshape(-1, r).T → low.T.reshape(r, -1) | dB pairs rows of `low`
A that has moved
    low.reshape(-1, r).T → (x @ (A - 0.1 * dA)).reshape(-1, r).T
    dB is computed with another A
B that has moved
    return dx, dA, dB → return dx, scale * x.reshape(-1, C).T @ (dout @ (B - 0.1 * dB).T).reshape(-1, r), dB
    dA is computed with another B
A that has moved, in dx
    return dx, dA, dB → return dx - 0.1 * dlow @ dA.T, dA, dB
    dx is computed with another A
B that has moved, in dx
    return dx, dA, dB → return dx - 0.1 * dout @ dB.T @ A.T, dA, dB
    dx is computed with another B
dB before dA | return dx, dA, dB → return dx, dB, dA | dA and dB are exchanged
divided by the root of r | scale = alpha / r → scale = alpha / r**0.5 | not alpha/√r
divided by F | scale = alpha / r → scale = alpha / F | which is r/F
divided by C | scale = alpha / r → scale = alpha / C | which is r/C
decay of the weights | return dx, dA, dB → return dx, dA + 0.1 * A, dB | dA is wrong in 16
W's gradient too | return dx, dA, dB → return dx, x.reshape(-1, C).T @ dout.reshape(-1, F), dA, dB | it returns 4 arrays
another order | return dx, dA, dB → return dA, dB, dx | in the order dx, dA, dB
merged, and then right
    dx = dout @ weight.T + dlow @ A.T → dx = dout @ (weight + scale * A @ B).T
    with W (400, 500), 3 rows and r = 2
nothing where B is 0 | return dx, dA, dB → return dx, dA, dB * (B != 0) | nothing would ever move
something where B is 0 | dlow = scale * (dout @ B.T) → dlow = scale * (dout @ (B + 1e-11).T) | dA must be 0
zero | return dx, dA, dB → return dx, 0 * dA, dB | dA is zero everywhere
a sign | return dx, dA, dB → return dx, dA, -dB | dB has the wrong sign
rounded | return dx, dA, dB → return dx, dA.astype(np.float32), dB | float32
only for two axes | x.reshape(-1, C).T @ dlow.reshape(-1, r) → x.T @ dlow | with x (2, 5, 6)
"""
