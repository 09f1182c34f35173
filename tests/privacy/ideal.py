"""The ideal normal of two words and the bits behind them, digit by digit and apart from the library's own way."""

import mpmath

BITS = 256 * 2
_CONTEXT = mpmath.MPContext()
_CONTEXT.prec = BITS + 200


def signed(word):
    return int(word) - 2**64 * (int(word) >= 2**63)


def ideal(radius_word, angle_word, more, sine):
    """ξ from 64 + 512 bits of radius and angle each, to 200 digits."""
    blocks = [more(level) for level in range(BITS // 256)]
    x, y = (
        _CONTEXT.mpf(signed(word))
        + sum(
            _CONTEXT.ldexp(_CONTEXT.mpf(int.from_bytes(block[part], "little")), -256 * (level + 1))
            for level, block in enumerate(blocks)
        )
        for word, part in ((radius_word, slice(0, 32)), (angle_word, slice(32, 64)))
    )
    radius = _CONTEXT.sqrt(2 * (63 * _CONTEXT.ln2 - _CONTEXT.log(abs(x))))
    angle = _CONTEXT.pi * y / 2**63
    return radius * (_CONTEXT.sin if sine else _CONTEXT.cos)(angle)


def ideal_number(total, scale, step, words, more, sine):
    """z: the integer nearest to (S + s ξ)/γ."""
    value = (_CONTEXT.mpf(total) + _CONTEXT.mpf(scale) * ideal(*words, more, sine)) / _CONTEXT.mpf(step)
    return int(_CONTEXT.floor(value + _CONTEXT.mpf(0.5)))
