"""Refusals of the upstream become the exceptions that programs catch, with message, code and type intact; whole and
streamed."""

import openai

EXPECTED = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    404: openai.NotFoundError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
}
client = openai.OpenAI(max_retries=0)
for status, kind in EXPECTED.items():
    for stream in (False, True):
        try:
            client.chat.completions.create(
                model=str(status), messages=[{"role": "user", "content": "q"}], stream=stream
            )
        except openai.APIStatusError as error:
            assert type(error) is kind, (status, error)
            assert error.status_code == status, error
            assert (error.code, error.type, error.param) == (f"code_{status}", f"type_{status}", None), error.body
            assert error.body["message"] == f"message of {status}", error.body
            assert error.request_id == f"req_{status}", error.request_id
        else:
            raise AssertionError(f"{status} raised nothing")
