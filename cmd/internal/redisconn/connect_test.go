package redisconn

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/credentials"
)

// TestLogin: a login that does not fit the URL, or whose files cannot be read, is refused before a connection.
func TestLogin(t *testing.T) {
	file, missing := filepath.Join(t.TempDir(), "password"), filepath.Join(t.TempDir(), "missing")
	if err := os.WriteFile(file, []byte("s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const sentinels = "redis+sentinel://h/m"
	for _, c := range []struct {
		url   string
		login credentials.Redis
		want  string
	}{
		{"redis://h", credentials.Redis{User: "u"}, "--redis-user needs --redis-password-file"},
		{"redis://h", credentials.Redis{CA: missing}, "--redis-ca needs a rediss:// URL"},
		{"rediss://h", credentials.Redis{CA: missing}, "--redis-ca: "},
		{"redis://h,redis://i", credentials.Redis{CA: missing}, "--redis-ca needs a rediss:// URL"},
		{"rediss://h,rediss://i", credentials.Redis{CA: missing}, "--redis-ca: "},
		{sentinels, credentials.Redis{CA: missing}, "--redis-ca needs a rediss:// URL"},
		{"rediss+sentinel://h/m", credentials.Redis{CA: missing}, "--redis-ca: "},
		{"redis://h", credentials.Redis{SentinelPasswordFile: file}, "needs a redis+sentinel:// URL"},
		{sentinels, credentials.Redis{SentinelPasswordFile: missing}, "--redis-sentinel-password-file"},
		{sentinels + "?sentinel_password=x", credentials.Redis{SentinelPasswordFile: file}, "one of the two places"},
	} {
		wantError(t, Options{URL: c.url, Login: c.login}.Check(), c.want)
	}
	for _, url := range []string{"redis://h", "redis://h,redis://i", sentinels} {
		to, err := Options{URL: url, Login: credentials.Redis{User: "u", PasswordFile: file}}.parse()
		if err != nil {
			t.Fatal(err)
		}
		var login func(context.Context) (string, string, error)
		switch {
		case to.cluster != nil:
			login = to.cluster.CredentialsProviderContext
		case to.sentinel != nil:
			login = to.sentinel.CredentialsProviderContext
		default:
			login = to.server.CredentialsProviderContext
		}
		if user, secret, err := login(t.Context()); user != "u" || secret != "s" || err != nil {
			t.Errorf("%s: user %q, password %q, %v", url, user, secret, err)
		}
	}
	to, err := Options{URL: sentinels, Login: credentials.Redis{SentinelUser: "v", SentinelPasswordFile: file}}.parse()
	if err != nil || to.sentinel.SentinelUsername != "v" || to.sentinel.SentinelPassword != "s" {
		t.Errorf("the login of the Sentinels: %+v, %v", to.sentinel, err)
	}
}

// TestNoSentinel: without a Sentinel there is no connection. Of several errors the user gets that of a server which
// answers, or else the first.
func TestNoSentinel(t *testing.T) {
	nobody := harness.NewProxy(t, "127.0.0.1:1")
	nobody.Down()
	other := harness.NewProxy(t, "127.0.0.1:1")
	other.Down()
	server := harness.StartRedis(t, harness.RedisOptions{}) // which is no Sentinel
	for _, c := range []struct{ addresses, want string }{
		{nobody.Address() + "," + other.Address(), nobody.Address()},
		{nobody.Address() + "," + server.Address(), server.Address()},
		{server.Address() + "," + nobody.Address(), server.Address()},
	} {
		to, err := Options{URL: "redis+sentinel://" + c.addresses + "/m"}.parse()
		if err != nil {
			t.Fatal(err)
		}
		// A busy machine may take longer than a Sentinel has for its answer.
		harness.Until(t, harness.Limit, "the user gets the error of "+c.want, func(ctx context.Context) error {
			switch err := to.askSentinels(ctx); {
			case err == nil:
				return poll.Hopeless(errors.New("a Sentinel knows the master"))
			case strings.Contains(err.Error(), "no Sentinel answers: ") && strings.Contains(err.Error(), c.want):
				return nil
			default:
				return err
			}
		})
	}
}

// TestSlotsAreLimited: a node of a cluster that stands still has a second for its slots, however long other commands
// may take.
func TestSlotsAreLimited(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: its connections stand still
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client := clusterClient(&redis.ClusterOptions{Addrs: []string{l.Addr().String()}, DialTimeout: time.Hour,
		ReadTimeout: time.Hour}, 1)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := client.Get(ctx, "k").Err(); err == nil || ctx.Err() != nil {
		t.Errorf("the command gets %v; the limit of the test: %v", err, ctx.Err())
	}
}
