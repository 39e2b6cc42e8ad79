"""What LangChain's client gets from the endpoint, as JSON: run by an interpreter that has `langchain-openai`."""

import json
import os

import openai
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

WEATHER = {
    "name": "weather",
    "description": "Tells the weather of a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def mistake(say: str = "hi", **settings: object) -> str:
    try:
        ChatOpenAI(**{"model": "policy", "max_retries": 0, **settings}).invoke(say)  # type: ignore[arg-type]
    except openai.APIStatusError as error:
        return f"{error.status_code} {error.code}"
    return "none"


def main() -> None:
    model = ChatOpenAI(model=os.environ["OPENAI_MODEL"], max_retries=0)
    tools = model.bind_tools([{"type": "function", "function": WEATHER}])
    first = tools.invoke([HumanMessage("hi")])
    told = [HumanMessage("hi"), first, ToolMessage("sunny", tool_call_id=first.tool_calls[0]["id"])]
    second = tools.invoke(told)
    chunks = [*model.stream("stream")]
    whole: AIMessage = sum(chunks[1:], chunks[0])  # type: ignore[assignment]
    answer = model.invoke("once")
    found = {
        "calls": [[each["name"], each["args"]] for each in first.tool_calls],
        "after the tool": second.content,
        "stream": [len(chunks) > 2, whole.content],
        "usage": answer.usage_metadata["output_tokens"] > 0,
        "responses": ChatOpenAI(model="policy", use_responses_api=True).invoke("once more").text,
        "wrong key": mistake(api_key="wrong"),
        "wrong model": mistake(model="gpt"),
        "n=2": mistake(n=2),
        "too long": mistake("word " * 5000),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
