package cli

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/credentials"
)

func TestAsksForJSON(t *testing.T) {
	for args, want := range map[string]bool{
		"get -o json": true, "get -ojson": true, "get -o=json": true, "get --output json": true, "get --output=json": true,
		"get": false, "get json": false, "get -o": false, "get -o text": false, "get -o json -o text": false,
		"get -- -o json": false, "get --outputs=json": false,
	} {
		if got := asksForJSON(strings.Fields(args), ""); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
	if !asksForJSON([]string{"get"}, "json") || asksForJSON([]string{"get", "-otext"}, "json") {
		t.Error("LAPSE_OUTPUT counts unless a flag sets another format")
	}
}

func TestArrange(t *testing.T) {
	parser, err := newParser(context.Background(), output.Streams{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		"get a b":                       "get a b",
		"--server x get a b --prefix y": "get --server x a b --prefix y",
		"--server=x -o json get a b":    "get --server=x -o json a b",
		"-ojson get":                    "get -ojson",
		"-o=json get":                   "get -o=json",
		"--creds f count a":             "count --creds f a",
		"-h get":                        "get -h",
		"--server x --help":             "--help",
		"--server x":                    "",
		"--server":                      "",
		"--version":                     "version",
		"--ttl 5 put a b":               "--ttl 5 put a b",
		"--server x --ttl 5 put":        "--server x --ttl 5 put",
		"-- get":                        "-- get",
		"":                              "",
	} {
		if got := strings.Join(arrange(parser.Model.Node, strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	names := []string{"orders", "carts", "order-lines", "Users", "a"}
	for in, want := range map[string]string{
		"ordres": "orders", "order": "orders", "order-line": "order-lines", "users": "Users", "cart": "carts",
		"crats": "carts",
		"ord":   "orders", "order-": "orders", "order-l": "order-lines", "c": "carts", "readings": "", "b": "", "xy": "",
		"": "", "ordersordersorders": "",
	} {
		if want != "" {
			want = ": did you mean " + want + "?"
		}
		if got := didYouMean(in, names); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
	if didYouMean("orders", nil) != "" {
		t.Error("nothing is near nothing")
	}
}

// TestLoginOfAContext: a context has one way to log in. What is a secret itself goes into each URL that has none.
func TestLoginOfAContext(t *testing.T) {
	type nats = credentials.NATS
	secret := url.UserPassword("u", "p@:/").String()
	for name, c := range map[string]struct {
		natsContext
		url   string
		login nats
	}{
		"a password": {natsContext{User: "u", Password: "p@:/", Creds: "f", Token: "t"}, "nats://" + secret +
			"@a:1,tls://" + secret + "@b:2,nats://x@c", nats{}},
		"credentials": {natsContext{Creds: "f", NKey: "k", CA: "ca", Cert: "c", Key: "k", InboxPrefix: "_I"},
			"a:1, tls://b:2,nats://x@c", nats{Creds: "f", CA: "ca", Cert: "c", Key: "k", InboxPrefix: "_I"}},
		"an nkey":                 {natsContext{NKey: "k", Token: "t"}, "a:1, tls://b:2,nats://x@c", nats{NKeyFile: "k"}},
		"a token":                 {natsContext{Token: "t"}, "nats://t@a:1,tls://t@b:2,nats://x@c", nats{}},
		"a user without password": {natsContext{User: "u"}, "nats://u:@a:1,tls://u:@b:2,nats://x@c", nats{}},
		"nothing":                 {natsContext{}, "a:1, tls://b:2,nats://x@c", nats{}},
	} {
		if urls, login := c.natsContext.login("a:1, tls://b:2,nats://x@c"); urls != c.url || login != c.login {
			t.Errorf("%s: %s, %+v", name, urls, login)
		}
	}
}
