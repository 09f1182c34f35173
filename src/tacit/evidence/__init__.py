"""What an auditor receives: archives of runs, signed heads, and how both are verified."""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.evidence.archive import Archive, pack
    from tacit.evidence.outcomes import Verification
    from tacit.evidence.signatures import Statement, new_key, read_signature, sign
    from tacit.evidence.verification import verify
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.evidence.archive": ("Archive", "pack"),
            "tacit.evidence.outcomes": ("Verification",),
            "tacit.evidence.signatures": ("Statement", "new_key", "read_signature", "sign"),
            "tacit.evidence.verification": ("verify",),
        },
    )

__all__ = ["Archive", "Statement", "Verification", "new_key", "pack", "read_signature", "sign", "verify"]
