"""The room a deployment must fit in, and what fits it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import AVAILABLE, Budget, estimate, fit_context
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.serving import Serving


@dataclass(frozen=True)
class Room:
    """Bytes that can be had and what bounds them, the system's reserve, and rows that no option changes.

    Where the limit was set by hand, `beyond_bytes` could be had without it.
    """

    limit_bytes: int
    limit_source: str
    reserve_bytes: int = 0
    extra: tuple[Row, ...] = ()
    limit_kind: str = AVAILABLE
    beyond_bytes: int = 0

    @property
    def fixed(self) -> bool:
        """Whether the limit was set or is a control group's: memory that others give back does not raise it."""
        return self.limit_kind != AVAILABLE

    def budget(self, model: Model, serving: Serving, tokens: int | None = None) -> Budget:
        """What serving takes here, at its own context or at one of `tokens` over all slots."""
        return estimate(
            model,
            serving if tokens is None else replace(serving, ctx_size=tokens),
            reserve_bytes=self.reserve_bytes,
            limit_bytes=self.limit_bytes,
            limit_source=self.limit_source,
            limit_kind=self.limit_kind,
            extra=self.extra,
        )

    def most(self, model: Model, serving: Serving) -> int | None:
        """The largest context over all slots that fits here; None when none does."""
        left = self.limit_bytes - sum(row.bytes for row in self.extra)
        return fit_context(model, serving, limit_bytes=left, reserve_bytes=self.reserve_bytes)
