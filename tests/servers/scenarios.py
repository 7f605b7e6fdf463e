"""What is played: the user's words, the policies, and how it must end."""

from dataclasses import dataclass, field

# Policies that restrict calls, so that every reply is judged, and that have no cause to act in a tool loop.
GUARDED = """
[policy.allow]
except = ["delete_file"]
[policy.confirm]
tools = ["pay"]
[policy.turn_limits]
calls = 20
"""

HIDDEN = GUARDED.replace("except", "hide = true\nexcept")

WEATHER = [["weather", {"city": city}] for city in ("Rome", "Oslo", "Bern")]


@dataclass(frozen=True)
class Scenario:
    name: str
    question: str
    # What the configuration that ships is changed by, under each name; "shipped" changes nothing.
    policies: dict
    # Whether a policy acts. Where none does, not a byte may change, and the client must end as it ends without toolrein. None: one
    # may act, where a server does not say that it cut its reply; then no error may reach the client that it would not get otherwise.
    acts: bool | None = False
    # What the user says to the model's texts, in order.
    answers: tuple = ()
    # Further members of the request, by API.
    options: dict = field(default_factory=dict)
    # The calls that the client may make, in order; a number: at most so many.
    made: object = ()
    # The model's final text; None: any text of the model or of toolrein.
    text: str | None = None
    # Only with the history kept upstream.
    chained: bool = False


def tool_loop(name, chained):
    return Scenario(name, "[weather] How is the weather in Rome, Oslo and Bern?", {"shipped": "", "guarded": GUARDED},
                    made=tuple(WEATHER), text="It is clear everywhere.", chained=chained)


def runaway(name, tag, text, chained=False):
    return Scenario(name, f"{tag} Find out what toolrein is.", {"shipped": ""}, acts=True, made=5, text=text, chained=chained)


def blocked_call(name, chained=False):
    return Scenario(name, "[delete] Delete my notes if it rains in Lima.", {"allow.except": GUARDED}, acts=True,
                    made=(["weather", {"city": "Lima"}],), text="The file is still there.", chained=chained)


def approval(name, answer, made, text, chained=False):
    return Scenario(name, "[pay] Pay Ann.", {"confirm": GUARDED}, acts=True, answers=(answer,), made=made, text=text, chained=chained)


PAID = (["pay", {"to": "Ann", "amount": 250}],)

SCENARIOS = [
    Scenario("text", "Hello.", {"shipped": "", "guarded": GUARDED}, text="Hello from the model."),
    tool_loop("tool loop", False),
    Scenario("cut in a call", "[weather] How is the weather in Rome?", {"shipped": ""},
             acts=None, made=1, options={"chat": {"max_tokens": 17}, "responses": {"max_output_tokens": 17}}),
    runaway("runaway", "[find]", "I could not find it."),
    runaway("stubborn runaway", "[stubborn]", None),
    blocked_call("blocked call"),
    # The model calls what it sees: it answers at once where the tool is hidden from it, and calls the weather first where a server
    # shows it all the tools (llama.cpp ignores `allowed_tools`).
    Scenario("hidden tool", "[delete] Delete my notes if it rains in Lima.", {"allow.hide": HIDDEN}, acts=True, made=1, text="The file is still there."),
    approval("approved", "yes", PAID, "Ann has her money."),
    approval("declined", "no", (), None),
    tool_loop("chain", True),
    runaway("runaway in a chain", "[find]", "I could not find it.", chained=True),
    blocked_call("blocked call in a chain", chained=True),
    approval("approved in a chain", "yes", PAID, "Ann has her money.", chained=True),
]
