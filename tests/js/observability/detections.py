"""Converts the rules of deploy/siem/sigma for Elastic, Splunk and Sentinel, and runs them by SQLite.

    detections.py <rules> <loud events> <quiet events>

Prints the rules that find something in each of the two files of ECS events, the conversions that
fail, and the queries for Sentinel. pySigma's backend for Sentinel (Kusto) has no correlations, so
their counts are added here to the query of the events that they count."""
import copy
import json
import sqlite3
import sys
from pathlib import Path

import yaml
from sigma.backends.elasticsearch import ESQLBackend, LuceneBackend
from sigma.backends.kusto import KustoBackend
from sigma.backends.splunk import SplunkBackend
from sigma.backends.sqlite import sqliteBackend
from sigma.collection import SigmaCollection
from sigma.processing.pipeline import ProcessingPipeline
from sigma.correlations import SigmaCorrelationRule, SigmaCorrelationType

folder, loud, quiet = sys.argv[1:]
files = sorted(Path(folder).glob("*.yml"))
TABLE = "Impersonation_CL"
# A table of SQLite has each column that a query names: those of sentinel.yml, which are all.
PIPELINE = yaml.safe_load(Path(f"{folder}/../sentinel.yml").read_text())
FIELDS = {"timestamp", *PIPELINE["transformations"][0]["mapping"]}


def collection(file):
    return SigmaCollection.from_yaml(file.read_text())


def leaves(value, before=""):
    for name, one in value.items():
        if isinstance(one, dict):
            yield from leaves(one, f"{before}{name}.")
        else:
            yield before + name, json.dumps(one) if isinstance(one, list) else one


def database(file):
    events = [dict(leaves(json.loads(line))) for line in open(file)]
    columns = sorted({name for event in events for name in event} | FIELDS)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE logs (" + ", ".join(f'"{name}"' for name in columns) + ")")
    for event in events:
        event["timestamp"] = event["@timestamp"]
        row = [event.get(name) for name in columns]
        connection.execute(f"INSERT INTO logs VALUES ({', '.join('?' * len(columns))})", row)
    return connection


def column(field):
    return field.replace(".", "_")


def kusto(file, correlation):
    """The query for Sentinel of one file."""
    documents = [one for one in yaml.safe_load_all(file.read_text()) if "detection" in one]
    # A rule that a correlation names is converted only by itself.
    alone = [SigmaCollection.from_dicts([one]) for one in documents]
    queries = [KustoBackend(ProcessingPipeline.from_dict(copy.deepcopy(PIPELINE))).convert(one)[0] for one in alone]
    if correlation is None:
        return f"{TABLE}\n| where {queries[0]}"
    by = ", ".join(map(column, correlation.group_by))
    span = f"bin(TimeGenerated, {correlation.timespan.spec})"
    if correlation.type == SigmaCorrelationType.TEMPORAL:
        count, least = "dcount(event_action)", len(queries)
    else:
        field, least = correlation.condition.fieldref, correlation.condition.count
        count = f"dcount({column(field)})" if field else "count()"
    where = " or ".join(f"({query})" for query in queries)
    return f"{TABLE}\n| where {where}\n| summarize found = {count} by {span}, {by}\n| where found >= {least}"


failed, sentinel = [], []
found = {loud: [], quiet: []}
databases = {file: database(file) for file in found}
for file in files:
    rules = collection(file).rules
    correlation = next((rule for rule in rules if isinstance(rule, SigmaCorrelationRule)), None)
    for backend in [ESQLBackend(), SplunkBackend()] + ([] if correlation else [LuceneBackend()]):
        if not all(backend.convert(collection(file))):
            failed.append([file.stem, type(backend).__name__])
    sentinel.append(f"// {rules[-1].title}.\n{kusto(file, correlation)}\n")
    queries = sqliteBackend().convert(collection(file))
    for where, connection in databases.items():
        if any(connection.execute(query.replace("<TABLE_NAME>", "logs")).fetchall() for query in queries):
            found[where].append(file.stem)
print(json.dumps({
    "rules": [file.stem for file in files],
    "loud": found[loud],
    "quiet": found[quiet],
    "failed": failed,
    "sentinel": "\n".join(sentinel),
}))
