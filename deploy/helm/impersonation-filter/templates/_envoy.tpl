{{/* Parts of Envoy's own configuration, alike in both meshes. */}}

{{/* docs/many-envoys.md says why each setting is as it is. */}}
{{- define "envoy.etcd" -}}
name: {{ .Values.filter.configuration.store.etcd.cluster | quote }}
connect_timeout: 0.25s
type: STRICT_DNS
lb_policy: ROUND_ROBIN
common_lb_config: {healthy_panic_threshold: {value: 30}}
close_connections_on_host_health_failure: true
load_assignment:
  cluster_name: {{ .Values.filter.configuration.store.etcd.cluster | quote }}
  endpoints:
  - lb_endpoints:
    {{- range .Values.etcd.members }}
    - endpoint: {address: {socket_address: {address: {{ . | quote }}, port_value: {{ $.Values.etcd.port }}}}, health_check_config: {port_value: {{ $.Values.etcd.healthPort }}}}
    {{- end }}
health_checks:
- timeout: 1s
  interval: 1s
  no_traffic_interval: 1s
  unhealthy_threshold: 3
  healthy_threshold: 1
  http_health_check: {path: /health, codec_client_type: HTTP1, retriable_statuses: [{start: 503, end: 504}]}
  transport_socket_match_criteria: {health: plain}
outlier_detection:
  split_external_local_origin_errors: true
  consecutive_local_origin_failure: 2
  enforcing_consecutive_5xx: 0
  enforcing_success_rate: 0
  enforcing_local_origin_success_rate: 0
  interval: 1s
  base_ejection_time: 2s
  max_ejection_percent: 34
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: {http2_protocol_options: {connection_keepalive: {interval: 2s, timeout: 1s}}}
transport_socket_matches:
- name: plain
  match: {health: plain}
  transport_socket:
    name: envoy.transport_sockets.raw_buffer
    typed_config: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer}
transport_socket:
  name: envoy.transport_sockets.tls
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
    common_tls_context:
      alpn_protocols: [h2]
      tls_certificates:
      - certificate_chain: {filename: /etc/envoy/etcd/tls.crt}
        private_key: {filename: /etc/envoy/etcd/tls.key}
      validation_context: {trusted_ca: {filename: /etc/envoy/etcd/ca.crt}}
{{- end }}

{{/*
A plugin that Istio's agent fetches: a dict of `image`, `name`, `configuration` and `variables`. The
guard has no variables, and it reads no bodies.
*/}}
{{- define "envoy.pluginOfIstio" -}}
"@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
config:
  name: {{ .name }}
  {{- if hasKey . "variables" }}
  allow_on_headers_stop_iteration: true
  {{- end }}
  failure_policy: FAIL_RELOAD
  reload_config: {backoff: {base_interval: 1s}}
  vm_config:
    vm_id: impersonation
    runtime: envoy.wasm.runtime.v8
    code:
      remote:
        http_uri: {uri: "oci://{{ include "image" .image }}", timeout: 30s}
        sha256: {{ .image.digest | trimPrefix "sha256:" | quote }}
    {{- if hasKey . "variables" }}
    environment_variables:
      host_env_keys: {{ .variables }}
    {{- end }}
  configuration:
    "@type": type.googleapis.com/google.protobuf.Struct
    value:
      {{- .configuration | fromJson | toYaml | nindent 6 }}
{{- end }}

{{/* Keeps scheme and token of a request for the guard, because jwt_authn takes the header away. */}}
{{- define "envoy.kept" -}}
name: keeps-authorization
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
  request_rules:
  - header: authorization
    on_header_present: {metadata_namespace: impersonation, key: authorization, type: STRING}
{{- end }}

{{/* The access log in ECS: list $ "where jwt_authn puts the claims". */}}
{{- define "envoy.ecs" -}}
{{ (index . 0).Files.Get "files/ecs-access-log.yaml" | replace "access_token" (index . 1) | fromYamlArray | toYaml }}
{{- end }}

{{/* Removes the names of header fields that a server may take for others. */}}
{{- define "envoy.withoutOddNames" -}}
# Removes each name with another character than letters, digits and hyphens: servers that read header
# fields as variables take `x.jwt.payload` for `x-jwt-payload`.
- remove_on_match: {key_matcher: {safe_regex: {regex: '.*[^a-z0-9:-].*'}}}
{{- end }}

{{/*
A filter that enters the guard for impersonations and bound tokens only: a dict of `predicates`, one of
which must hold, and of `guard`, which names the guard in ExecuteFilterAction.
*/}}
{{- define "envoy.entry" -}}
"@type": type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher
extension_config:
  name: composite
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.composite.v3.Composite
xds_matcher:
  matcher_list:
    matchers:
    - predicate:
        or_matcher:
          predicate:
          {{- .predicates | nindent 10 }}
      on_match:
        action:
          name: guard
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.composite.v3.ExecuteFilterAction
            {{- .guard | nindent 12 }}
{{- end }}

{{/*
What stands before jwt_authn on the hosts of browser sessions: a list of the guard's header fields. The
token comes from the cookie alone, and no cache keeps a page.
*/}}
{{- define "envoy.ofSessions" -}}
name: of-sessions
typed_config:
  "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
  mutations:
    request_mutations:
    {{- range concat (list "authorization" "proxy-authorization" "dpop") . }}
    - remove: {{ . | quote }}
    {{- end }}
    {{- include "envoy.withoutOddNames" . | nindent 4 }}
    response_mutations:
    - append:
        header: {key: cache-control, value: no-store}
        append_action: OVERWRITE_IF_EXISTS_OR_ADD
{{- end }}

{{/* Sends a tab whose session has ended to an address. Scripts get the JSON of filter and guard. */}}
{{- define "envoy.wayOut" -}}
mappers:
- filter:
    and_filter:
      filters:
      - status_code_filter: {comparison: {op: EQ, value: {default_value: 401, runtime_key: unused}}}
      - header_filter: {header: {name: sec-fetch-mode, string_match: {exact: navigate}}}
      - header_filter: {header: {name: sec-fetch-dest, string_match: {exact: document}}}
      - header_filter: {header: {name: ":path", string_match: {prefix: /.impersonation/}, invert_match: true}}
  status_code: 303
  headers_to_add:
  - header: {key: location, value: {{ . | quote }}}
    append_action: OVERWRITE_IF_EXISTS_OR_ADD
  body: {inline_string: ""}
{{- end }}
