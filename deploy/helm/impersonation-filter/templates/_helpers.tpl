{{/* Names and values that several manifests need. A helper that returns more than a string returns JSON. */}}

{{- define "gateway.namespace" -}}
{{ .Values.gateway.namespace | default .Release.Namespace }}
{{- end }}

{{- define "identityGateway.namespace" -}}
{{ .Values.identityGateway.namespace | default (include "gateway.namespace" .) }}
{{- end }}

{{- define "identityGateway.host" -}}
{{ .Values.identityGateway.service }}.{{ include "identityGateway.namespace" . }}.svc.cluster.local
{{- end }}

{{- define "identityGateway.hostnames" -}}
{{ .Values.identityGateway.hostnames | default (list (regexReplaceAll ":[0-9]+$" (urlParse .Values.filter.configuration.issuer).host "")) | toJson }}
{{- end }}

{{/* The cluster that the mesh makes of the identity gateway. */}}
{{- define "identityGateway.cluster" -}}
{{- if eq .Values.mesh "istio" -}}
outbound|{{ .Values.identityGateway.port }}||{{ include "identityGateway.host" . }}
{{- else -}}
httproute/{{ include "identityGateway.namespace" . }}/{{ .Release.Name }}/rule/0
{{- end -}}
{{- end }}

{{/*
Replaces the cluster `identity-gateway`. In JSON a quote inside a string is escaped, so this text
can only be a member with its value.
*/}}
{{- define "filter.configuration" -}}
{{- $member := printf "\"cluster\":%s" (include "identityGateway.cluster" . | toJson) -}}
{{ .Values.filter.configuration | toJson | replace `"cluster":"identity-gateway"` $member }}
{{- end }}

{{/* All paths that the filter answers, by their names in `paths`. */}}
{{- define "filter.paths" -}}
{{- $paths := dict
  "token" "/oidc/token"
  "jwks" "/oidc/jwks"
  "discovery" "/oidc/.well-known/openid-configuration"
  "revocation" "/oidc/token/revocation"
  "introspection" "/oidc/token/introspection"
  "subject_tokens" "/api/subject-tokens"
  "impersonations" "/api/impersonations"
  "approvals" "/api/approvals"
-}}
{{- $senders := dict "back_channel_logout" "/oidc/backchannel-logout" "security_events" "/api/security-events" -}}
{{- $paths = mergeOverwrite $paths $senders (dict "console" "/impersonations/") (deepCopy (.Values.filter.configuration.paths | default dict)) -}}
{{- /* Without a sender, `console` or `approvals`, the path is the gateway's. */ -}}
{{- range $name, $_ := $senders -}}
{{- if not (dig "impersonations" $name "" $.Values.filter.configuration) }}{{ $_ := unset $paths $name }}{{ end -}}
{{- end -}}
{{- range $name := list "console" "approvals" -}}
{{- if not (get $.Values.filter.configuration $name) }}{{ $_ := unset $paths $name }}{{ end -}}
{{- end -}}
{{- $base := .Values.filter.configuration.base_path | default "" -}}
{{- $whole := dict -}}
{{- range $name, $path := $paths }}{{ if $path }}{{ $_ := set $whole $name (print $base $path) }}{{ end }}{{ end -}}
{{- $_ := set $whole "revocations" (print $whole.impersonations "/revocations") -}}
{{ $whole | toJson }}
{{- end }}

{{/* The paths that no page in a browser needs. */}}
{{- define "filter.pathsOfServers" -}}
{{- $paths := include "filter.paths" . | fromJson -}}
{{- $servers := list -}}
{{- range list "subject_tokens" "impersonations" "revocations" "approvals" "back_channel_logout" "security_events" "introspection" "jwks" "discovery" "oauth_discovery" "console" -}}
{{- with get $paths . }}{{ $servers = append $servers . }}{{ end -}}
{{- end -}}
{{ $servers | toJson }}
{{- end }}

{{/* The paths that a page in a browser may use. */}}
{{- define "filter.pathsOfPages" -}}
{{- $paths := include "filter.paths" . | fromJson -}}
{{ list $paths.token $paths.revocation | toJson }}
{{- end }}

{{/* The paths below which each subject token, impersonation and decision has its own, as regular expressions. */}}
{{- define "filter.parentsOfOne" -}}
{{- $paths := include "filter.paths" . | fromJson -}}
{{- $parents := list -}}
{{- range list $paths.subject_tokens $paths.impersonations $paths.approvals | compact }}{{ $parents = append $parents (regexQuoteMeta .) }}{{ end -}}
{{ $parents | toJson }}
{{- end }}

