"""Evidence of the machine at hand: what was inspected, the last record, and the server's log."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from orin_deploy.doctor import documents, texts
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.reading import merge
from orin_deploy.facts.device import Device


def live(device: Device, record: Mapping[str, Any] | None, log_lines: Iterable[str]) -> Evidence:
    """The evidence of a running machine, for the same rules as a folder's; `record` is that of the last `up`."""
    claims = [documents.of_device(dataclasses.asdict(device))]
    if record is not None:
        claims.append(documents.of_record(record))
    text = "\n".join(log_lines)
    if text:
        claims.append(texts.claims("server.log", text))
    return merge(claims)
