"""The models of UM-Bridge: the field models that are served, and the compositions of `physics` around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from physics.posterior.composite import composites
from serving.errors import Problem
from serving.umbridge.composite_model import CompositeModel
from serving.umbridge.field_model import FieldModel, fits

if TYPE_CHECKING:
    from physics.posterior.composite import Composite
    from serving.service import Service
    from serving.umbridge.model import Model


def names(service: Service) -> list[str]:
    """Return the names of all models.

    Raises:
        Problem: triton-unavailable: The inference server does not respond.
    """
    catalogue = service.catalogue
    fields = {model.name for model in catalogue.models() if fits(catalogue.find(model.name).card)}
    return sorted(fields | {each.name for each in composites().values() if _possible(each, service)})


def find(service: Service, name: str) -> Model:
    """Return the model of a name; one of the repository comes before a composite.

    Raises:
        Problem: unknown-model: There is none.
        Problem: model-not-ready: It is not loaded and warm yet.
        Problem: triton-unavailable: The inference server does not respond.
    """
    catalogue, composite = service.catalogue, composites().get(name)
    if composite is not None and not catalogue.knows(name) and _possible(composite, service):
        return CompositeModel(composite, service)
    if not catalogue.knows(name) or not fits(catalogue.find(name).card):
        raise Problem("unknown-model", f'there is no model "{name[:64]}"; there are {", ".join(names(service))}')
    return FieldModel(name, service)


def _possible(composite: Composite, service: Service) -> bool:
    """Return whether the model of a composite is served, with the input that it sets and the output that it reads."""
    if composite.model not in service.catalogue.served():
        return False
    card = service.catalogue.find(composite.model).card
    others = {name for name in card.names if name not in card.optional} - {composite.input}
    return composite.input in card.names and not others and composite.output in {each.name for each in card.outputs}
