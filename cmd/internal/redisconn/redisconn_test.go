package redisconn

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(child.Goroutine)) }

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v: want it to say %q", err, part)
		}
	}
}

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url       string
		server    string   // or
		cluster   []string // addresses, or
		sentinels []string // addresses
		tls       bool
	}{
		{url: "redis://h:1", server: "h:1"},
		{url: "redis://u:p@h:1/3", server: "h:1"},
		{url: "redis://h:1?cluster=false", server: "h:1"},
		{url: "rediss://h:1", server: "h:1", tls: true},
		{url: "redis://h:1?cluster=true", cluster: []string{"h:1"}},
		{url: "redis://u:p@h:1,redis://i:2,redis://j:3", cluster: []string{"h:1", "i:2", "j:3"}},
		{url: "rediss://h:1?cluster=1,rediss://i:2", cluster: []string{"h:1", "i:2"}, tls: true},
		{url: "redis+sentinel://h:1,i/m", sentinels: []string{"h:1", "i:26379"}},
		{url: "redis-sentinel://u:p%2C@[::1]:1,i:2/m%2F?sentinel_username=v&sentinel_password=q",
			sentinels: []string{"[::1]:1", "i:2"}},
		{url: "rediss+sentinel://h/m/3?dial_timeout=1s", sentinels: []string{"h:26379"}, tls: true},
	} {
		got, err := parseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if o := got.sentinel; o != nil {
			if diff := cmp.Diff(c.sentinels, o.SentinelAddrs); diff != "" || (o.TLSConfig != nil) != c.tls {
				t.Errorf("%s: (-want +got):\n%s", c.url, diff)
			}
			if secret := strings.Contains(c.url, "@"); secret &&
				(o.MasterName != "m/" || o.Username != "u" || o.Password != "p," || o.SentinelUsername != "v" ||
					o.SentinelPassword != "q") {
				t.Errorf("%s: %+v", c.url, o)
			} else if !secret && (o.MasterName != "m" || o.Username+o.Password+o.SentinelUsername+o.SentinelPassword != "") {
				t.Errorf("%s: %+v", c.url, o)
			}
			if strings.Contains(c.url, "/3") != (o.DB == 3) {
				t.Errorf("%s: database %d", c.url, o.DB)
			}
			continue
		}
		client := got.client(7)
		switch o := client.(type) {
		case *redis.Client:
			if opts := o.Options(); opts.Addr != c.server || (opts.TLSConfig != nil) != c.tls || opts.PoolSize != 7 {
				t.Errorf("%s: %+v", c.url, opts)
			}
			if opts := o.Options(); opts.MaxRetries != 0 || !opts.ContextTimeoutEnabled { // -1 is none, which is 0 inside
				t.Errorf("%s: %d retries, deadlines %t", c.url, opts.MaxRetries, opts.ContextTimeoutEnabled)
			}
		case *redis.ClusterClient:
			if diff := cmp.Diff(c.cluster, o.Options().Addrs); diff != "" || (o.Options().TLSConfig != nil) != c.tls {
				t.Errorf("%s: (-want +got):\n%s", c.url, diff)
			}
			if opts := o.Options(); opts.MaxRetries > 0 || !opts.ContextTimeoutEnabled {
				t.Errorf("%s: %d retries, deadlines %t", c.url, opts.MaxRetries, opts.ContextTimeoutEnabled)
			}
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, url := range []string{
		"h:1", "http://h:1", "redis://u:secret@h:x", "redis://h:1?cluster=maybe", "redis://h:1?cluster=false,redis://i:2",
		"redis://h:1,i:2", "redis://h:1,rediss://i:2", "redis://h:1,", "redis://:secret@h:1?retries=3",
		"redis://h:1?cluster=true&read_only=true",
		"redis+sentinel://h:1", "redis+sentinel:///m", "redis+sentinel://h:1,/m", "redis+sentinel://h:x/m",
		"redis+sentinel://h/m/x", "redis+sentinel://h/m?replica_only=true",
		"redis+sentinel://:secret@h/m?x=1", "redis+sentinel://h/m?sentinel_password=secret&retries=3",
		"redis+sentinel://u:sec%zzret@h/m", "redis+sentinel://h/m?route_randomly=true",
	} {
		_, err := parseURL(url)
		wantError(t, err, "--redis ", "use redis://")
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in the error: %v", url, err)
		}
	}
}
