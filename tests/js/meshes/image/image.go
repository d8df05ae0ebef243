// Package image serves the images of the two modules from a registry on loopback. They are made as
// those of a release. The meshes' own fetchers load them from there.
package image

import (
	"io"
	"log"
	"net"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Serve starts a registry that ends with this program, and returns its host and port. The keys of
// modules are names of images with a tag, the values are folders with an OCI layout.
func Serve(modules map[string]string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		log.Fatal(http.Serve(listener, registry.New(registry.Logger(log.New(io.Discard, "", 0)))))
	}()
	host := listener.Addr().String()
	for image, folder := range modules {
		if err := push(host+"/"+image, folder); err != nil {
			return "", err
		}
	}
	return host, nil
}

func push(image, folder string) error {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	built, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return err
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	return remote.Write(reference, built)
}
