"""The OpenAI Agents SDK as shipped, on the Responses API: a tool loop with parallel calls, or a model that never stops
calling. Whole and streamed."""

import asyncio
import sys

from agents import Agent, ModelSettings, RunConfig, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)
made = []


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    made.append(city)
    return f"clear in {city}"


@function_tool
def search() -> str:
    """Searches."""
    made.append("search")
    return "nothing found"


async def main(scenario, form):
    tool, question = (weather, "What is the weather in Rome, Oslo and Bern?") if scenario == "tools" else (search, "Find it.")
    agent = Agent(name="Assistant", instructions="Be brief.", tools=[tool], model="gpt-scripted", model_settings=ModelSettings(store=False))
    if form == "streamed":
        result = Runner.run_streamed(agent, question, max_turns=60, run_config=RunConfig(tracing_disabled=True))
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, question, max_turns=60, run_config=RunConfig(tracing_disabled=True))
    assert result.final_output, result
    if scenario == "tools":
        assert result.final_output == "Clear everywhere.", result
        assert made[0] == "Rome" and sorted(made[1:]) == ["Bern", "Oslo"], made
    print(f"ended with: {result.final_output}")


asyncio.run(main(*sys.argv[1].split("-")))
