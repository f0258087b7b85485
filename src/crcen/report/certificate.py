"""The printable page of a certificate, made from its JSON content alone."""

import json

from crcen._support.values import Values
from crcen.report.rendering import asset, rendered


def certificate_schema() -> Values:
    """The JSON Schema of certificates."""
    return dict(json.loads(asset("certificate.schema.json")))


def certificate_page(content: Values) -> str:
    """The content of a certificate as one HTML page without scripts; the same content gives the same bytes."""
    return rendered("certificate.html.j2", {"content": content}, asset("certificate.css"))
