// Structured output of the Responses API, checked by the program's own schema, whole and streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ maxRetries: 0 });
const City = z.object({ name: z.string(), people: z.number() });
const ask = { model: "gpt-scripted", input: "Which city?", text: { format: zodTextFormat(City, "City") } };
assert.deepEqual((await client.responses.parse(ask)).output_parsed, { name: "Bern", people: 134000 });
assert.deepEqual((await client.responses.stream(ask).finalResponse()).output_parsed, { name: "Bern", people: 134000 });
