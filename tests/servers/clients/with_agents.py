"""The OpenAI Agents SDK: its runner on chat completions and Responses, whole and streamed, with the history sent or kept upstream."""

import asyncio
import json

from agents import (
    Agent, FunctionTool, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, set_tracing_disabled,
)
from openai import AsyncOpenAI

from tools import MOST_TURNS, SCHEMAS, schema, serve

set_tracing_disabled(True)


def converse(job, tools, texts):
    asyncio.run(run(job, tools, texts))


async def run(job, tools, texts):
    async with AsyncOpenAI(base_url=job["url"], api_key=job["key"], max_retries=0, timeout=120) as client:
        kind = OpenAIResponsesModel if job["api"] == "responses" else OpenAIChatCompletionsModel
        settings = ModelSettings(parallel_tool_calls=True, extra_body=job["options"] or None)
        agent = Agent(name="Assistant", tools=[as_tool(name, tools) for name in SCHEMAS], model_settings=settings,
                      model=kind(model=job["model"], openai_client=client))
        said, answers, chain = job["question"], list(job["answers"]), {}
        if job["is_chained"]:
            chain = {"auto_previous_response_id": True}
        while True:
            result = await turn(agent, said, job["is_streamed"], chain)
            texts.append(result.final_output)
            if not answers:
                return
            if job["is_chained"]:
                said, chain = answers.pop(0), {"previous_response_id": result.last_response_id}
            else:
                said = [*result.to_input_list(), {"role": "user", "content": answers.pop(0)}]


async def turn(agent, said, is_streamed, chain):
    options = {"max_turns": MOST_TURNS, "run_config": RunConfig(tracing_disabled=True), **chain}
    if not is_streamed:
        return await Runner.run(agent, said, **options)
    result = Runner.run_streamed(agent, said, **options)
    async for _ in result.stream_events():
        pass
    return result


def as_tool(name, tools):
    async def invoke(_context, arguments):
        return tools.run(name, json.loads(arguments))

    name, description, parameters = schema(name)
    return FunctionTool(name=name, description=description, params_json_schema=parameters, on_invoke_tool=invoke, strict_json_schema=False)


serve(converse)
