"""A stream of the Responses API that the upstream breaks off never looks complete, and its error events raise."""

import openai

client = openai.OpenAI(max_retries=0)


def heard(model):
    text = ""
    try:
        for event in client.responses.create(model=model, input="q", stream=True):
            text += event.delta if event.type == "response.output_text.delta" else ""
            assert event.type not in ("response.completed", "response.incomplete"), event
    except Exception as error:  # the package lets its transport's own exception through
        return text, error
    raise AssertionError(f"{model}: the broken stream ended as if whole, after {text!r}")


text, error = heard("cut")
assert text == "one ", text
text, error = heard("error-event")
assert text == "one ", text
assert isinstance(error, openai.APIError) and "the model fell over" in error.message, error
