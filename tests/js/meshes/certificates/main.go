// Writes the files that the manifests mount for etcd (ca.crt, tls.crt, tls.key), and a server's
// certificate for 127.0.0.1 (server.crt, server.key), to a folder.
//
// Usage: certificates FOLDER
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

func main() {
	folder := os.Args[1]
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	key := newKey()
	write(folder, "ca.crt", "CERTIFICATE", sign(authority, authority, key, key))
	for number, leaf := range []struct{ name, file string }{{"impersonation-filter", "tls"}, {"etcd", "server"}} {
		certificate := &x509.Certificate{
			SerialNumber: big.NewInt(int64(number + 2)),
			Subject:      pkix.Name{CommonName: leaf.name},
			NotBefore:    authority.NotBefore,
			NotAfter:     authority.NotAfter,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
			IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		own := newKey()
		write(folder, leaf.file+".crt", "CERTIFICATE", sign(certificate, authority, own, key))
		private, err := x509.MarshalPKCS8PrivateKey(own)
		check(err)
		write(folder, leaf.file+".key", "PRIVATE KEY", private)
	}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	return key
}

func sign(certificate, authority *x509.Certificate, own, authoritys *ecdsa.PrivateKey) []byte {
	signed, err := x509.CreateCertificate(rand.Reader, certificate, authority, &own.PublicKey, authoritys)
	check(err)
	return signed
}

func write(folder, name, kind string, bytes []byte) {
	block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	check(os.WriteFile(filepath.Join(folder, name), block, 0o600))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
