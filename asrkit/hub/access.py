"""Requests to the hub: their errors as messages for users, and uploads."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asrkit.errors import UserError, reason
from asrkit.hub import CARD, MODEL, Address


@contextmanager
def explained(address: Address) -> Iterator[None]:
    """In the block, turn errors of the library into UserErrors of one line."""
    try:
        from huggingface_hub import constants, errors
    except ValueError as error:
        why = f"one of its variables (HF_ENDPOINT, …) is wrong: {reason(error)}"
        raise UserError(f"huggingface_hub cannot be used: {why}") from None
    try:
        yield
    except UserError:
        raise
    except (errors.HTTPError, errors.XetDownloadError, OSError, RuntimeError, ValueError) as error:
        page = f"{constants.ENDPOINT}/{address.repository}"
        status = getattr(getattr(error, "response", None), "status_code", None)
        whys = {
            errors.GatedRepoError: f"its owner grants access: ask at {page}, then set HF_TOKEN",
            errors.RevisionNotFoundError: "no such revision: give a branch, a tag or a commit",
            errors.RepositoryNotFoundError: "no such repository, or a private one: set HF_TOKEN",
            errors.OfflineModeIsEnabled: "not in the cache, and HF_HUB_OFFLINE is set",
        }
        why = next((text for kind, text in whys.items() if isinstance(error, kind)), reason(error))
        if isinstance(error, errors.HTTPError) and status is None:
            why = f"not in the cache, and {constants.ENDPOINT} cannot be reached: {why}"
        elif status in (401, 403) and type(error) is errors.HfHubHTTPError:
            why = "not allowed: set HF_TOKEN to a token of the hub that may do this"
        elif status == 412:
            why = "it has a new commit since: try again"
        raise UserError(f"{address}: {why}") from None


def upload(
    path: Path, card: str, address: Address, private: bool, overwrite_card: bool
) -> tuple[str, bool]:
    """Write a model file and its card in one commit; return it, and whether it has the card."""
    repository, branch, file = address
    with explained(address):
        from huggingface_hub import CommitOperationAdd, HfApi

        api = HfApi()
        api.create_repo(repository, private=private or None, exist_ok=True)
        there = api.model_info(repository)
        if private and not there.private:
            raise UserError(f"{address} is public: --private is for a repository that is not there")
        if branch is not None:
            api.create_branch(repository, branch=branch, exist_ok=True)
            there = api.model_info(repository, revision=branch)
        files: dict[str, Path | bytes] = {file or MODEL: path, CARD: card.encode()}
        if any(each.rfilename == CARD for each in there.siblings or []) and not overwrite_card:
            del files[CARD]
        done = api.create_commit(
            repository, [CommitOperationAdd(*each) for each in files.items()],
            commit_message=f"Upload {file or MODEL} with asrkit", revision=branch,
            parent_commit=there.sha,
        )  # fmt: skip
    return done.oid, CARD in files
