// What the clients of the Messages API have in common: the plays, which are read from the input, and the tools. A play is an
// agent's run in one form of the client. Each prints a line: the final text, the calls that ran, the error with which it ended.
import { text as readAll } from "node:stream/consumers";

// Requests of one play at most: more mean that nothing ends the loop.
export const MOST_REQUESTS = 60;

export const SCHEMAS = {
  get_weather: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  search: { type: "object", properties: { query: { type: "string" } }, required: ["query"] },
};
export const DESCRIPTIONS = { get_weather: "The weather in a city.", search: "Searches the web." };

// The tools of one play; what ran is kept in order.
export class Tools {
  ran = [];

  // The result of a call, whatever its arguments.
  run(name, { city = "", query = "" }) {
    this.ran.push([name, name === "get_weather" ? city : query]);
    return name === "get_weather" ? `Clear in ${city}.` : "Nothing found.";
  }
}

// Runs every play of the input by its form: a function of the play and its tools that returns the final text.
export async function playAll(forms) {
  for (const play of JSON.parse(await readAll(process.stdin))) {
    const tools = new Tools();
    let [text, error] = [null, null];
    try {
      text = await forms[play.form](play, tools);
    } catch (problem) {
      error = `${problem?.name}: ${problem?.message ?? JSON.stringify(problem)}`;
    }
    console.log(JSON.stringify({ text, ran: tools.ran, error }));
  }
}
