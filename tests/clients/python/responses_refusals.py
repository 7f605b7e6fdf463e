"""Refusals of the upstream on the Responses API become the exceptions that programs catch; whole and streamed."""

import openai

EXPECTED = {400: openai.BadRequestError, 404: openai.NotFoundError, 429: openai.RateLimitError, 500: openai.InternalServerError}
client = openai.OpenAI(max_retries=0)
for status, kind in EXPECTED.items():
    for stream in (False, True):
        try:
            client.responses.create(model=str(status), input="q", stream=stream)
        except openai.APIStatusError as error:
            assert type(error) is kind and error.status_code == status, error
            assert (error.code, error.type, error.param) == (f"code_{status}", f"type_{status}", None), error.body
            assert error.body["message"] == f"message of {status}", error.body
        else:
            raise AssertionError(f"{status} raised nothing")
