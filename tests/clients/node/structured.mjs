// Structured output, checked by the program's own schema, whole and streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ maxRetries: 0 });
const City = z.object({ name: z.string(), people: z.number() });
const ask = {
  model: "gpt-scripted",
  messages: [{ role: "user", content: "Which city?" }],
  response_format: zodResponseFormat(City, "City"),
};
const whole = await client.chat.completions.parse(ask);
assert.deepEqual(whole.choices[0].message.parsed, { name: "Bern", people: 134000 });
const streamed = await client.chat.completions.stream(ask).finalChatCompletion();
assert.deepEqual(streamed.choices[0].message.parsed, { name: "Bern", people: 134000 });
