// Refusals of the upstream become the exceptions that programs catch, with message, code and type intact; whole and
// streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";

const expected = {
  400: OpenAI.BadRequestError,
  401: OpenAI.AuthenticationError,
  404: OpenAI.NotFoundError,
  429: OpenAI.RateLimitError,
  500: OpenAI.InternalServerError,
};
const client = new OpenAI({ maxRetries: 0 });
for (const [status, kind] of Object.entries(expected)) {
  for (const stream of [false, true]) {
    const ask = { model: status, messages: [{ role: "user", content: "q" }], stream };
    await assert.rejects(client.chat.completions.create(ask), (error) => {
      assert.equal(error.constructor, kind);
      assert.equal(error.status, Number(status));
      assert.deepEqual([error.code, error.type, error.param], [`code_${status}`, `type_${status}`, null]);
      assert.equal(error.error.message, `message of ${status}`);
      assert.equal(error.requestID, `req_${status}`);
      return true;
    });
  }
}
