"""G.711, the telephone format of 8 bits a sample: a table of int16 values for each law."""

import numpy as np


def mu_law(code: int) -> int:
    """Decode µ-law: sign, exponent and mantissa, all bits inverted; the bias is 33 in 14 bits."""
    code = ~code & 0xFF
    magnitude = ((((code & 0x0F) << 1) + 33) << (code >> 4 & 7)) - 33
    return 4 * (-magnitude if code & 0x80 else magnitude)


def a_law(code: int) -> int:
    """Decode A-law: sign, exponent and mantissa, every second bit inverted, in 13 bits."""
    code ^= 0x55
    exponent, mantissa = code >> 4 & 7, (code & 0x0F) << 1
    magnitude = mantissa + 1 if exponent == 0 else (mantissa + 33) << (exponent - 1)
    return 8 * (magnitude if code & 0x80 else -magnitude)


MU_LAW = np.array([mu_law(code) for code in range(256)], np.int16)
A_LAW = np.array([a_law(code) for code in range(256)], np.int16)
