"""Compiled codecs, one kernel per kind of format, parametrised by the format's numbers.

Decides the bits of an encoding from the value's own bits, in integer arithmetic. It must not know which
formats exist. Values are float64, which holds every value of every format; codes are uint32, right-aligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kohakuaccel.jit import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Positions in the count array of the encoders.
SATURATED, NAN, OVERFLOWED, FLUSHED, INEXACT, COUNTS = 0, 1, 2, 3, 4, 5

# Positions in the parameter array of a scalar float.
EXP, MAN, BIAS, SUBNORMALS, IEEE, ZERO, SIGNED, OVERFLOW, ROUNDING, NAN_MODE, PARAMETERS = range(11)

ZERO_NONE, ZERO_UNSIGNED, ZERO_SIGNED = 0, 1, 2
TO_INFINITY, TO_MAX, TO_MARKER = 0, 1, 2
NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO = 0, 1, 2
NAN_CANONICAL, NAN_QUIETED, NAN_KEPT = 0, 1, 2

_HIDDEN = 1 << 52
_MAGNITUDE = (1 << 63) - 1
_INFINITY = 0x7FF << 52


@kernel
def encode_float(
    values: NDArray[np.float64],
    codes: NDArray[np.uint32],
    p: NDArray[np.int64],
    largest: float,
    counts: NDArray[np.int64],
) -> None:
    """float64[n] to codes uint32[n] of the scalar float `p`; adds to `counts` (int64[COUNTS]).

    `largest` is the format's largest ordinary value. One rounding, tininess judged after it.
    """
    exp, man, bias, subnormals, ieee = p[EXP], p[MAN], p[BIAS], p[SUBNORMALS], p[IEEE]
    zero, signed, overflow, rounding, nan_mode = p[ZERO], p[SIGNED], p[OVERFLOW], p[ROUNDING], p[NAN_MODE]
    one = 1 << man
    top = ((1 << exp) - 1) << man
    ceiling = top + one - 1 if ieee == 0 and overflow == TO_MAX else top - 1
    beyond = ceiling if overflow == TO_MAX else (top if overflow == TO_INFINITY else top + one - 1)
    lowest_exponent = 0 if zero == ZERO_NONE else 1
    quiet = one >> 1
    saturated = nan = overflowed = flushed = inexact = 0
    for i in range(values.shape[0]):
        x = np.float64(values[i])
        pattern = np.float64(values[i]).view(np.int64)
        negative = pattern < 0
        magnitude = pattern & _MAGNITUDE
        is_nan = magnitude > _INFINITY
        is_inf = magnitude == _INFINITY
        # Subnormal doubles lie far below every format's smallest value and count as just above zero.
        b = (magnitude >> 52) - 1023 + bias
        sig = (magnitude & (_HIDDEN - 1)) | _HIDDEN if magnitude != 0 else 0
        below = lowest_exponent - b if subnormals != 0 and b < lowest_exponent else 0
        drop = min(52 - man + below, 54)
        half = (1 << drop) >> 1
        lsb = (sig >> drop) & 1
        add = half - 1 + lsb if rounding == NEAREST_EVEN else (half if rounding == NEAREST_AWAY else 0)
        rounded = (sig + add) >> drop
        code = ((b + below - lowest_exponent) << man) + rounded - (one if lowest_exponent == 0 else 0)
        lossy = (rounded << drop) != sig
        # Without subnormals what is below the first normal code is zero, or that code if there is no zero.
        small = code < (0 if zero == ZERO_NONE else (one if subnormals == 0 else 0))
        code = 0 if small or magnitude == 0 else code
        flush = (code == 0) & (magnitude != 0) & (zero != ZERO_NONE)
        # The saturation pattern has a value too; that value itself is not a loss.
        marked = (overflow == TO_MARKER) & (code == beyond) & (not lossy)
        over = (code > ceiling) & (not marked)
        code = beyond if code > ceiling else code
        unsigned_loss = (signed == 0) & negative & (magnitude != 0)
        no_zero = (zero == ZERO_NONE) & (small | (magnitude == 0))
        code = 0 if unsigned_loss else code
        if ieee != 0:
            code = top if is_inf else code
            payload = (magnitude & (_HIDDEN - 1)) >> (52 - man)
            payload = payload | quiet if nan_mode == NAN_QUIETED or payload == 0 else payload
            code = top | (quiet if nan_mode == NAN_CANONICAL else payload) if is_nan else code
        else:
            code = beyond if is_inf and not unsigned_loss else code
            code = 0 if is_nan else code
        special = is_nan | (is_inf & (ieee != 0))
        clipped = (((abs(x) > largest) & (not marked)) | unsigned_loss | no_zero) & (not special)
        clipped = clipped & ((overflow != TO_INFINITY) | unsigned_loss | no_zero)
        infinite = over & (overflow == TO_INFINITY) & (not special)
        saturated += int(clipped)
        nan += int(is_nan & (ieee == 0))
        overflowed += int(infinite)
        flushed += int(flush & (not special))
        inexact += int((lossy | small | over | clipped) & (not special) & ((magnitude != 0) | no_zero))
        minus = negative & (signed != 0) & ((zero == ZERO_SIGNED) | (code != 0))
        minus = minus & (not (is_nan & ((nan_mode == NAN_CANONICAL) | (ieee == 0))))
        codes[i] = np.uint32(code | ((1 << (exp + man)) if minus else 0))
    counts[SATURATED] += saturated
    counts[NAN] += nan
    counts[OVERFLOWED] += overflowed
    counts[FLUSHED] += flushed
    counts[INEXACT] += inexact


@kernel
def decode_float(codes: NDArray[np.uint32], values: NDArray[np.float64], p: NDArray[np.int64]) -> int:
    """Codes uint32[n] of the scalar float `p` to float64[n], exact; a NaN keeps sign and payload.

    Returns how many codes are none of the format's: bits above its width, or an exponent reserved for the
    saturation pattern with another mantissa. Those decode as if the exponent were an ordinary one.
    """
    exp, man, bias, subnormals, ieee = p[EXP], p[MAN], p[BIAS], p[SUBNORMALS], p[IEEE]
    zero, signed, overflow = p[ZERO], p[SIGNED], p[OVERFLOW]
    top = (1 << exp) - 1
    width = exp + man + signed
    step = np.int64((1 - bias - man + 1023) << 52).view(np.float64)
    unlawful = 0
    for i in range(codes.shape[0]):
        code = np.int64(codes[i])
        mantissa = code & ((1 << man) - 1)
        exponent = (code >> man) & top
        minus = (signed != 0) & ((code >> (exp + man)) & 1 != 0)
        reserved = (overflow == TO_MARKER) & (exponent == top) & (mantissa != (1 << man) - 1)
        unlawful += int((code >> width != 0) | reserved)
        field = 0x7FF if ieee != 0 and exponent == top else exponent - bias + 1023
        normal = (field << 52) | (mantissa << (52 - man))
        tiny = np.float64(mantissa * step).view(np.int64) if subnormals != 0 else 0
        bits = tiny if exponent == 0 and zero != ZERO_NONE else normal
        minus = minus & ((bits != 0) | (zero == ZERO_SIGNED))
        bits = bits | np.int64(-(1 << 63)) if minus else bits
        values[i] = np.int64(bits).view(np.float64)
    return unlawful


@kernel
def encode_integer(
    values: NDArray[np.float64],
    codes: NDArray[np.int64],
    lowest: int,
    highest: int,
    rounding: int,
    counts: NDArray[np.int64],
) -> None:
    """float64[n] to integers int64[n] clamped to [lowest, highest]; NaN gives 0. Adds to `counts`."""
    saturated = nan = flushed = inexact = 0
    for i in range(values.shape[0]):
        x = np.float64(values[i])
        is_nan = x != x
        # Two beyond the limit is enough to saturate, and keeps what follows in exact small numbers.
        size = min(abs(np.float64(0.0) if is_nan else x), 2.0**53)
        floor = np.int64(size)
        rest = size - floor
        odd = floor & 1
        up = (rest > 0.5) | ((rest == 0.5) & (odd != 0))
        up = rest >= 0.5 if rounding == NEAREST_AWAY else up & (rounding == NEAREST_EVEN)
        whole = floor + int(up)
        whole = -whole if x < 0 else whole
        clipped = (x > highest) | (x < lowest)
        result = max(min(whole, highest), lowest)
        codes[i] = result
        saturated += int(clipped)
        nan += int(is_nan)
        flushed += int((result == 0) & (size != 0) & (not clipped))
        inexact += int((rest != 0) | clipped)
    counts[SATURATED] += saturated
    counts[NAN] += nan
    counts[FLUSHED] += flushed
    counts[INEXACT] += inexact
