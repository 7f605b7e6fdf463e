// One turn of a conversation by each interface of the package: the message that the model has answered with, as it goes
// back into the history. For the scenarios that keep a conversation.

// The interfaces by their names, each a function of what is asked.
export function turns(client) {
  const completions = client.chat.completions;

  async function streamed(ask) {
    let content = "";
    const calls = [];
    for await (const chunk of await completions.create({ ...ask, stream: true })) {
      const delta = chunk.choices[0]?.delta ?? {};
      content += delta.content ?? "";
      for (const part of delta.tool_calls ?? []) {
        const call = (calls[part.index] ??= { id: part.id, type: "function", function: { name: "", arguments: "" } });
        call.function.name += part.function.name ?? "";
        call.function.arguments += part.function.arguments ?? "";
      }
    }
    return calls.length ? { role: "assistant", content: content || null, tool_calls: calls } : { role: "assistant", content };
  }

  return {
    whole: async (ask) => (await completions.create(ask)).choices[0].message,
    streamed,
    helper: (ask) => completions.stream(ask).finalMessage(),
  };
}
