package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clientremote "k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/remotecommand"
)

func (s *sim) serveKubelet() (*net.TCPAddr, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simulated-node"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(87600 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("/containerLogs/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/exec/", func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/exec/"), "/") // ns/pod[/uid]/container
		if len(parts) < 3 {
			http.Error(w, "bad path", http.StatusNotFound)
			return
		}
		opts, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, s, parts[0]+"/"+parts[1], "", parts[len(parts)-1], r.URL.Query()["command"], opts, time.Hour, 30*time.Second,
			[]string{"v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"})
	})
	srv := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, ErrorLog: log.New(os.Stderr, "kubelet: ", 0)}
	go func() { log.Fatal(srv.ServeTLS(ln, "", "")) }()
	return ln.Addr().(*net.TCPAddr), nil
}

var urlRE = regexp.MustCompile(`https?://[^\s"']+`)

// ExecInContainer answers `curl http://PODIP:8080/{readyz,healthz,hostname,exit}` for pods of this cluster.
func (s *sim) ExecInContainer(ctx context.Context, name string, _ types.UID, container string, cmd []string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan clientremote.TerminalSize, _ time.Duration) error {
	raw := urlRE.FindString(strings.Join(cmd, " "))
	u, err := url.Parse(raw)
	if raw == "" || err != nil {
		return fmt.Errorf("simulated-node cannot run %q", cmd)
	}
	s.mu.Lock()
	var st *podState
	for _, c := range s.pods {
		if c.ip == u.Hostname() {
			st = c
		}
	}
	s.mu.Unlock()
	if st == nil {
		return exitError(7) // curl: could not connect
	}
	if !st.up.Load() {
		return exitError(7)
	}
	log.Printf("exec %s: %s", name, u.RequestURI())
	switch u.Path {
	case "/readyz", "/healthz":
		fmt.Fprint(out, "ok")
	case "/hostname", "/hostName":
		fmt.Fprint(out, st.name)
	case "/exit":
		code, _ := strconv.Atoi(u.Query().Get("code"))
		wait, _ := time.ParseDuration(u.Query().Get("wait"))
		select {
		case <-time.After(wait):
		case <-st.gone:
			return exitError(137)
		}
		select {
		case st.exit <- code:
		default:
		}
	default:
		return errors.New("simulated-node does not serve " + u.Path)
	}
	return nil
}

type exitError int

func (e exitError) Error() string   { return fmt.Sprintf("exit status %d", int(e)) }
func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return int(e) }
