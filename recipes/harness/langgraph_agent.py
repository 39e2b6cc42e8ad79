"""An agent as a graph of LangGraph (packages `langgraph` and `langchain-openai`): the model, its tools, and back. It
plays one episode; its task is on standard input.
"""

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph


class State(MessagesState):
    done: bool


def call(name: str, arguments: Any) -> Any:
    """Call a tool of the environment."""
    request = Request(
        os.environ["AGYM_SESSION_URL"] + "/step",
        json.dumps({"name": name, "arguments": arguments}).encode(),
        {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urlopen(request) as reply:
        return json.load(reply)


def use_tools(state: State) -> Any:
    messages, done = [], False
    for each in state["messages"][-1].tool_calls:
        step = call(each["name"], each["args"])
        print(f"{each['name']} {each['args']} -> {step['observation']!r}", file=sys.stderr)
        messages.append(ToolMessage(step["observation"], tool_call_id=each["id"]))
        done = step["done"]
    return {"messages": messages, "done": done}


def main() -> None:
    task = json.load(sys.stdin)
    model = ChatOpenAI(model=os.environ["OPENAI_MODEL"]).bind_tools(task["tools"])
    graph = StateGraph(State)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", use_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_conditional_edges("tools", lambda state: END if state["done"] else "model")
    instructions = f"{task['prompt']}\n\nMake one call in a reply, and write nothing after that.".strip()
    messages = [SystemMessage(instructions), HumanMessage(task["observation"])]
    try:
        graph.compile().invoke({"messages": messages, "done": False}, {"recursion_limit": 2 * task["turns"]})
    except GraphRecursionError:
        print("no turn is left", file=sys.stderr)
    print(json.dumps({}))


if __name__ == "__main__":
    main()