{{- define "filter.pathsOfOne" -}}
({{ include "filter.parentsOfOne" . | fromJsonArray | join "|" }})
{{- end }}

{{/*
Regular expressions for paths that some servers would take for one of the filter's, and Envoy does
not: path parameters, other letter case, a slash at the end. Envoy refuses long expressions, so each
path has its own.
*/}}
{{- define "filter.lookAlikes" -}}
{{- $paths := include "filter.paths" . | fromJson | values | sortAlpha -}}
{{- $parents := list -}}
{{- $quoted := list -}}
{{- range $path := $paths -}}
{{- $end := ternary "(/*|(;|%3b).*)" "(/|(;|%3b).*)?" (hasSuffix "/" $path) -}}
{{- $quoted = append $quoted (print (regexQuoteMeta (trimSuffix "/" $path)) $end) -}}
{{- $path = trimSuffix "/" $path -}}
{{- $parent := dir $path -}}
{{- range until (len (splitList "/" $path)) -}}
{{- if and (ne $parent "/") (not (has $parent $paths)) }}{{ $parents = append $parents (regexQuoteMeta $parent) }}{{ end -}}
{{- $parent = dir $parent -}}
{{- end -}}
{{- end -}}
{{- $alike := list `(?i).*/\.{0,2}(;|%3b).*` -}}
{{- range $parents | uniq | sortAlpha }}{{ $alike = append $alike (printf "(?i)%s(;|%%3b).*" .) }}{{ end -}}
{{- range $quoted }}{{ $alike = append $alike (print "(?i)" .) }}{{ end -}}
{{- range include "filter.parentsOfOne" . | fromJsonArray }}{{ $alike = append $alike (printf "(?i)%s/[^/]+(/|(;|%%3b).*)" .) }}{{ end -}}
{{ $alike | toJson }}
{{- end }}

{{/* The names of the variables that Envoy passes on to the filter. */}}
{{- define "filter.variables" -}}
{{- $names := list -}}
{{- range .Values.filter.environment }}{{ $names = append $names .name }}{{ end -}}
{{ $names | toJson }}
{{- end }}

{{/* The key set that the filter serves: the gateway's keys and its own. */}}
{{- define "filter.keySet" -}}
{{- $issuer := urlParse .Values.filter.configuration.issuer -}}
{{- $host := first .Values.identityGateway.hostnames | default $issuer.host -}}
{{ $issuer.scheme }}://{{ $host }}{{ (include "filter.paths" . | fromJson).jwks }}
{{- end }}

{{/* An image by its digest: the tag is for the reader. */}}
{{- define "image" -}}
{{ .repository }}{{ with .tag }}:{{ . }}{{ end }}@{{ .digest }}
{{- end }}

{{- define "etcd.used" -}}
{{- if dig "store" "etcd" "" .Values.filter.configuration }}true{{ end -}}
{{- end }}

{{/*
The guard's configuration for one API, or for .Values.sessions: list $ $api "where jwt_authn puts the
claims". The tokens of sessions are not bound to keys.
*/}}
{{- define "guard.configuration" -}}
{{- $root := index . 0 -}}
{{- $filter := $root.Values.filter.configuration -}}
{{- $derived := dict "issuer" $filter.issuer "payload_in_metadata" (index . 2) "store" (pick $filter.store "etcd") -}}
{{- with $filter.base_path }}{{ $_ := set $derived "base_path" . }}{{ end -}}
{{- $common := deepCopy $root.Values.guard.configuration -}}
{{- if hasKey (index . 1) "gateway" -}}
{{- $_ := set $derived "browser_session" (pick $filter.browser_sessions "domain") -}}
{{- $common = omit $common "public_origin" "dpop" "client_certificate" -}}
{{- end -}}
{{ mergeOverwrite $common ((index . 1).guard | default dict) $derived | toJson }}
{{- end }}

{{/* The request headers of access tokens: list $ $api. Tokens that are bound to keys need public_origin. */}}
{{- define "api.schemes" -}}
{{- $own := include "guard.configuration" (list (index . 0) (index . 1) "") | fromJson -}}
{{ ternary (list "DPoP " "Bearer ") (list "Bearer ") (hasKey $own "public_origin") | toJson }}
{{- end }}

