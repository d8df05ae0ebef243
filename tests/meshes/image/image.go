// Package image serves the two modules as images from a registry on loopback, as a release publishes
// them: one layer, with plugin.wasm. The meshes' own fetchers load them from there.
package image

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Serve starts a registry that ends with this program, and returns its host and port. The keys of
// modules are names of images with a tag, the values are files.
func Serve(modules map[string]string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		log.Fatal(http.Serve(listener, registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	}()
	host := listener.Addr().String()
	for image, file := range modules {
		if err := push(host+"/"+image, file); err != nil {
			return "", err
		}
	}
	return host, nil
}

func push(image, file string) error {
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	header := tar.Header{Name: "plugin.wasm", Mode: 0o644, Size: int64(len(module))}
	if err := writer.WriteHeader(&header); err != nil {
		return err
	}
	if _, err := writer.Write(module); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
	if err != nil {
		return err
	}
	built, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	return remote.Write(reference, built)
}
