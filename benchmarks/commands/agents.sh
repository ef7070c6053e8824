#!/bin/sh
# The table of docs/black-box-agents.md, from the root of a clone: two public agent programs, unmodified, on the bundled
# SWE tasks and a text game, with scripts that solve them, only look around, or cheat; and once with SmolLM2.
# About 8 CPU minutes. Each program is installed into an environment of its own.
set -e
AGENTS="${AGENTS:-runs/agents}"
python -m venv "$AGENTS/mini" && "$AGENTS/mini/bin/pip" install --quiet mini-swe-agent==2.4.6
python -m venv "$AGENTS/gptme" && "$AGENTS/gptme/bin/pip" install --quiet gptme==0.35.1

# Chat completions with tool calls, Responses, or text with fenced blocks. LiteLLM is not to look for prices.
mini() {
    env=$1 options=$2 name=$3 policy=$4
    shift 4
    agentgym run "agentgym/$env" --policy "$policy" --out "$AGENTS/runs/$name" "$@" \
        --agent-cmd "$AGENTS/mini/bin/mini -y --exit-immediately $options -m openai/{model} -t {task} -o /tmp/home/m.json" \
        --agent-env MSWEA_CONFIGURED=true --agent-env MSWEA_COST_TRACKING=ignore_errors \
        --agent-env LITELLM_LOCAL_MODEL_COST_MAP=True
}
# Anthropic's messages, streamed, with tool use. The model's name only tells gptme which interface to speak.
gptme() {
    name=$1 policy=$2
    shift 2
    agentgym run agentgym/SWE-v0 --policy "$policy" --out "$AGENTS/runs/$name" "$@" \
        --agent-cmd "$AGENTS/gptme/bin/gptme -n --no-confirm --tool-format tool -t shell -m anthropic/claude-sonnet-4-5 {task}"
}
RESPONSES="--model-class litellm_response"
TEXT="-c mini_textbased.yaml --model-class litellm_textbased"
mini SWE-v0 "" mini-gold benchmarks.agents:Gold --episodes all
mini SWE-v0 "" mini-explorer benchmarks.agents:Explorer --episodes all
mini SWE-v0 "$RESPONSES" mini-responses-gold benchmarks.agents:Gold --episodes all
mini SWE-v0 "$TEXT" mini-text-gold benchmarks.agents:gold_in_text --episodes all
mini SWE-v0 "" mini-cheater benchmarks.agents:Cheater --episodes 1 --anti-hack block
mini SWE-v0 "$TEXT" mini-text-cheater benchmarks.agents:cheater_in_text --episodes 1 --anti-hack block
mini SWE-v0 "" mini-smollm2 hf:smollm2 --episodes 1 --max-turns 4 --max-new-tokens 96 --temperature 0.5
mini TextWorld-v0 "" mini-textworld-gold benchmarks.agents:GoldMoves --episodes 2
gptme gptme-gold benchmarks.agents:gold_for_gptme --episodes all
gptme gptme-explorer benchmarks.agents:explorer_for_gptme --episodes all
python -m benchmarks.agents "$AGENTS"/runs/* --out "$AGENTS/table.json"
