"""Names of fields in the form that the wire allows."""

from __future__ import annotations

import re
import unicodedata

GREEK = re.compile(r"GREEK (?:SMALL|CAPITAL)? ?(?:LETTER )?(?:FINAL )?([A-Z]+)(?: SYMBOL)?")  # the names of its letters

LONGEST = 40  # letters, behind which a draft may write `_first`, of the 48 that names have


def wire_name(name: str) -> str:
    """Return a name in the form that the wire allows: lower case letters, digits and underscores.

    Example:
        >>> wire_name("κ"), wire_name("Δt"), wire_name("pressão"), wire_name("λ₁ (m)"), wire_name("流速")
        ('kappa', 'delta_t', 'pressao', 'lambda_1_m', 'field')
    """
    plain = "".join(map(latin, unicodedata.normalize("NFKD", name)))
    made = re.sub(r"[^a-z0-9]+", "_", plain.lower()).strip("_")
    return (made if made[:1].isalpha() else f"field_{made}")[:LONGEST].rstrip("_")


def latin(letter: str) -> str:
    """Return a letter, a Greek one as its name, or nothing for an accent."""
    found = GREEK.fullmatch(unicodedata.name(letter, ""))
    return f" {found[1].replace('LAMDA', 'LAMBDA')} " if found else "" if unicodedata.combining(letter) else letter
