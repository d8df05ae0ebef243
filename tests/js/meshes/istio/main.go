// Reads manifests from standard input, and writes the configuration that Istio's pilot makes of them
// for one proxy, as JSON. The generators, the extension configurations and the agent's fetcher of
// Wasm modules are Istio's own. Only Kubernetes and the xDS server are missing.
//
// Usage: istio FOLDER PROXY IMAGE=LAYOUT...
//
// PROXY is JSON: type, namespace, labels, and mesh, which is a MeshConfig. The modules that the
// agent has fetched from their registry go to FOLDER.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/envoyproxy/gateway/impersonation/image"
	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/config/kube/extensions"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/kube/krt"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/test"
	"istio.io/istio/pkg/util/protomarshal"
	"istio.io/istio/pkg/wasm"
)

// wanted is the proxy that asks.
type wanted struct {
	Type      model.NodeType    `json:"type"`
	Namespace string            `json:"namespace"`
	Labels    map[string]string `json:"labels"`
	Mesh      string            `json:"mesh"`
}

type output struct {
	Listeners []json.RawMessage `json:"listeners"`
	Routes    []json.RawMessage `json:"routes"`
	Clusters  []json.RawMessage `json:"clusters"`
	// Extensions has the extension configurations that the listeners name, as the agent in the
	// proxy's container passes them on to Envoy.
	Extensions []json.RawMessage `json:"extensions"`
	// Sent has the extension configurations as the pilot sends them to the agent.
	Sent []json.RawMessage `json:"sent"`
	// Warnings has what the validating webhook says of the manifests.
	Warnings []string `json:"warnings"`
}

func main() {
	// Istio logs to standard output, which is for the result.
	options := log.DefaultOptions()
	options.OutputPaths = []string{"stderr"}
	if err := log.Configure(options); err != nil {
		panic(err)
	}
	var translated output
	err := test.Wrap(func(t test.Failer) { translate(t, &translated) })
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(translated)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func translate(t test.Failer, out *output) {
	folder := os.Args[1]
	var proxy wanted
	check(t, json.Unmarshal([]byte(os.Args[2]), &proxy))
	layouts := map[string]string{}
	for _, argument := range os.Args[3:] {
		name, layout, _ := strings.Cut(argument, "=")
		layouts[name] = layout
	}
	registry, err := image.Serve(layouts)
	check(t, err)
	manifests, err := io.ReadAll(os.Stdin)
	check(t, err)
	text := strings.ReplaceAll(string(manifests), "registry.example.com", registry)
	out.Warnings = validate(t, text)

	meshConfig, err := mesh.ApplyMeshConfigDefaults(proxy.Mesh)
	check(t, err)
	pilot := core.NewConfigGenTest(t, core.TestOptions{
		ConfigString: text,
		MeshConfig:   meshConfig,
		// Turns each WasmPlugin into a TrafficExtension, as in a real pilot.
		CreateConfigStore: func(store model.ConfigStoreController) model.ConfigStoreController {
			return extensions.NewController(store, nil, krt.GlobalDebugHandler)
		},
	})
	push := pilot.PushContext()
	push.JwtKeyResolver = model.NewJwksResolver(
		model.JwtPubKeyEvictionDuration, model.JwtPubKeyRefreshInterval,
		model.JwtPubKeyRefreshIntervalOnFailure, model.JwtPubKeyRetryInterval)
	node := pilot.SetupProxy(&model.Proxy{
		Type:            proxy.Type,
		ConfigNamespace: proxy.Namespace,
		Labels:          proxy.Labels,
		IPAddresses:     []string{"127.0.0.1"},
		Metadata:        &model.NodeMetadata{Namespace: proxy.Namespace, Labels: proxy.Labels, IstioVersion: "1.31.0"},
	})

	listeners := pilot.Listeners(node)
	out.Listeners = toJSON(t, listeners)
	out.Routes = toJSON(t, pilot.RoutesFromListeners(node, listeners))
	out.Clusters = toJSON(t, pilot.Clusters(node))
	configs := pilot.ConfigGen.BuildExtensionConfiguration(node, push, discovered(t, listeners), nil)
	out.Sent = toJSON(t, configs)
	resources := make([]*anypb.Any, 0, len(configs))
	for _, message := range configs {
		resource, err := anypb.New(message)
		check(t, err)
		resources = append(resources, resource)
	}
	check(t, wasm.MaybeConvertWasmExtensionConfig(resources, wasm.NewLocalFileCache(folder, wasm.Options{})))
	out.Extensions = toJSON(t, resources)
}

// validate returns what Istio's webhook would refuse or warn of.
func validate(t test.Failer, manifests string) []string {
	warnings := []string{}
	parsed, _, err := crd.ParseInputs(manifests)
	check(t, err)
	for _, one := range parsed {
		warnings = append(warnings, validateOne(one)...)
	}
	return warnings
}

func validateOne(one config.Config) []string {
	schema, found := collections.Pilot.FindByGroupVersionAliasesKind(one.GroupVersionKind)
	name := fmt.Sprintf("%s %s/%s", one.GroupVersionKind.Kind, one.Namespace, one.Name)
	if !found {
		return []string{name + ": unknown"}
	}
	warning, err := schema.ValidateConfig(one)
	var all []string
	if warning != nil {
		all = append(all, fmt.Sprintf("%s: %v", name, warning))
	}
	if err != nil {
		all = append(all, fmt.Sprintf("%s: refused: %v", name, err))
	}
	return all
}

// discovered returns the names of the extension configurations for which Envoy would ask.
func discovered(t test.Failer, listeners []*listenerv3.Listener) []string {
	var names []string
	for _, listener := range listeners {
		chains := append([]*listenerv3.FilterChain{}, listener.FilterChains...)
		if listener.DefaultFilterChain != nil {
			chains = append(chains, listener.DefaultFilterChain)
		}
		for _, chain := range chains {
			for _, filter := range chain.Filters {
				manager := &hcmv3.HttpConnectionManager{}
				if filter.GetTypedConfig().UnmarshalTo(manager) != nil {
					continue
				}
				for _, http := range manager.HttpFilters {
					if http.GetConfigDiscovery() != nil {
						names = append(names, http.Name)
					}
					bytes, err := protojson.Marshal(http)
					check(t, err)
					names = append(names, dynamic(bytes)...)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// dynamic returns the names in the `dynamicConfig` of composite filters.
func dynamic(bytes []byte) []string {
	var names []string
	var walk func(any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if config, ok := value["dynamicConfig"].(map[string]any); ok {
				names = append(names, config["name"].(string))
			}
			for _, member := range value {
				walk(member)
			}
		case []any:
			for _, member := range value {
				walk(member)
			}
		}
	}
	var value any
	if json.Unmarshal(bytes, &value) == nil {
		walk(value)
	}
	return names
}

func toJSON[M proto.Message](t test.Failer, messages []M) []json.RawMessage {
	all := []json.RawMessage{}
	for _, message := range messages {
		bytes, err := protomarshal.MarshalProtoNames(message)
		check(t, err)
		all = append(all, bytes)
	}
	return all
}

func check(t test.Failer, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
