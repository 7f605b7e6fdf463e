// The package's own retries, after the refusals that it retries: the program sees the answer alone.
import assert from "node:assert/strict";
import OpenAI from "openai";

const ask = { model: "gpt-scripted", messages: [{ role: "user", content: "q" }] };
const reply = await new OpenAI().chat.completions.create(ask);
assert.equal(reply.choices[0].message.content, "at last");
