"""A stream that the upstream breaks off, or ends with an error event, raises; it never looks complete."""

import openai


def heard(model):
    text = ""
    try:
        for chunk in openai.OpenAI(max_retries=0).chat.completions.create(
            model=model, messages=[{"role": "user", "content": "q"}], stream=True
        ):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
    except Exception as error:  # the package lets its transport's own exception through
        return text, error
    raise AssertionError(f"{model}: the broken stream ended as if whole, after {text!r}")


text, error = heard("cut")
assert text == "one ", text
text, error = heard("error-event")
assert text == "one ", text
assert isinstance(error, openai.APIError) and error.message == "the model fell over", error
