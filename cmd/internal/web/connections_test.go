package web

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// TestConnections: a new connection takes the place of the one that was idle for the longest time, and is refused with
// the reason while every other has a request.
func TestConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 3
	conns := newConnections(l, most, true)
	begun, end := make(chan bool), make(chan bool)
	server := &http.Server{ConnContext: conns.context,
		Handler: conns.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				begun <- true
				<-end
			}
			_, _ = io.WriteString(w, "ok")
		}))}
	served := make(chan error)
	go func() { served <- server.Serve(conns) }()
	defer func() { _ = server.Close(); <-served }()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	send := func(c net.Conn, path string) {
		t.Helper()
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
	}
	get := func(c net.Conn) string {
		t.Helper()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err.Error()
		}
		text, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, text)
	}
	ask := func(c net.Conn) string { t.Helper(); send(c, "/"); return get(c) }

	first, second := dial(), dial()
	if got := ask(first) + ask(second); got != "200 ok200 ok" {
		t.Fatal(got)
	}
	silent := dial()
	for range most { // each takes the place of an older one
		if got := ask(dial()); got != "200 ok" {
			t.Fatal(got)
		}
	}
	for _, c := range []net.Conn{first, second, silent} {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("an idle connection is still open: %d bytes", n)
		}
	}
	var busy []net.Conn
	for range most {
		c := dial()
		send(c, "/wait")
		<-begun
		busy = append(busy, c)
	}
	if got := get(dial()); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, `"code":"too-many-connections"`) {
		t.Errorf("a connection beyond those with a request: %s", got)
	}
	for range busy {
		end <- true
	}
	for _, c := range busy {
		if got := get(c); got != "200 ok" {
			t.Errorf("a request under way: %s", got)
		}
	}
	if got := ask(dial()); got != "200 ok" {
		t.Error(got)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(conns.opened, conns.closed)
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if n := got["lapse_http_connections"]; n > most {
		t.Errorf("%v connections are open", n)
	}
	if n := got["lapse_http_connections_closed_total idle"]; n < most+1 {
		t.Errorf("%v idle connections were closed", n)
	}
	if n := got["lapse_http_connections_closed_total refused"]; n != 1 {
		t.Errorf("%v connections were refused", n)
	}
}

// TestRefusals: a connection is refused with the reason while fewer than mostGoodbyes others are, and is closed
// without a word otherwise.
func TestRefusals(t *testing.T) {
	for goodbye, want := range map[int]string{mostGoodbyes - 1: "HTTP/1.1 503 ", mostGoodbyes: ""} {
		synctest.Test(t, func(t *testing.T) {
			l := newConnections(nil, 1, true)
			l.goodbye = goodbye
			client, server := net.Pipe()
			l.refuse(server)
			text, err := io.ReadAll(client)
			if got := string(text); err != nil || !strings.HasPrefix(got, want) || (got == "") != (want == "") {
				t.Errorf("beside %d others it gets %q: %v", goodbye, got, err)
			}
			if synctest.Wait(); l.goodbye != goodbye {
				t.Errorf("afterwards %d of %d connections are being refused", l.goodbye, goodbye)
			}
		})
	}
}
