// Reads manifests from standard input, and writes the configuration that Envoy Gateway makes of
// them, as JSON. The translators, the validation against the CRDs and the fetcher of Wasm modules
// are Envoy Gateway's own. Only Kubernetes and the xDS server are missing.
//
// Usage: envoy-gateway FOLDER IMAGE=LAYOUT...
//
// The modules that Envoy Gateway has fetched from its registry go to FOLDER.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"

	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	discoveryv1 "k8s.io/api/discovery/v1"
	gwapiv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	"github.com/envoyproxy/gateway/impersonation/image"
	"github.com/envoyproxy/gateway/internal/gatewayapi"
	"github.com/envoyproxy/gateway/internal/gatewayapi/resource"
	"github.com/envoyproxy/gateway/internal/logging"
	"github.com/envoyproxy/gateway/internal/wasm"
	"github.com/envoyproxy/gateway/internal/xds/translator"
)

const namespace = "envoy-gateway-system"

// output is what one Gateway becomes, and what Envoy Gateway says of the policies.
type output struct {
	Listeners []json.RawMessage `json:"listeners"`
	Routes    []json.RawMessage `json:"routes"`
	Clusters  []json.RawMessage `json:"clusters"`
	Endpoints []json.RawMessage `json:"endpoints"`
	Secrets   []json.RawMessage `json:"secrets"`
	// Patches has the status of each EnvoyPatchPolicy after its patches were applied.
	Patches any `json:"patches"`
	// Resources has all resources with their status.
	Resources any `json:"resources"`
}

// modules remembers where Envoy would load a module from, so that this program can load it, too.
type modules struct {
	*wasm.HTTPServer
	urls []string
}

func (m *modules) Get(url string, options *wasm.GetOptions) (string, string, error) {
	serving, checksum, err := m.HTTPServer.Get(url, options)
	if err == nil {
		m.urls = append(m.urls, serving)
	}
	return serving, checksum, err
}

func main() {
	translated, err := translate()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(translated)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func translate() (*output, error) {
	folder := os.Args[1]
	layouts := map[string]string{}
	for _, argument := range os.Args[2:] {
		name, layout, _ := strings.Cut(argument, "=")
		layouts[name] = layout
	}
	registry, err := image.Serve(layouts)
	if err != nil {
		return nil, err
	}
	manifests, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	text := strings.ReplaceAll(string(manifests), "registry.example.com", registry)
	resources, err := resource.LoadResourcesFromYAMLBytes([]byte(text), false, nil)
	if err != nil {
		return nil, err
	}

	// The file provider ignores EndpointSlices, which hold the addresses of a Service's pods.
	if err := resource.IterYAMLBytes([]byte(text), func(document []byte) error {
		slice := &discoveryv1.EndpointSlice{}
		if yaml.Unmarshal(document, slice) == nil && slice.Kind == "EndpointSlice" {
			resources.EndpointSlices = append(resources.EndpointSlices, slice)
		}
		return nil
	}); err != nil {
		return nil, err
	}

	ctx := context.Background()
	logger := logging.DefaultLogger(os.Stderr, egv1a1.LogLevelWarn)
	cache := &modules{HTTPServer: wasm.NewHTTPServerWithFileCache(
		wasm.ServerOptions{Salt: []byte("salt")}, wasm.CacheOptions{CacheDir: folder}, namespace, logger)}
	gateways := &gatewayapi.Translator{
		GatewayControllerName:   string(resources.GatewayClass.Spec.ControllerName),
		GatewayClassName:        gwapiv1.ObjectName(resources.GatewayClass.Name),
		EnvoyPatchPolicyEnabled: true,
		ControllerNamespace:     namespace,
		WasmCache:               cache,
		Logger:                  logger,
	}
	result, err := gateways.Translate(ctx, resources)
	if err != nil {
		return nil, err
	}
	if len(result.XdsIR) != 1 {
		return nil, fmt.Errorf("expected one Gateway, and there are %d", len(result.XdsIR))
	}
	out := &output{Resources: result.Resources}
	for _, ir := range result.XdsIR {
		routes := &translator.Translator{ControllerNamespace: namespace, FilterOrder: ir.FilterOrder, Logger: logger}
		table, err := routes.Translate(ctx, ir)
		if err != nil {
			return nil, err
		}
		out.Patches = table.EnvoyPatchPolicyStatuses
		for kind, list := range map[string]*[]json.RawMessage{
			resourcev3.ListenerType: &out.Listeners,
			resourcev3.RouteType:    &out.Routes,
			resourcev3.ClusterType:  &out.Clusters,
			resourcev3.EndpointType: &out.Endpoints,
			resourcev3.SecretType:   &out.Secrets,
		} {
			for _, message := range table.XdsResources[kind] {
				bytes, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
				if err != nil {
					return nil, err
				}
				*list = append(*list, bytes)
			}
		}
	}
	return out, cache.save(folder)
}

// save writes the modules as Envoy Gateway serves them, each named as in its URL.
func (m *modules) save(folder string) error {
	for _, url := range m.urls {
		request := httptest.NewRequest(http.MethodGet, url, nil)
		recorder := httptest.NewRecorder()
		m.ServeHTTP(recorder, request)
		if recorder.Code != http.StatusOK {
			return fmt.Errorf("Envoy Gateway answers %d for %s", recorder.Code, url)
		}
		file := filepath.Join(folder, path.Base(url))
		if err := os.WriteFile(file, recorder.Body.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
