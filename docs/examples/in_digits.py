"""Write numbers in digits, as a postprocess: pip install text2num

    asrkit decode --model MODEL --postprocess in_digits:in_digits a.wav

"Press two, then twenty-one." becomes "Press 2, then 21." The package knows eight languages.
"""

from text_to_num import alpha2digit


def in_digits(text: str) -> str:
    written: str = alpha2digit(text, "en")
    return written
