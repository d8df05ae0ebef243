"""Checks events on standard input, one a line, by the classes of each version of OCSF that its
first argument and its followers name. Prints the number of events and what is wrong."""
import json
import sys

import jsonschema
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

CLASSES = {
    0: "base_event",
    2004: "detection_finding",
    3002: "authentication",
    3004: "entity_management",
    6003: "api_activity",
}

events = [json.loads(line) for line in sys.stdin]
wrong = []
for version in sys.argv[1:]:
    schemas = OcsfJsonSchemaEmbedded(get_ocsf_schema(version=version))
    validators = {}
    for event in events:
        profiles = event["metadata"].get("profiles", [])
        kind = (event["class_uid"], *profiles)
        if kind not in validators:
            schema = schemas.get_class_schema(class_name=CLASSES[kind[0]], profiles=profiles)
            validators[kind] = jsonschema.Draft202012Validator(schema)
        event["metadata"]["version"] = version
        for error in validators[kind].iter_errors(event):
            wrong.append([version, event["metadata"]["event_code"], error.json_path, error.message])
print(json.dumps({"events": len(events), "wrong": wrong}))
