#!/usr/bin/env python3
"""A small agent program: chat completions in a loop, with one tool, a shell. It knows nothing of agentgym.

With the argument ``--text`` it reads commands out of fenced blocks of the text instead.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    },
}
BLOCK = re.compile(r"^```bash\n(.*?)\n```$", re.DOTALL | re.MULTILINE)


def ask(messages, tools):
    """One reply, as a message."""
    body = {"model": os.environ["AGENTGYM_MODEL"], "messages": messages}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body | ({"tools": tools} if tools else {})).encode(),
        {
            "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def run(command):
    """What a command prints."""
    done = subprocess.run(
        command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False
    )
    return f"{done.stdout[-2000:]}[status {done.returncode}]"


def main():
    text = "--text" in sys.argv
    with open(os.environ["AGENTGYM_TASK_FILE"]) as file:
        task = file.read()
    messages = [{"role": "system", "content": "You work in a shell."}, {"role": "user", "content": task}]
    while True:
        message = ask(messages, [] if text else [TOOL])
        messages.append(message)
        commands = BLOCK.findall(message["content"] or "") if text else []
        if commands:
            messages.append({"role": "user", "content": "\n".join(map(run, commands))})
        for call in message.get("tool_calls") or ():
            answer = run(json.loads(call["function"]["arguments"])["command"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer})
        if messages[-1] is message:
            print(message["content"])
            return


main()
