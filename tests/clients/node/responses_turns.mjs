// One turn on the Responses API by each interface of the package, and a loop over it. The items of a reply go back into
// the input as they are, which is how the package's guides keep a conversation without a store.
import assert from "node:assert/strict";

// The interfaces by their names, each a function of what is asked.
export function turns(client) {
  async function streamed(ask) {
    for await (const event of await client.responses.create({ ...ask, stream: true })) {
      if (event.type === "response.completed") return event.response;
    }
    assert.fail("no last event");
  }

  // Goes by the complete items, and never looks at the last event's list.
  async function items(ask) {
    const output = [];
    for await (const event of await client.responses.create({ ...ask, stream: true })) {
      if (event.type === "response.output_item.done") output.push(event.item);
    }
    return { output };
  }

  return {
    whole: (ask) => client.responses.create(ask),
    streamed,
    items,
    helper: (ask) => client.responses.stream(ask).finalResponse(),
  };
}

// An item as it goes back, without what the package's own parser has added.
function sentBack({ parsed_arguments: _, ...item }) {
  if (item.type !== "message") return item;
  return { ...item, content: item.content.map(({ parsed: _, ...part }) => part) };
}

function textOf(output) {
  const parts = output.filter(({ type }) => type === "message").flatMap(({ content }) => content);
  return parts.map(({ text }) => text).join("");
}

// Plays until the model makes no more calls; its last text.
export async function loop(turn, ask, run) {
  const input = [{ role: "user", content: ask.input }];
  for (let step = 0; step < 60; step += 1) {
    const { output } = await turn({ ...ask, input });
    input.push(...output.map(sentBack));
    const calls = output.filter(({ type }) => type === "function_call");
    if (!calls.length) return textOf(output);
    input.push(...calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: run(call) })));
  }
  assert.fail("60 replies, and no end");
}
