"""The candidates for a question: the model that it names, and then the thread's preferences."""

from dataclasses import dataclass

from holdfast.broker.accounts import Account, Tokens
from holdfast.broker.dialects.reading import guessed
from holdfast.broker.models.intake.question import Question
from holdfast.broker.models.limits.gate import has_budget, is_allowed
from holdfast.broker.models.prices import Price
from holdfast.broker.models.providers.catalogue import Catalogue, Provider
from holdfast.broker.models.providers.endpoints import Endpoint, Operation
from holdfast.vocabulary.models import Model, Wire


@dataclass(frozen=True, slots=True)
class Candidate:
    provider: Provider
    model: Model
    price: Price | None
    others: tuple[Wire, ...] = ()
    """The dialects in which it can be asked, the best first, where it does not speak that of the question."""

    def most_usd(self, question: Question) -> float:
        """Return the most that an answer to this may cost, roughly; 0 if no price is known."""
        if self.price is None:
            return 0.0
        return self.price.cost(Tokens(guessed(question.size), question.most_output(self.model.output_tokens)))


def candidates(catalogue: Catalogue, account: Account, endpoint: Endpoint, asked: Candidate) -> list[Candidate]:
    """List the candidates in order. Each is allowed, and speaks the dialect of the question or can be asked in
    another one."""
    found = [asked]
    if endpoint.operation is not Operation.ANSWER:
        return found
    for model_id in account.preferences:
        model = catalogue.model(model_id)
        provider = catalogue.provider(model.provider) if model is not None else None
        if model is None or provider is None or model.id in [one.model.id for one in found]:
            continue
        price = catalogue.price(model)
        wires = tuple(wire for wire in model.wires if wire in provider.wires)
        speaks = endpoint.wire in wires
        asked_at_all = speaks or (wires and endpoint.may_be_translated)
        if asked_at_all and is_allowed(account, model.id) and (price is not None or not has_budget(account)):
            found.append(Candidate(provider, model, price, () if speaks else wires))
    return found
