"""Findings in the words of LaminarDB, so that its tools and people find what they look for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from laminar_delta.model import Finding, FindingCode, Severity, ValidationResult, validate_vnode_count

_OWN_RULES = frozenset(code.value for code in FindingCode)
_PREFIXES = {
    **dict.fromkeys(_OWN_RULES, "manifest validation: "),
    "manifest-changed": "corrupt manifest: ",
    "manifest-unreadable": "corrupt manifest: ",
}


def not_found(checkpoint_id: int) -> ValidationResult:
    """The result for a checkpoint that is not there."""
    message = f"manifest not found for checkpoint {checkpoint_id}"
    finding = Finding(severity=Severity.FATAL, code="manifest-not-found", message=message)
    return ValidationResult.of(checkpoint_id, (finding,))


def in_laminardb_words(
    checkpoint_id: int, findings: Iterable[Finding], vnode_count: int | None, expected: int
) -> ValidationResult:
    """The result for a checkpoint, in LaminarDB's order: the manifest against itself, then its state, then the rest.

    Args:
        checkpoint_id: Which.
        findings: What the catalog found.
        vnode_count: What the checkpoint was saved with; None when nobody told.
        expected: What the runtime has.
    """
    found = list(findings)
    if not any(finding.code in ("manifest-changed", "manifest-unreadable") for finding in found):
        found.extend(validate_vnode_count(vnode_count or 0, expected))
    found.sort(key=lambda finding: finding.code not in _OWN_RULES)
    worded = (replace(finding, message=_PREFIXES.get(finding.code, "") + finding.message) for finding in found)
    return ValidationResult.of(checkpoint_id, tuple(worded))
