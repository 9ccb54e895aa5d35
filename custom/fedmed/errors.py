"""The exceptions a user of FedMed meets.

Every message says what is wrong, where (path, key, site or tensor) and what to do about it. A path may name a
patient, so the text of an error stays at the site where it was raised: only a return code travels.
"""

from pydoc import ErrorDuringImport

from fedmed.plain_text import in_lines, in_terminal

LONGEST = 500  # characters of a reason or a tensor's name that came from a peer


class FedMedError(Exception):
    """Base of all errors raised on purpose by FedMed. What it quotes of peers and files is harmless in a terminal."""

    def __str__(self) -> str:
        return in_lines(super().__str__())


class SiteConfigError(FedMedError):
    """A site's YAML file is missing, malformed, or has a wrong key or value."""


class DataError(FedMedError):
    """A site's data cannot be used: a missing, unreadable, empty or inconsistent image, mask or datalist."""


class BundleError(FedMedError):
    """A bundle cannot be found or built, or it differs from the one the server uses."""


class OverrideError(BundleError):
    """A job asks for a bundle setting that may not come from a job."""


class MissingPackage(FedMedError):
    """A package that only some studies need is not installed; see :func:`fedmed.optional.needs`."""


class JobError(FedMedError):
    """A job folder is incomplete or its arguments contradict each other."""


class SharingError(FedMedError):
    """Tensors do not fit the sharing policy: an unknown, missing, private or wrongly shaped name."""


class UpdateRefused(FedMedError):
    """The server refuses a site's update.

    Attributes:
        reason, tensor: on one line, and not longer than a line can be read.
    """

    def __init__(self, site: str, reason: str, tensor: str | None = None) -> None:
        self.site, self.reason = site, in_terminal(reason, LONGEST)
        self.tensor = None if tensor is None else in_terminal(tensor, LONGEST)
        where = f"tensor '{self.tensor}': " if tensor else ""
        super().__init__(f"update of site '{in_terminal(site)}' refused: {where}{self.reason}")


class RoundFailed(FedMedError):
    """Too few updates were accepted in a round, whose model is unchanged; or those of labelled sites in no round."""


class StateError(FedMedError):
    """A site's state from an earlier round is missing or damaged."""


class ExportError(FedMedError):
    """A run cannot become a bundle: it is unfinished or incomplete, or the result could not be written."""


class PrivacyError(FedMedError):
    """An answer goes beyond what the site's own settings allow to leave; it is not sent."""


class FlareVersionError(FedMedError):
    """The installed NVFlare lacks something that FedMed uses and NVFlare does not promise to keep."""


class Aborted(FedMedError):
    """The job was aborted while a site was working."""


def first_line(error: BaseException) -> str:
    """The first line of a library's error, or its type if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def unwrapped(error: BaseException) -> BaseException:
    """Error inside a component or transform that MONAI built or called.

    MONAI wraps it in a RuntimeError, once at each level, and pydoc, by which MONAI imports, in another. The first error
    of another type is what our code or a bundle said: its own cause is a library's text, which is less clear.
    """
    while inner := _wrapped(error):
        error = inner
    return error


def _wrapped(error: BaseException) -> BaseException | None:
    if isinstance(error, ErrorDuringImport):
        return error.value
    return error.__cause__ if type(error) is RuntimeError else None
