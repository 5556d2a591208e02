"""What is asked about health."""

from ade.core.web.forms.tasks import Form


class GetHealth(Form):
    thorough: bool = False  # also what takes longer the more there is: the store's files, and every invariant