{{- define "api.namespace" -}}
{{ (index . 1).namespace | default (include "gateway.namespace" (index . 0)) }}
{{- end }}

{{- define "sessions.gatewayNamespace" -}}
{{ .Values.sessions.gateway.namespace | default (include "gateway.namespace" .) }}
{{- end }}

{{- define "sessions.namespace" -}}
{{ .Values.sessions.namespace | default (include "sessions.gatewayNamespace" .) }}
{{- end }}

{{/* The paths of a session's host that the filter answers. */}}
{{- define "sessions.paths" -}}
{{ list "/.impersonation/begin" "/.impersonation/me" "/.impersonation/end" "/.impersonation/banner.js" | toJson }}
{{- end }}

{{- define "cors.ofPages" -}}
{{- include "cors" (list (list "POST") (list "authorization" "content-type" "dpop") (list "dpop-nonce" "retry-after" "www-authenticate")) }}
{{- end }}

{{- define "cors.ofApis" -}}
{{- include "cors" (list (list "GET" "HEAD" "POST" "PUT" "PATCH" "DELETE") .Values.cors.apiHeaders (list "retry-after" "www-authenticate")) }}
{{- end }}

{{/* What a page may send and read: list methods headers exposed. */}}
{{- define "cors" -}}
allowMethods: {{ index . 0 | toJson }}
allowHeaders: {{ index . 1 | toJson }}
exposeHeaders: {{ index . 2 | toJson }}
maxAge: 600s
{{- end }}

{{/* Refuses values that contradict each other. Helm may execute any template first, so each calls this. */}}
{{- define "checked" -}}
{{- $etcd := include "etcd.used" . -}}
{{- if and $etcd (not .Values.etcd.members) }}{{ fail "etcd.members: is required with filter.configuration.store.etcd" }}{{ end -}}
{{- if and .Values.apis (not $etcd) }}{{ fail "apis: the guard is in another VM or Envoy than the filter, and needs filter.configuration.store.etcd" }}{{ end -}}
{{- $sessions := .Values.sessions -}}
{{- if and $sessions.gateway.name (not .Values.filter.configuration.browser_sessions) }}{{ fail "sessions.gateway: needs filter.configuration.browser_sessions" }}{{ end -}}
{{- if and .Values.filter.configuration.browser_sessions (not $sessions.gateway.name) }}{{ fail "sessions.gateway.name: is required with filter.configuration.browser_sessions" }}{{ end -}}
{{- if and $sessions.gateway.name (not $sessions.service) }}{{ fail "sessions.service: is required with sessions.gateway.name" }}{{ end -}}
{{- if and $sessions.gateway.name (not $etcd) }}{{ fail "sessions.gateway: has a filter and a guard of its own, and needs filter.configuration.store.etcd" }}{{ end -}}
{{- if and $sessions.gateway.name (eq $sessions.gateway.name .Values.gateway.name) (eq (include "sessions.gatewayNamespace" .) (include "gateway.namespace" .)) }}{{ fail "sessions.gateway: is the gateway of other hosts, too; sessions need one of their own" }}{{ end -}}
{{- if eq .Values.mesh "istio" -}}
{{- if and $sessions.gateway.name (eq ($sessions.gateway.selector | toJson) (.Values.gateway.selector | toJson)) }}{{ fail "sessions.gateway.selector: selects the pods of other hosts, too; sessions need a gateway of their own" }}{{ end -}}
{{- if .Values.images.pullSecret }}{{ fail "images.pullSecret: Istio's EnvoyFilter has no field for it; use a registry that needs none" }}{{ end -}}
{{- range $index, $api := .Values.apis }}{{ if not $api.selector }}{{ fail (printf "apis[%d].selector: is required with mesh istio" $index) }}{{ end }}{{ end -}}
{{- end -}}
{{- range $index, $api := .Values.apis }}{{ if and $api.hostnames (not $api.pathPrefix) }}{{ fail (printf "apis[%d].pathPrefix: is required with hostnames" $index) }}{{ end }}{{ end -}}
{{- range $index, $api := .Values.apis -}}
{{- if not (dig "headers" "id" "" (mergeOverwrite (deepCopy $.Values.guard.configuration) ($api.guard | default dict))) }}{{ fail "guard.configuration.headers.id: is required" }}{{ end -}}
{{- end -}}
{{- end }}
