"""Receives traces and logs by OTLP over gRPC at the port of its argument. Writes one line of JSON for
each span and each log record: its kind and its attributes."""
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


def told(kind, record):
    attributes = {one.key: one.value.string_value for one in record.attributes}
    print(json.dumps({"kind": kind, "attributes": attributes}), flush=True)


class Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    told("span", span)
        return trace_service_pb2.ExportTraceServiceResponse()


class Logs(logs_service_pb2_grpc.LogsServiceServicer):
    def Export(self, request, context):
        for resource in request.resource_logs:
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    told("log", record)
        return logs_service_pb2.ExportLogsServiceResponse()


server = grpc.server(ThreadPoolExecutor(4))
trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
print("ready", flush=True)
server.wait_for_termination()
