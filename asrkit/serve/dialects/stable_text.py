"""The text of a call as it becomes certain, for protocols whose texts cannot be taken back."""

from asrkit.serve.calls import CallUpdate


class StableText:
    """The text of a call that no later update changes.

    Attributes:
        text: text of the segments that have ended.
    """

    def __init__(self) -> None:
        self.text = self._sent = ""

    def grown(self, update: CallUpdate) -> str:
        """Add an update, and return the new part of the stable text, or "".

        All parts joined are the text of the call.
        """
        self.text = joined([self.text, *(segment.text for segment in update.segments)])
        stable = joined([self.text, update.stable_text])
        new, self._sent = stable[len(self._sent) :], stable
        return new


def joined(texts: list[str]) -> str:
    return " ".join(filter(None, texts))
