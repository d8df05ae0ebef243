"""Maps the log of the first argument as Vector and Fluent Bit do, by the files in deploy/siem, and
compares the events with those on standard input, which `export` made of the same log.

Vector's remap program runs as it is. Fluent Bit's script runs in LuaJIT, as in Fluent Bit; its
parsers are played here, by their own regular expressions. Prints the numbers of events and the
differences."""
import json
import re
import sys
from datetime import datetime, timezone

import pyvrl
import yaml
from lupa.luajit21 import LuaRuntime

lines = open(sys.argv[1], encoding="utf-8", errors="replace").read().splitlines()
folder = sys.argv[2]
exported = [json.loads(line) for line in sys.stdin]


def vector():
    source = yaml.safe_load(open(f"{folder}/vector.yaml"))["transforms"]["impersonation"]["source"]
    # In Vector's files `$$` is a `$`. pyvrl returns the value of the last expression, and Vector
    # the event.
    program = pyvrl.Transform(source.replace("$$", "$") + "\n.")
    for line in lines:
        try:
            event = program.remap({"message": line})
        except ValueError:
            # A line about other things, as `drop_on_abort` and `drop_on_error` say.
            continue
        yield event


def fluent_bit():
    parsers = yaml.safe_load(open(f"{folder}/fluent-bit.yaml"))["parsers"]
    texts = [re.compile(one["regex"].replace("(?<", "(?P<")) for one in parsers if one["format"] == "regex"]
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.execute(open(f"{folder}/ecs.lua").read())
    functions = lua.globals()
    for line in lines:
        found = next((found for found in (text.match(line) for text in texts) if found), None)
        if not found:
            continue
        named = found.groupdict()
        time = seconds(named.get("envoy") or named.get("cri")) or 0.0
        code, _, marked = functions.mark("impersonation", time, table(lua, {"object": named["object"]}))
        if code == -1:
            continue
        try:
            record = json.loads(named["object"])
        except ValueError:
            continue
        # Fluent Bit takes the time of the object, if it has one.
        time = seconds(record.pop("time", None)) or time
        record["impersonation_is_audit"] = marked["impersonation_is_audit"]
        code, time, out = functions.ecs("impersonation", time, table(lua, record))
        if code == -1:
            continue
        event = python(out)
        stamp = datetime.fromtimestamp(round(time, 3), timezone.utc)
        yield {"@timestamp": stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"), **event}


def seconds(text):
    if not text:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00").replace(" ", "T")).replace(tzinfo=timezone.utc).timestamp()


def table(lua, value):
    """Fluent Bit has no nulls in Lua."""
    if isinstance(value, dict):
        return lua.table_from({k: table(lua, v) for k, v in value.items() if v is not None})
    if isinstance(value, list):
        return lua.table_from([table(lua, one) for one in value])
    return value


def python(value):
    if not hasattr(value, "keys"):
        return value
    keys = list(value.keys())
    if keys and all(isinstance(key, int) for key in keys):
        return [python(value[key]) for key in sorted(keys)]
    return {key: python(value[key]) for key in keys}


def plain(value):
    """Without what Lua does not tell apart: nulls, empty lists and objects, kinds of number."""
    if isinstance(value, dict):
        kept = {key: plain(one) for key, one in value.items()}
        return {key: one for key, one in kept.items() if one is not None and one != {} and one != []}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


result = {"events": len(exported), "wrong": []}
for shipper in (vector, fluent_bit):
    mapped = [plain(event) for event in shipper()]
    expected = [plain(event) for event in exported]
    result[shipper.__name__] = len(mapped)
    for index in range(max(len(mapped), len(expected))):
        pair = [one[index] if index < len(one) else None for one in (expected, mapped)]
        if pair[0] != pair[1]:
            result["wrong"].append([shipper.__name__, *pair])
            break
print(json.dumps(result))
