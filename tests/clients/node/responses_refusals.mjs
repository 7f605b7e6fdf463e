// Refusals of the upstream on the Responses API become the exceptions that programs catch; whole and streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { BadRequestError, NotFoundError, RateLimitError, InternalServerError } = OpenAI;
const client = new OpenAI({ maxRetries: 0 });
for (const [status, kind] of [[400, BadRequestError], [404, NotFoundError], [429, RateLimitError], [500, InternalServerError]]) {
  for (const stream of [false, true]) {
    await assert.rejects(client.responses.create({ model: String(status), input: "q", stream }), (error) => {
      assert.deepEqual([error.constructor, error.status], [kind, status]);
      assert.deepEqual([error.code, error.type, error.param], [`code_${status}`, `type_${status}`, null]);
      assert.equal(error.error.message, `message of ${status}`);
      return true;
    });
  }
}
