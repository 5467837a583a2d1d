"""A source of samples, and how one fails."""

from __future__ import annotations

from typing import Protocol

from orin_deploy.observe.telemetry.sample import Sample


class SourceFailed(Exception):
    """A source cannot give a sample: it is not there, has died, or says what we do not understand."""


class Source(Protocol):
    """Where samples come from. All methods may raise anything and may hang: the sampler guards against both."""

    name: str

    def open(self) -> None:
        """Find or start what the source reads."""

    def read(self) -> Sample:
        """The newest sample."""

    def close(self) -> None:
        """Let go of it; also after a failed `open`."""
